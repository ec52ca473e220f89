package redlock

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/redisnode"
)

// round is one try for a lock. A node that could not vote in time gets the lock, and with fencing the token, as soon
// as its server was looked at, or else by the first renewal; one that has refused it, soon.
type round struct {
	b       *Backend
	hold    *hold
	limit   time.Duration // for each node's answer
	healthy bool          // a quorum had answered when last asked
	looked  atomic.Bool   // a server was looked at for the first time
	votes   *poll
	raises  *poll // the second phase of the token; nil: it has not begun. Guarded by votes.mu.
}

// result is what came of a round.
type result int

const (
	won        result = iota
	heldByOne         // another has a quorum
	perhaps           // another may have one: a node that may be of it did not answer
	split             // nobody has one
	outOfReach        // too few nodes answered
	tooLate           // won, but too slowly
)

// run is one round, in the five steps of the algorithm.
func (r *round) run(ctx context.Context) result {
	h, quorum := r.hold, r.b.quorum

	// 1. Note the time. A lease counts from here (R1).
	h.since = time.Now()

	// 2. Ask all nodes at the same time, and count until a quorum has voted for us or none can.
	for _, i := range r.choose() {
		r.ask(i, 0)
	}
	agreed := r.votes.wait(ctx, r.limit)[yes] >= quorum

	// 3. With tokens, have the quorum agree on the highest that could follow on each of its nodes.
	if agreed && r.b.opts.Fencing {
		r.raise()
		agreed = r.raises.wait(ctx, r.limit)[yes] >= quorum
	}

	// 4. It is won if it is still valid by now: TTL − elapsed − drift.
	valid := time.Now().Before(h.validity().Until())
	if agreed && valid {
		h.win()
		return won
	}

	// 5. Otherwise remove it from all nodes.
	h.giveUp()
	if agreed {
		return tooLate
	}
	return r.refused()
}

// longStall is how much longer the nodes are given in a second try: time for a lost packet to be sent again.
const longStall = 250 * time.Millisecond

// newRound makes a round. A patient one is a second try, after a stall: with more time for each node.
func (b *Backend) newRound(h *hold, patient bool) *round {
	r := &round{b: b, hold: h, limit: b.nodeTimeout(h.ttl)}
	if patient {
		r.limit += min(3*r.limit, longStall)
	}
	r.votes = b.newPoll(r.decides)
	r.votes.then = r.second
	return r
}

// choose returns whom to ask: not those that have not answered for a while, unless there is no quorum without them.
func (r *round) choose() (asked []int) {
	now := time.Now()
	asked = make([]int, 0, len(r.b.nodes))
	var skipped []int
	for i, n := range r.b.nodes {
		if n.worthAsking(now) {
			asked = append(asked, i)
		} else {
			skipped = append(skipped, i)
		}
	}
	if r.healthy = len(asked) >= r.b.quorum; !r.healthy {
		return append(asked, skipped...)
	}
	for _, i := range skipped {
		r.votes.put(i, said{verdict: failed, err: r.b.nodes[i].why()})
	}
	return asked
}

const (
	maxLooks    = 3           // how often a node is looked at for one vote, at most
	longestLook = time.Second // of a server that was never looked at
)

// ask asks a node for its vote, or first looks at its server where that is needed.
func (r *round) ask(i, looks int) {
	n, h := r.b.nodes[i], r.hold
	s := n.currentScripts()
	if s == nil {
		r.look(i, looks)
		return
	}
	a := h.voteAttempt(s.vote)
	if !h.asks(i, a) { // the round has ended
		r.votes.put(i, said{verdict: failed, err: errNoAnswer})
		return
	}
	r.votes.ask(i, a, func(o redisnode.Outcome) verdict {
		h.voted(i, o)
		n.compare(o)
		if o.Err != nil && errors.Is(o.Err, errRestarted) && !o.Err.Unknown {
			// It has forgotten its scripts, and perhaps more than that: it is looked at before it votes.
			n.forget(s)
			r.look(i, looks+1)
			return open
		}
		return verdictOf(o)
	})
}

// look has a node's server looked at, before its vote. A hold that was won meanwhile is given to it instead.
func (r *round) look(i, looks int) {
	n, h := r.b.nodes[i], r.hold
	// Connecting, and perhaps TLS, take longer; and a quorum of nodes that are quicker ends the wait.
	wait := r.limit
	if n.cold() {
		wait = max(wait, min(longestLook, h.ttl/3))
		r.looked.Store(true)
	}
	fail := func(err error) { r.votes.put(i, said{verdict: failed, err: err}) }
	if looks >= maxLooks {
		fail(errRestarted)
	} else if !r.b.start(func() {
		if _, err := n.ready(wait); err != nil {
			fail(err)
		} else if !h.give(i) {
			r.ask(i, looks+1)
		} else {
			fail(errNoAnswer)
		}
	}) {
		fail(redisnode.ErrClosed)
	}
}

