package redlock

import (
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/clock"
	"github.com/golockers/locker/internal/redisconn"
	"github.com/golockers/locker/internal/rediswake"
)

//go:embed counter.lua
var counterText string

//go:embed vote.lua
var voteText string

//go:embed raise.lua
var raiseText string

//go:embed renew.lua
var renewText string

//go:embed repair.lua
var repairText string

// node is one server of the quorum, with what is known of it. Its questions do
// not wait: a hung node must not pile up goroutines. Each answer comes to a
// callback, which must not block, and comes for certain: with an error when the
// limit of the question has passed since it was sent. Time in the queue of this
// process does not count (R21).
type node struct {
	b     *Backend
	index int
	conn  *redisconn.Conn
	wakes *rediswake.Wakes
	addr  string

	raiseScript, renewScript, releaseScript *redisconn.Script

	inFlight atomic.Int64                   // questions queued or under way
	twin     atomic.Pointer[duplicateError] // as the last look found: the node leads to another's server

	mu         sync.Mutex
	run        run // of the server that was seen last
	scripts    *scripts
	guardUntil time.Time // it does not vote before
	voted      time.Time // when that run was last known to run
	seen       bool      // it was looked at
	looking    *look     // the look under way
	fails      int       // moments in a row without an answer
	failedAt   time.Time // the last of them
	probeAt    time.Time // when to ask again, if it is sick
	lastErr    error
	warned     atomic.Bool // that it refuses this client
}

func newNode(b *Backend, index int, conn *redisconn.Conn) *node {
	return &node{
		b: b, index: index, conn: conn, addr: conn.Addr(),
		wakes:         rediswake.New(conn, ""),
		raiseScript:   redisconn.NewScript(counterText + raiseText),
		renewScript:   conn.Script(counterText+renewText, 2, 4),
		releaseScript: conn.ReleaseScript(),
	}
}

// claim is what all questions about one hold have in common.
type claim struct {
	keys    redisconn.Keys // with the owner value, which is compared whole (R9)
	ttl     time.Duration
	lasts   time.Duration // how long a vote for it lasts, unless it is released: the longer of TTL and MinHold
	undo    *driver.Undo  // of the hold: told of what may store or prolong it
	fenced  bool          // the nodes keep counters for tokens
	waiting bool          // a release is to be published
}

// voteArgc is how many arguments of vote.lua stand behind its keys.
const voteArgc = 3

// voteArgs returns the keys and arguments of vote.lua, the same for all nodes. Keys that are
// not needed are the lock's own, or left out.
func (c *claim) voteArgs() []any {
	k := &c.keys
	lock, tokens := k.Lock, withTokens
	args := append(make([]any, 0, 4+voteArgc), lock, k.Void(), lock)
	if c.fenced {
		args[2] = k.Quorum()
	} else {
		tokens = noTokens
	}
	if c.waiting {
		args = append(args, k.Wait())
	}
	return append(args, tokens, k.Value(), redisconn.Milliseconds(c.lasts))
}

// A node is sick when it has not answered so many times in a row. It is then
// asked once per interval, until it answers; and more often only where there is
// no quorum without it. A node with so many questions under way is behind, and
// is not asked either where there is a quorum without it.
const (
	sickAfter  = 3
	firstProbe = 100 * time.Millisecond
	lastProbe  = time.Second
	oneMoment  = 20 * time.Millisecond
	behind     = 4 * maxRounds
)

func (n *node) sick() bool { return n.fails >= sickAfter }

// worthAsking reports whether to ask the node without need. It says yes to one
// caller per interval for a sick one.
func (n *node) worthAsking(now time.Time) bool {
	if n.inFlight.Load() >= behind {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.sick() {
		return true
	}
	if now.Before(n.probeAt) {
		return false
	}
	n.probeAt = now.Add(clock.BackOff(n.fails-sickAfter, firstProbe, lastProbe))
	return true
}

// why says why the node is not asked.
func (n *node) why() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.lastErr == nil {
		return errBusy
	}
	return fmt.Errorf("not asked, since it has not answered lately: %w", n.lastErr)
}

var errBusy = errors.New("not asked, since it is behind with its answers")

// ask sends a question. answered is called once, with c that is over, unless it is withdrawn.
func (n *node) ask(c *redisconn.Call, limit time.Duration,
	answered func(c *redisconn.Call)) redisconn.Started {
	c.Limit = limit
	n.inFlight.Add(1)
	started, ok := n.conn.Start(c, answered)
	if !ok {
		answered(c) // closed
	}
	return started
}

