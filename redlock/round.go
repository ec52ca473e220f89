package redlock

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/redisconn"
)

// round is one try for a lock: all nodes are asked at the same time, and their votes
// are counted. All of it is done by the caller of Acquire, who reads their answers. What
// comes later is for the hold. A node that could not vote in time gets the lock, and with
// fencing the token, as soon as its server was looked at, or else by the first renewal; one that has refused it, soon.
type round struct {
	b       *Backend
	hold    *hold         // what is voted on
	since   time.Time     // before the first request was sent (R1)
	limit   time.Duration // for each node's answer
	healthy bool          // a quorum had answered when last asked
	nodes   []nodeVote    // what each node has said
	answers *answers      // the hold's
	won     atomic.Bool   // answers that come now are late
	args    []any         // of vote.lua
	token   uint64        // with fencing: of the lock; 0: no quorum has voted for us yet
}

// nodeVote is what one node has said in a round.
type nodeVote struct {
	vote, raise step // the first phase and, with fencing, the second
	looks       int  // how often its server was looked at for it
	scripts     *scripts
	said        vote
	err         error
}

// step is how one question to one node stands.
type step uint8

const (
	unasked step = iota
	pending
	yes
	no
	failed // no answer, in time or at all
)

// longStall is how much longer the nodes are given in a second try: time for a
// lost packet to be sent again.
const longStall = 250 * time.Millisecond

