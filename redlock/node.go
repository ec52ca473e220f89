package redlock

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

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
// limit of the question has passed.
type node struct {
	b     *Backend
	index int
	conn  *redisconn.Conn
	wakes *rediswake.Wakes
	addr  string

	raiseScript, renewScript, releaseScript *redisconn.Script

	inFlight        atomic.Int64                   // questions queued or under way
	pendingReleases atomic.Int64                   // releases that are sent again later
	twin            atomic.Pointer[duplicateError] // as the last look found: the node leads to another's server

	mu         sync.Mutex
	run        run // of the server that was seen last
	ballot     *ballot
	guardUntil time.Time // it does not vote before
	voted      time.Time // when that run was last known to run
	answered   time.Time // when the node last answered anything
	restarts   uint64
	looks      lookState
	waiting    []func(*ballot, error) // for the look under way
	fails      int                    // moments in a row without an answer
	failedAt   time.Time              // the last of them
	probeAt    time.Time              // when to ask again, if it is sick
	lastErr    error
	votes      map[Outcome]uint64
	others     map[Outcome]uint64
}

func newNode(b *Backend, index int, conn *redisconn.Conn) *node {
	return &node{
		b: b, index: index, conn: conn, addr: conn.Addr(),
		wakes:         rediswake.New(conn, rediswake.Options{}),
		raiseScript:   redisconn.NewScript(counterText + raiseText),
		renewScript:   conn.Script(counterText+renewText, 2, 3),
		releaseScript: conn.ReleaseScript(),
		votes:         map[Outcome]uint64{},
		others:        map[Outcome]uint64{},
	}
}

// claim is what all questions of one attempt have in common.
type claim struct {
	keys    redisconn.Keys // with the owner value, which is compared whole (R9)
	ttl     time.Duration
	atLeast time.Time // the lock is not made shorter than up to here (MinHold)
	life    any       // of a counter, in the scripts' words: "expire" or "keep"
	fenced  bool      // the nodes keep counters for tokens
	waiting bool      // a release is to be published

	void, counter, wait any // the keys beside the lock's own, made once for all nodes
}

// newClaim makes the keys of c. Those that are not needed are the lock's own.
func newClaim(c claim) claim {
	c.void, c.counter, c.wait = c.keys.Void(), c.keys.Lock, c.keys.Lock
	if c.fenced {
		c.counter = c.keys.Quorum()
	}
	if c.waiting {
		c.wait = c.keys.Wait
	}
	return c
}