// withdraw takes a question back that was not sent, and reports whether it was not.
func (n *node) withdraw(s redisconn.Started) bool {
	if !n.conn.Withdraw(s) {
		return false
	}
	n.inFlight.Add(-1)
	return true
}

// over keeps account of a question that is over. err is why it has no answer, or none
// that makes sense: errRestarted if the server does not know the script.
func (n *node) over(c *redisconn.Call, err error) error {
	if redisconn.IsNoScript(err) {
		err = &redisconn.Error{Op: c.Op, Addr: n.addr, Err: errRestarted, Unknown: c.Repeated()}
	}
	n.inFlight.Add(-1)
	n.note(c.Op, c.Sent(), err)
	c.Recycle()
	return err
}

// note keeps account of an answer to a question that was sent then, or of none.
func (n *node) note(op string, sent time.Time, err error) {
	if err != nil {
		n.warn(err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil {
		n.failed(err)
		return
	}
	n.fails, n.lastErr = 0, nil
	if op == opVote && sent.After(n.voted) {
		n.voted = sent // it ran then, at least
	}
}

// warn says once that the node refuses this client, if that is what err says: a majority may go on without it for
// long, until one of that fails, too. n.mu is not held: the Logger is the user's, and may ask for a lock.
func (n *node) warn(err error) {
	if e, ok := errors.AsType[*redisconn.Error](err); ok && e.Refused && !n.b.opening.Load() && !n.warned.Swap(true) {
		n.b.opts.Logger.Warn("redlock: a node refuses this client, and does not vote until that is fixed", "node", n.addr,
			"error", err)
	}
}

// failed notes a question without an answer. n.mu is held. Of the many questions
// of one moment that fail together, one counts.
func (n *node) failed(err error) {
	n.lastErr = err
	now := time.Now()
	if now.Sub(n.failedAt) < oneMoment {
		return
	}
	n.failedAt = now
	n.fails++
	if n.fails == sickAfter {
		n.probeAt = now.Add(firstProbe)
	}
}

// The names of questions, for errors.
const (
	opVote    = "vote"
	opRaise   = "raise"
	opRenew   = "renew"
	opRepair  = "repair"
	opRelease = "release"
)

// inTime reports whether a question failed in another way than by taking too long.
func inTime(err error) bool {
	return !errors.Is(err, errNoAnswer) && !errors.Is(err, redisconn.ErrTimeout) &&
		!errors.Is(err, redisconn.ErrSilent)
}

// vote is a node's answer to a claim.
type vote struct {
	token   uint64        // granted and fenced: the lowest that could follow on this node
	holder  string        // refused: the beginning of the holder's value, up to holderLength bytes
	left    time.Duration // refused: the rest of the holder's TTL; negative: it never expires
	granted bool
	raised  bool // granted before to this claim (R11), with this token
	foreign bool // refused: the key is there but is no lock
	void    bool // refused: this very claim was taken back before
}

// refuses reports whether another has the lock.
func (v vote) refuses() bool { return !v.granted && !v.void && !v.foreign }

// Whether there are counters, for the scripts.
var noTokens, withTokens any = "none", "tokens"

// holderLength is how much of a holder's value a refusal names (vote.lua).
const holderLength = 16

// The first number of an answer of vote.lua that is not simply a grant.
const (
	codeHeld int64 = iota
	codeAgain
	codeVoid
	codeForeign
	codeRaised
)

// vote asks for a vote on args.
func (n *node) vote(
	s *scripts, cl *claim, args []any, limit time.Duration, answered func(vote, reply),
) redisconn.Started {
	fenced := cl.fenced
	c := s.vote.Call(opVote, cl.keys.Name, len(args)-voteArgc, args...)
	c.Undo, c.Lasts = cl.undo, cl.lasts
	return n.ask(c, limit, func(c *redisconn.Call) {
		v, err := n.readVote(c, fenced)
		r := reply{repeated: c.Repeated()}
		r.err = n.over(c, err)
		answered(v, r)
	})
}

// readVote reads a node's vote, strictly: what the script does not answer is no vote.
func (n *node) readVote(c *redisconn.Call, fenced bool) (vote, error) {
	reply, err := n.conn.Result(c)
	if err != nil {
		return vote{}, err
	}
	if token, ok := reply.(int64); ok && isToken(token, fenced) {
		return vote{granted: true, token: uint64(token)}, nil
	}
	return n.readCode(c.Op, reply, fenced)
}

// isToken reports whether a vote can have this token: none without fencing.
func isToken(n int64, fenced bool) bool {
	if !fenced {
		return n == 0
	}
	return n > 0 && n <= maxToken+1
}

// readCode reads an answer of vote.lua that is not simply a grant.
func (n *node) readCode(op string, reply any, fenced bool) (vote, error) {
	v, _ := reply.([]any)
	if len(v) < 2 || len(v) > 3 {
		return vote{}, n.conn.Unexpected(op, reply)
	}
	code, ok1 := v[0].(int64)
	number, ok2 := v[1].(int64)
	left := redisconn.LeftOf(number)
	switch {
	case !ok1 || !ok2:
	case len(v) == 3:
		if holder, ok := v[2].(string); ok && code == codeHeld && number >= redisconn.NoKey {
			n.compare(left)
			return vote{left: left, holder: holder}, nil
		}
	case code == codeAgain && isToken(number, fenced):
		return vote{granted: true, token: uint64(number)}, nil
	case code == codeRaised && fenced && isToken(number, fenced):
		return vote{granted: true, token: uint64(number), raised: true}, nil
	case code == codeVoid && number == 0:
		return vote{void: true}, nil
	case code == codeForeign && number >= redisconn.NoKey:
		return vote{foreign: true, left: left}, nil
	}
	return vote{}, n.conn.Unexpected(op, reply)
}

// raise is the second phase of a token: Mine if the node's counter now stands at
// floor, the token or more, for this claim.
func (n *node) raise(cl *claim, token, floor uint64, limit time.Duration, answered func(reply)) {
	k := &cl.keys
	n.state(n.raiseScript.Call(opRaise, k.Name, 2, k.Lock, k.Quorum(), k.Value(), decimal(token),
		decimal(floor)), limit, answered)
}

// renew is Mine if the node had the lock, and now has it for another TTL.
func (n *node) renew(cl *claim, token, floor uint64, limit time.Duration, answered func(reply)) {
	k := &cl.keys
	lock := k.Lock
	counter, tokens := lock, noTokens
	if cl.fenced {
		counter, tokens = k.Quorum(), withTokens
	}
	c := n.renewScript.Call(opRenew, k.Name, 2, lock, counter, tokens, k.Value(),
		redisconn.Milliseconds(cl.ttl), decimal(token), decimal(floor))
	c.Undo, c.Lasts = cl.undo, cl.ttl
	n.state(c, limit, answered)
}

// repair gives the node a lock that it does not have: Mine if it has it now, Gone
// if the claim is void. Like a vote it needs scripts, and fails with errRestarted.
func (n *node) repair(s *scripts, cl *claim, token, floor uint64, lasts, limit time.Duration,
	answered func(reply)) {
	k, ms := &cl.keys, redisconn.Milliseconds(lasts)
	c := s.repair.Call(opRepair, k.Name, 2, k.Lock, k.Void(), k.Value(), ms)
	if cl.fenced {
		c = s.repair.Call(opRepair, k.Name, 3, k.Lock, k.Void(), k.Quorum(), k.Value(), ms, decimal(token),
			decimal(floor))
	}
	c.Undo, c.Lasts = cl.undo, lasts
	n.state(c, limit, answered)
}

// release removes the lock: Mine if it was there. void > 0 leaves a note for so
// long, so that what is still under way with this value is refused. Where connections
// are silent it is sent on others, for as long as the timeout of the Conn; time in the
// queue of this process does not count (R21).
func (n *node) release(cl *claim, void, limit time.Duration, answered func(reply)) {
	var ask func(left time.Duration, repeated bool)
	ask = func(left time.Duration, repeated bool) {
		c := n.conn.ReleaseCall(n.releaseScript, &cl.keys, void)
		c.Op = opRelease
		n.state(c, limit, func(r reply) {
			r.repeated = r.repeated || repeated
			if left -= time.Since(r.sent); errors.Is(r.err, redisconn.ErrSilent) && left > 0 {
				ask(left, true)
				return
			}
			answered(r)
		})
	}
	ask(n.conn.Timeout(), false)
}

func decimal(token uint64) string { return strconv.FormatUint(token, 10) }

// state asks a question whose script answers with a State.
func (n *node) state(c *redisconn.Call, limit time.Duration, answered func(reply)) {
	last := redisconn.Overtaken
	if c.Op == opRelease {
		last = redisconn.Theirs
	}
	n.ask(c, limit, func(c *redisconn.Call) {
		st, err := n.conn.StateOf(c, last)
		r := reply{state: st, sent: c.Sent(), repeated: c.Repeated()}
		r.err = n.over(c, err)
		answered(r)
	})
}

// await waits for the answer to a question.
func await(ask func(answered func(reply))) reply {
	got := make(chan reply, 1)
	ask(func(r reply) { got <- r })
	return <-got
}