// raise begins the second phase with the token of a quorum that has voted: the lowest that could follow on each of
// its nodes, and so above their counters and not below their clocks. Nodes whose votes come meanwhile take part.
func (r *round) raise() {
	r.votes.mu.Lock()
	defer r.votes.mu.Unlock()
	h := r.hold
	h.mu.Lock()
	for i := range r.votes.said {
		if s := &r.votes.said[i]; s.verdict == yes && s.answer.Text == "" {
			h.token = max(h.token, uint64(s.answer.N))
		}
	}
	for i := range r.votes.said {
		if s := &r.votes.said[i]; s.verdict == yes && s.answer.Text != "" {
			h.token = uint64(s.answer.N) // this very hold once more: the same token (R11)
		}
	}
	h.floor = h.token
	h.mu.Unlock()
	r.raises = r.b.newPoll(quorum)
	r.raises.before = r.votes
	for i := range r.votes.said {
		r.second(i, r.votes.said[i].verdict)
	}
}

// second asks a node for the second phase, once it has begun, if the node has voted for us. r.votes.mu is held.
func (r *round) second(i int, vote verdict) {
	if r.raises == nil {
		return
	}
	switch vote {
	case open:
	case yes:
		r.raises.ask(i, r.hold.keepAttempt(r.b.nodes[i].keep, opRaise, r.hold.lasts, 0), verdictOf)
	case no, gone, failed, unasked:
		r.raises.put(i, said{verdict: unasked})
	}
}

// decides ends the first phase: with a quorum, or when nothing more is to be learned soon of who else has one.
func (r *round) decides(_ *poll, c count) bool {
	return c[yes] >= r.b.quorum || c[yes]+c[open] < r.b.quorum && r.top() >= r.b.quorum
}

// top is how many refusals name the same other holder, at most. r.votes.mu is held.
func (r *round) top() (top int) {
	for i := range r.votes.said {
		s := &r.votes.said[i]
		if s.verdict != no || r.ours(s.answer.Text) {
			continue
		}
		same := 1
		for j := range i {
			if w := &r.votes.said[j]; w.verdict == no && w.answer.Text == s.answer.Text {
				same++
			}
		}
		top = max(top, same)
	}
	return top
}

// ours reports that a refusal names a round before of this same Acquire: its vote was late, and is being taken back.
// That is nobody who holds the lock (R17). Behind the owner, a lock's value differs by round, and a refusal has only
// so much of it.
func (r *round) ours(holder string) bool {
	value, _ := r.hold.keys.Value().(string)
	return strings.HasPrefix(holder, value[:min(strings.Index(value, roundMark)+len(roundMark), holderLength)])
}

// refused says what came of a round in which no quorum has agreed.
func (r *round) refused() result {
	r.votes.mu.Lock()
	defer r.votes.mu.Unlock()
	c, top, broken := r.votes.count(), r.top(), 0
	if r.raises != nil {
		r.raises.mu.Lock()
		broken = r.raises.count()[failed]
		r.raises.mu.Unlock()
	}
	switch {
	case top >= r.b.quorum:
		return heldByOne
	case c[yes]+c[no] < r.b.quorum, r.raises != nil && broken+c[failed] > len(r.b.nodes)-r.b.quorum:
		return outOfReach
	case c[no] > 0 && top+c[failed]+c[open] >= r.b.quorum:
		return perhaps
	}
	return split
}

// refusal says when enough nodes for a quorum will be free unless holders renew. Nodes that have not answered yet may
// be so already: who keeps a lock for a while more has told a quorum, and not all at once. It is the earliest that is
// known: no time at all would be asked again after much longer. What the rounds may have left is that of leftover, if
// there is one.
func (r *round) refusal(leftover driver.Hold) *driver.Refusal {
	r.votes.mu.Lock()
	defer r.votes.mu.Unlock()
	free, unknown := 0, 0
	var left []time.Duration
	for i := range r.votes.said {
		switch s := &r.votes.said[i]; {
		case s.verdict == open:
			unknown++
		case s.verdict == yes, s.verdict == no && r.ours(s.answer.Text):
			free++
		case s.verdict == no && s.answer.N >= 0:
			left = append(left, redisnode.LeftOf(s.answer.N))
		}
	}
	slices.Sort(left)
	e := &driver.Refusal{}
	if leftover != nil {
		e.Undo = leftover.Undo
	}
	if needed := r.b.quorum - free; needed > 0 {
		if n := max(1, needed-unknown); n <= len(left) {
			e.Remaining = max(left[n-1], time.Millisecond)
		}
	}
	return e
}

// stalled reports that there could be a quorum, were it not for nodes that are just too slow.
func (r *round) stalled() bool {
	down := 0
	for _, err := range r.votes.causes() {
		if err != nil && inTime(err) {
			down++
		}
	}
	return down <= len(r.b.nodes)-r.b.quorum
}

// unavailable is the error of a round that too few nodes answered.
func (r *round) unavailable(why string) error {
	causes := r.votes.causes()
	r.votes.mu.Lock()
	raises := r.raises
	r.votes.mu.Unlock()
	if raises != nil {
		for i, err := range raises.causes() {
			if causes[i] == nil {
				causes[i] = err
			}
		}
	}
	return r.b.quorumError("acquire", why, causes)
}