// newRound makes a round. A patient one is a second try, after a stall: with more
// time for each node.
func (b *Backend) newRound(c claim, patient bool) *round {
	r := &round{
		b: b, hold: newHold(b, c), limit: b.nodeTimeout(c.ttl),
		nodes: make([]nodeVote, len(b.nodes)),
	}
	r.answers = r.hold.answers
	if patient {
		r.limit += min(3*r.limit, longStall)
	}
	return r
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

// run asks all nodes at the same time, and counts their answers until it is known what
// comes of it, until no answer can come any more, or until ctx is done.
func (r *round) run(ctx context.Context) result {
	asked := r.choose()
	r.args = r.hold.claim.voteArgs()
	r.since = time.Now()
	for _, i := range asked {
		r.ask(i)
	}
	agreed := r.await(ctx, r.votes)
	if agreed && r.hold.claim.fenced {
		r.chooseToken()
		agreed = r.await(ctx, r.raises)
	}
	if !agreed {
		return r.refused()
	}
	if !time.Now().Before(r.validity().Until()) { // TTL − elapsed − drift
		return tooLate
	}
	return won
}

// validity is what a quorum that has voted has promised. It takes off the default drift.
func (r *round) validity() driver.Validity {
	return driver.Validity{Since: r.since, TTL: r.hold.claim.ttl}
}

// await takes answers until count says that a quorum agrees, or that none will. Less than
// a quorum of answers decides nothing.
func (r *round) await(ctx context.Context, count func() (agreed, open bool)) (agreed bool) {
	for want := r.b.quorum; ; want = 1 {
		if !r.answers.take(ctx.Done(), want, r.take) {
			return false
		}
		if agreed, open := count(); agreed || !open {
			return agreed
		}
	}
}

// take notes an answer, and asks the node the next question if there is one.
func (r *round) take(a answer) {
	i, v := a.node, &r.nodes[a.node]
	switch {
	case a.to == toRaise && a.err != nil:
		v.raise, v.err = failed, a.err
	case a.to == toRaise && a.state == redisconn.Mine:
		v.raise = yes
	case a.to == toRaise:
		v.raise = no
	case a.to == toLook && a.err == nil:
		r.ask(i)
	case a.to == toLook:
		v.vote, v.err = failed, a.err
	default:
		r.hold.sites[i].voted(a)
		r.voted(i, a)
	}
}

// choose returns whom to ask: not those that have not answered for a while,
// unless there is no quorum without them.
func (r *round) choose() (asked []int) {
	now := time.Now()
	asked = make([]int, 0, len(r.nodes))
	var skipped []int
	for i, n := range r.b.nodes {
		if n.worthAsking(now) {
			asked = append(asked, i)
		} else {
			skipped = append(skipped, i)
		}
	}
	r.healthy = len(asked) >= r.b.quorum
	if !r.healthy {
		return append(asked, skipped...)
	}
	for _, i := range skipped {
		r.nodes[i] = nodeVote{vote: failed, err: r.b.nodes[i].why()}
	}
	return asked
}

// ask asks a node for its vote, or first looks at its server where that is needed.
func (r *round) ask(i int) {
	n, v := r.b.nodes[i], &r.nodes[i]
	v.vote, v.scripts = pending, n.currentScripts()
	if v.scripts == nil {
		r.look(i)
		return
	}
	site := &r.hold.sites[i]
	site.asking = true
	site.vote = n.vote(v.scripts, &r.hold.claim, r.args, r.limit, func(said vote, got reply) {
		r.answers.put(answer{i, toVote, said, got})
		if got.err == nil && said.refuses() && r.won.Load() { // nobody reads it before the first renewal
			r.hold.complete(i)
		}
	})
}

// maxLooks bounds how often a node is looked at for one vote.
const maxLooks = 3

// look has a node's server looked at, before its vote.
func (r *round) look(i int) {
	n, v := r.b.nodes[i], &r.nodes[i]
	// Connecting, and perhaps TLS, take longer; and a quorum of nodes that are
	// quicker ends the wait.
	wait := r.limit
	if n.cold() {
		wait = max(wait, min(time.Second, r.hold.claim.ttl/3))
	}
	looked := r.answers.from(i, toLook)
	if v.looks++; v.looks > maxLooks {
		looked(reply{err: errRestarted})
	} else if !r.b.start(func() {
		_, err := n.ready(wait)
		looked(reply{err: err})
		r.hold.lookedAt(r.answers)
	}) {
		looked(reply{err: redisconn.ErrClosed})
	}
}

// voted counts a vote. A server that has forgotten its scripts, and perhaps more than
// that, is looked at before it votes.
func (r *round) voted(i int, a answer) {
	n, v := r.b.nodes[i], &r.nodes[i]
	switch {
	case errors.Is(a.err, errRestarted):
		n.forget(v.scripts)
		r.ask(i)
	case a.err != nil:
		v.vote, v.err = failed, a.err
	case a.said.void:
		v.vote, v.err = failed, errTakenBack
	case a.said.foreign:
		v.vote, v.err = failed, &foreignError{n.addr, redisconn.LockKey(r.hold.claim.keys.Name)}
	case !a.said.granted:
		v.vote, v.said = no, a.said
	default:
		v.vote, v.said = yes, a.said
		if r.token != 0 {
			r.raise(i)
		}
	}
}

// raise asks a node that has voted for us for the second phase.
func (r *round) raise(i int) {
	r.nodes[i].raise = pending
	r.b.nodes[i].raise(&r.hold.claim, r.token, r.token, r.limit, r.answers.from(i, toRaise))
}

// chooseToken begins the second phase with the token of a quorum that has voted: the lowest
// that could follow on each of its nodes, and so above their counters and not below their
// clocks.
func (r *round) chooseToken() {
	var before uint64
	for i := range r.nodes {
		v := &r.nodes[i]
		if v.vote != yes {
			continue
		}
		r.token = max(r.token, v.said.token)
		if v.said.raised {
			before = max(before, v.said.token)
		}
	}
	if before != 0 {
		r.token = before // this very claim once more: the same token (R11)
	}
	for i := range r.nodes {
		if r.nodes[i].vote == yes {
			r.raise(i)
		}
	}
}

// tally counts a round's votes.
type tally struct {
	yes, no, failed, pending int
	top                      int // how many refusals name the same other holder, at most
}

func (r *round) tally() (t tally) {
	for i := range r.nodes {
		switch v := &r.nodes[i]; v.vote {
		case yes:
			t.yes++
		case pending:
			t.pending++
		case failed:
			t.failed++
		case no:
			t.no++
			if r.ours(v.said.holder) {
				break
			}
			same := 1
			for j := range i {
				if w := &r.nodes[j]; w.vote == no && w.said.holder == v.said.holder {
					same++
				}
			}
			t.top = max(t.top, same)
		}
	}
	return t
}

// ours reports that a refusal names a round before of this same Acquire: its
// vote was late, and is being taken back. That is nobody who holds the lock (R17).
// Behind the owner, a lock's value differs by round, and a refusal has
// only so much of it.
func (r *round) ours(holder string) bool {
	value, _ := r.hold.claim.keys.Value().(string)
	return strings.HasPrefix(holder, value[:min(strings.Index(value, roundMark)+len(roundMark), holderLength)])
}

// votes counts the first phase. It is over without a quorum when nothing more is to be
// learned soon of who else has one.
func (r *round) votes() (agreed, open bool) {
	t := r.tally()
	hopeless := t.yes+t.pending < r.b.quorum && (t.top >= r.b.quorum || t.pending == 0)
	return t.yes >= r.b.quorum, !hopeless
}

// raises counts the second phase.
func (r *round) raises() (agreed, open bool) {
	ok, pend := 0, 0
	for i := range r.nodes {
		switch v := &r.nodes[i]; {
		case v.raise == yes:
			ok++
		case v.raise == pending, v.vote == pending:
			pend++
		}
	}
	return ok >= r.b.quorum, ok+pend >= r.b.quorum
}

// refused says what came of a round in which no quorum has agreed.
func (r *round) refused() result {
	t, broken := r.tally(), 0
	for i := range r.nodes {
		if v := &r.nodes[i]; v.vote == failed || v.raise == failed {
			broken++
		}
	}
	switch {
	case t.top >= r.b.quorum:
		return heldByOne
	case t.yes+t.no < r.b.quorum, r.token != 0 && broken > len(r.nodes)-r.b.quorum:
		return outOfReach
	case t.no > 0 && t.top+t.failed+t.pending >= r.b.quorum:
		return perhaps
	}
	return split
}

// refusal says when enough nodes for a quorum will be free unless holders renew. What the rounds may have left
// is that of leftover, if there is one.
func (r *round) refusal(leftover driver.Hold) *driver.Refusal {
	free := 0
	var left []time.Duration
	for i := range r.nodes {
		switch v := &r.nodes[i]; {
		case v.vote == yes, v.vote == no && r.ours(v.said.holder):
			free++
		case v.vote == no && v.said.left >= 0:
			left = append(left, v.said.left)
		}
	}
	slices.Sort(left)
	e := &driver.Refusal{}
	if leftover != nil {
		e.Undo = leftover.Undo
	}
	if n := r.b.quorum - free; n > 0 && n <= len(left) {
		e.Remaining = max(left[n-1], time.Millisecond)
	}
	return e
}

// stalled reports that there could be a quorum, were it not for nodes that are
// just too slow.
func (r *round) stalled() bool {
	down := 0
	for i := range r.nodes {
		if v := &r.nodes[i]; v.vote == failed && inTime(v.err) {
			down++
		}
	}
	return down <= len(r.nodes)-r.b.quorum
}

// unavailable is the error of a round that too few nodes answered.
func (r *round) unavailable(why string) error {
	causes := make([]error, len(r.nodes))
	for i := range r.nodes {
		switch v := &r.nodes[i]; {
		case v.vote == pending:
			causes[i] = errNoAnswer
		case v.vote == failed, v.raise == failed:
			causes[i] = v.err
		}
	}
	return r.b.quorumError("acquire", why, causes)
}