// expiry is the TTL to set now.
func (c *claim) expiry() int64 {
	if c.atLeast.IsZero() {
		return redisconn.Milliseconds(c.ttl)
	}
	return redisconn.Milliseconds(max(c.ttl, time.Until(c.atLeast)))
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

// ask sends a question. answer is called once, never with an attempt's mutex
// held, and returns what came of it.
func (n *node) ask(c *redisconn.Call, limit time.Duration, answer func(error) (Outcome, error)) {
	c.Limit = limit
	op, name, began := c.Op, c.Name, time.Now()
	n.inFlight.Add(1)
	n.conn.Start(c, func(err error) {
		n.inFlight.Add(-1)
		outcome, err := answer(err)
		n.note(op, name, outcome, began, err)
	})
}

// withdraw gives up a question that is still in the queue: it never will be
// sent, nor answered.
func (n *node) withdraw(c *redisconn.Call) bool {
	ok := c != nil && n.conn.Withdraw(c)
	if ok {
		n.inFlight.Add(-1)
	}
	return ok
}

// note keeps account of an answer, or of none, and tells Trace.
func (n *node) note(op, name string, o Outcome, began time.Time, err error) {
	took := time.Since(began)
	n.mu.Lock()
	n.count(op, o)
	switch {
	case o <= Gone:
		n.fails, n.lastErr, n.answered = 0, nil, time.Now()
		if op == opVote && began.After(n.voted) {
			n.voted = began // it ran then, at least
		}
	case o == TimedOut || o == Failed:
		n.failed(err)
	}
	n.mu.Unlock()
	n.trace(NodeEvent{Node: n.addr, Op: op, Name: name, Outcome: o, Took: took, Err: err})
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

func (n *node) count(op string, o Outcome) {
	if op == opVote {
		n.votes[o]++
	} else {
		n.others[o]++
	}
}

// unasked tells of a vote that the node was not asked for.
func (n *node) unasked(name string, o Outcome, err error) {
	n.mu.Lock()
	n.count(opVote, o)
	n.mu.Unlock()
	n.trace(NodeEvent{Node: n.addr, Op: opVote, Name: name, Outcome: o, Err: err})
}

func (n *node) trace(e NodeEvent) {
	if t := n.b.opts.Trace; t != nil && t.Node != nil {
		t.Node(e)
	}
}

// The names of questions, for Trace.
const (
	opVote    = "vote"
	opRaise   = "raise"
	opRenew   = "renew"
	opRepair  = "repair"
	opRelease = "release"
)

// failedAs says how a question without an answer failed.
func failedAs(err error) Outcome {
	for _, late := range []error{errNoAnswer, redisconn.ErrTimeout, redisconn.ErrSilent, context.DeadlineExceeded} {
		if errors.Is(err, late) {
			return TimedOut
		}
	}
	return Failed
}

// vote is a node's answer to a claim.
type vote struct {
	token   uint64        // granted and fenced: the lowest that could follow on this node
	holder  string        // refused: the beginning of the holder's value, up to holderLength bytes
	left    time.Duration // refused: the rest of the holder's TTL; negative: it never expires
	granted bool
	raised  bool // granted before to this claim (R11), and the counter raised to token for it
	foreign bool // refused: the key is there but is no lock
	void    bool // refused: this very claim was taken back before
}

// noTokens is, for the scripts, that there are no counters.
var noTokens any = "none"

// holderLength is how much of a holder's value a refusal names (vote.lua).
const holderLength = 16

// vote asks for the node's vote, on a ballot that its server was given. The error
// is errRestarted, certainly not carried out, if the server does not know it.
func (n *node) vote(b *ballot, cl *claim, limit time.Duration, answer func(vote, error)) *redisconn.Call {
	tokens := cl.life
	if !cl.fenced {
		tokens = noTokens
	}
	k := &cl.keys
	var c *redisconn.Call
	if cl.waiting {
		c = b.vote.Call(opVote, k.Name, 4, k.Lock, cl.void, cl.counter, cl.wait, tokens, k.Value, cl.expiry())
	} else {
		c = b.vote.Call(opVote, k.Name, 3, k.Lock, cl.void, cl.counter, tokens, k.Value, cl.expiry())
	}
	n.ask(c, limit, func(err error) (Outcome, error) {
		var v vote
		switch {
		case err == nil:
			v, err = n.readVote(c)
		case redisconn.IsNoScript(errors.Unwrap(err)):
			err = errRestarted
		}
		answer(v, err)
		switch {
		case err != nil:
			return failedAs(err), err
		case v.granted:
			return Granted, nil
		}
		return Refused, nil
	})
	return c
}

// The first number of an answer of vote.lua that is not simply a grant.
const (
	codeHeld int64 = iota
	codeAgain
	codeVoid
	codeForeign
	codeRaised
)

func (n *node) readVote(c *redisconn.Call) (vote, error) {
	if t, ok := c.Reply().(int64); ok {
		return vote{granted: true, token: uint64(t)}, nil
	}
	v, _ := c.Reply().([]any)
	if len(v) >= 2 {
		code, ok1 := v[0].(int64)
		number, ok2 := v[1].(int64)
		left := redisconn.LeftOf(number)
		switch {
		case !ok1 || !ok2:
		case code == codeHeld && len(v) == 3:
			holder, _ := v[2].(string)
			return vote{left: left, holder: holder}, nil
		case code == codeAgain:
			return vote{granted: true, token: uint64(number)}, nil
		case code == codeRaised:
			return vote{granted: true, token: uint64(number), raised: true}, nil
		case code == codeVoid:
			return vote{void: true}, nil
		case code == codeForeign:
			return vote{foreign: true, left: left}, nil
		}
	}
	return vote{}, n.conn.Strange(c.Op, c.Reply())
}

// raise is the second phase of a token: Mine if the node's counter now stands at
// token for this claim.
func (n *node) raise(cl *claim, token uint64, limit time.Duration, answer func(redisconn.State, error)) {
	n.state(n.raiseScript.Call(opRaise, cl.keys.Name, 2, cl.keys.Lock, cl.counter, cl.keys.Value, decimal(token), cl.life), limit, answer)
}

// renew is Mine if the node had the lock, and now has it for another TTL.
func (n *node) renew(cl *claim, token uint64, limit time.Duration, answer func(redisconn.State, error)) {
	k, life := &cl.keys, cl.life
	if !cl.fenced {
		life = noTokens
	}
	n.state(n.renewScript.Call(opRenew, k.Name, 2, k.Lock, cl.counter, life, k.Value, cl.expiry(), decimal(token)), limit, answer)
}

// repair gives the node a lock that it does not have: Mine if it has it now, Gone
// if the claim is void. Like a vote it needs a ballot, and fails with errRestarted.
func (n *node) repair(b *ballot, cl *claim, token uint64, limit time.Duration, answer func(redisconn.State, error)) {
	k := &cl.keys
	var c *redisconn.Call
	if cl.fenced {
		c = b.repair.Call(opRepair, k.Name, 3, k.Lock, cl.void, cl.counter, k.Value, cl.expiry(), decimal(token), cl.life)
	} else {
		c = b.repair.Call(opRepair, k.Name, 2, k.Lock, cl.void, k.Value, cl.expiry())
	}
	n.state(c, limit, answer)
}

// release removes the lock: Mine if it was there. void > 0 leaves a note for so
// long, so that what is still under way with this value is refused.
func (n *node) release(cl *claim, void, limit time.Duration, answer func(redisconn.State, error)) {
	c := n.conn.ReleaseCall(n.releaseScript, &cl.keys, void)
	c.Op = opRelease
	n.state(c, limit, answer)
}

func decimal(token uint64) string { return strconv.FormatUint(token, 10) }

// state asks a question whose script answers with a State.
func (n *node) state(c *redisconn.Call, limit time.Duration, answer func(redisconn.State, error)) {
	n.ask(c, limit, func(err error) (Outcome, error) {
		st := redisconn.Gone
		switch {
		case err == nil:
			st, err = n.conn.StateOf(c)
		case redisconn.IsNoScript(errors.Unwrap(err)):
			err = errRestarted
		}
		answer(st, err)
		switch {
		case err != nil:
			return failedAs(err), err
		case st == redisconn.Mine:
			return Granted, nil
		case st == redisconn.Gone:
			return Gone, nil
		}
		return Refused, nil
	})
}
