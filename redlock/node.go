package redlock

import (
	"embed"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golockers/locker/internal/clock"
	"github.com/golockers/locker/internal/redisnode"
)

//go:embed *.lua
var files embed.FS

var (
	voteText   = redisnode.Text(files, "counter.lua", "vote.lua")
	keepText   = redisnode.Text(files, "local CREATES = false", "counter.lua", "keep.lua")
	repairText = redisnode.Text(files, "local CREATES = true", "counter.lua", "keep.lua")
)

// node is one server of the quorum, with what is known of it.
type node struct {
	*redisnode.Node
	b     *Backend
	index int
	wakes *redisnode.Wakes
	keep  *redisnode.Script

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

func newNode(b *Backend, index int, n *redisnode.Node) *node {
	return &node{Node: n, b: b, index: index, wakes: n.Wakes(""), keep: redisnode.NewScript(2, "", keepText).Anywhere()}
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
	if e, ok := errors.AsType[*redisnode.Error](err); ok && e.Refused && !n.b.opening.Load() && !n.warned.Swap(true) {
		n.b.opts.Logger.Warn("redlock: a node refuses this client, and does not vote until that is fixed", "node", n.Addr,
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

// inTime reports whether a question failed in another way than by taking too long.
func inTime(err error) bool {
	return !errors.Is(err, errNoAnswer) && !errors.Is(err, redisnode.ErrTimeout)
}

func decimal(token uint64) string { return strconv.FormatUint(token, 10) }
