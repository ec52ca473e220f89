package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/clock"
	"github.com/golockers/locker/internal/probe"
	"github.com/golockers/locker/internal/redisconn"
)

// hold is what a round was for: the lock, if it was won, and in any case what the round
// may have left on the nodes.
type hold struct {
	b      *Backend
	claim  claim
	before *hold // of an earlier round of the same Acquire: what that may have left

	mu    sync.Mutex
	stage stage
	token uint64    // with fencing
	floor uint64    // what counters are to stand at: the token, or what RaiseToken has made of it
	until time.Time // of the lease; renewals move it on
	undo  driver.Undo
	keep  time.Time // a node that is given the lock again keeps it up to here (MinHold)
	sites []site

	// answers are read by the round, and by the ending. Between the two, votes may come in that
	// were too late for the round; nil once there are none to come.
	answers *answers
	end     *ending // from when it is given up
}

// stage is the life of a hold:
//
//	wanted -> held -> releasing -> released
//	     \------\--------\-> abandoned
type stage uint8

const (
	wanted    stage = iota // a round asks for it
	held                   // won
	releasing              // given back by its holder
	released               // and confirmed
	abandoned              // not won, or undone: nothing of it may stay
)

// site is what a hold may have left on one node. There are as many as held leases
// times nodes.
type site struct {
	left      leftover
	asking    bool // a vote is under way, which may put the lock there
	releasing bool // a release is under way
	repairing bool // a repair is under way: one at a time, so that its end is known
	again     bool // a release of before may have been carried out: to find nothing is no sign of a loss
	vote      redisconn.Started
	err       error // why the last release was not answered
}

// leftover is what may be of a hold on one node:
//
//	none -> there -> removed
//	   \-> late ---/
type leftover uint8

const (
	none    leftover = iota // nothing, for certain
	there                   // the lock may be there
	late                    // and a request may still be under way: a release has to make it void
	removed                 // nothing: it was released there
)

// voted notes what a vote has left.
func (s *site) voted(a answer) {
	s.asking, s.vote = false, redisconn.Started{}
	switch {
	case a.repeated, a.err != nil && !certain(a.err):
		s.left = late // whatever the answer to the last copy is
	case a.said.granted:
		s.left = max(s.left, there) // late: a repair is under way
	}
}

var (
	_ driver.Hold        = (*hold)(nil)
	_ driver.TokenRaiser = (*hold)(nil)
)

// As implements [driver.Aser].
func (h *hold) As(target any) bool {
	remains, ok := target.(*probe.Remains)
	if ok {
		*remains = func(ctx context.Context) error {
			ask := func(ctx context.Context, n *node) (int64, error) {
				return n.conn.Client().Del(ctx, h.claim.keys.Quorum().(string), h.claim.keys.Wait().(string)).Result()
			}
			_, causes, _ := fromAll(ctx, h.b, "remove", h.b.patience(0), ask)
			return errors.Join(causes...)
		}
	}
	return ok
}

func newHold(b *Backend, c claim) *hold {
	h := &hold{b: b, claim: c, sites: make([]site, len(b.nodes)), answers: newAnswers(len(b.nodes))}
	h.claim.undo = &h.undo
	return h
}

// win makes the hold the winner's of round r.
func (h *hold) win(r *round, minHold time.Duration) driver.Validity {
	v := r.validity()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stage, h.token, h.floor, h.until = held, r.token, r.token, v.Until()
	r.won.Store(true)
	if minHold > 0 {
		h.keep = time.Now().Add(minHold)
	}
	r.answers.take(nil, 0, h.take)
	for i := range r.nodes {
		if r.nodes[i].vote == no {
			h.complete(i)
		}
	}
	return v
}

// Nodes that have refused a lock which was won are asked again after firstLook, then after twice as long, and so on
// up to lastLook.
const (
	firstLook = 20 * time.Millisecond
	lastLook  = time.Second
)

// complete gives the lock to a node that has refused it: what its holder before has released may be on its way to that
// node. Until it has the lock, or until the first renewal, no node of a bare quorum can be missed.
func (h *hold) complete(i int) {
	h.b.start(func() {
		for pause := firstLook; pause < min(lastLook, h.claim.ttl/3) && clock.Sleep(h.b.ctx, pause) == nil; pause *= 2 {
			h.mu.Lock()
			is := h.stage == held
			h.mu.Unlock()
			if !is || h.repairOne(i) {
				return
			}
		}
	})
}

// lookedAt is told when a server was looked at for a round's vote. If the round was won meanwhile without it,
// nobody asks for that vote any more, and the node is given the lock instead.
func (h *hold) lookedAt(round *answers) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stage == held {
		round.take(nil, 0, h.take)
	}
}

// Renew implements [driver.Hold] (step 5): it holds if a quorum had the lock,
// and has it for another TTL. Nodes that have lost it are given it again
// afterwards, and do not count: another may have had the lock in between (R12).
func (h *hold) Renew(ctx context.Context) (driver.Validity, error) {
	v := driver.Validity{Since: time.Now(), TTL: h.claim.ttl}
	h.mu.Lock()
	h.hear()
	token, floor := h.token, h.floor
	h.mu.Unlock()
	p := h.ask(func(n *node, answered func(reply)) {
		n.renew(&h.claim, token, floor, h.patience(), answered)
	})
	if err := p.wait(ctx, "renew"); err != nil {
		return driver.Validity{}, err
	}
	h.mu.Lock()
	if until := v.Until(); until.After(h.until) {
		h.until = until
	}
	h.mu.Unlock()
	if p.open > 0 || len(p.gone) > 0 {
		h.b.start(func() { h.repair(p) })
	}
	return v, nil
}

// hear takes the votes that came after the round: 10,000 locks that are held do not keep
// them. h.mu is held.
func (h *hold) hear() {
	if h.answers == nil || h.stage != held {
		return
	}
	h.answers.take(nil, 0, h.take)
	if !slices.ContainsFunc(h.sites, func(s site) bool { return s.asking }) {
		h.answers = nil
	}
}

// take notes what an answer says that comes after the round. h.mu is held.
func (h *hold) take(a answer) {
	switch s := &h.sites[a.node]; a.to {
	case toLook:
		if a.err == nil && h.stage == held {
			h.b.start(func() { _ = h.repairOne(a.node) }) // in place of the vote
		}
	case toVote:
		s.voted(a)
		if a.err == nil && a.said.refuses() && h.stage == held {
			h.complete(a.node)
		}
		if h.end != nil {
			h.release(a.node)
		}
	case toRelease:
		s.freed(a.reply)
	}
}

// patience is how long each node is given for what is no vote.
func (h *hold) patience() time.Duration { return h.b.patience(h.claim.ttl) }

// repair gives the lock again to nodes that do not have it, while a quorum of others
// has just renewed it. It is one goroutine, which first hears the slow ones.
func (h *hold) repair(p *poll) {
	p.answers.take(nil, p.open, p.take)
	for _, i := range p.gone {
		h.b.start(func() { _ = h.repairOne(i) })
	}
}

// repairOne gives the lock to one node while the lease is valid, unless the restart
// guard keeps that out: what it voted for before its restart may still count for another,
// and would then count twice. So a repair needs scripts, as a vote does. It reports whether the node has the lock.
func (h *hold) repairOne(i int) (has bool) {
	n, s := h.b.nodes[i], &h.sites[i]
	scripts, err := n.ready(h.patience())
	if err != nil {
		return false
	}
	h.mu.Lock()
	if h.stage != held || !time.Now().Before(h.until) || s.repairing {
		h.mu.Unlock()
		return false
	}
	was, token, floor, lasts := s.left, h.token, h.floor, max(h.claim.ttl, time.Until(h.keep))
	if s.asking {
		was = late // that vote may still arrive, and is not over when the repair is
	}
	s.left, s.repairing = late, true
	h.undo.Sends(lasts) // before anybody ends the hold
	defer h.undo.Sent(false)
	h.mu.Unlock()
	got := await(func(answered func(reply)) {
		n.repair(scripts, &h.claim, token, floor, lasts, h.patience(), answered)
	})
	if errors.Is(got.err, errRestarted) {
		n.forget(scripts)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	s.repairing = false
	if s.left == late && !got.repeated && (got.err == nil || certain(got.err)) {
		s.left = max(was, there)
	}
	return got.err == nil && got.state == redisconn.Mine
}

// maxToken is up to where a Lua number counts exactly, less one for the next.
const maxToken = 1<<53 - 2

// RaiseToken implements [driver.TokenRaiser], with fencing: a quorum's counters
// are raised, and renewals keep them there. The lease's own token stays as it was, and decides which
// nodes admit the lease: what one raises it to is no right against a later holder.
func (h *hold) RaiseToken(ctx context.Context, token uint64) error {
	switch {
	case !h.claim.fenced:
		return fmt.Errorf("redlock: tokens are off, see Options.Fencing: %w", errors.ErrUnsupported)
	case token > maxToken:
		return invalid("the token %d is above %d, up to where Redis counts exactly", token, uint64(maxToken))
	}
	h.mu.Lock()
	own := h.token
	token = max(token, h.floor)
	h.mu.Unlock()
	err := h.ask(func(n *node, answered func(reply)) {
		n.raise(&h.claim, own, token, h.patience(), answered)
	}).wait(ctx, "raise the token")
	if err == nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.floor = max(h.floor, token)
	}
	return err
}

// poll is one question about a hold that all nodes are asked at the same time.
type poll struct {
	b          *Backend
	answers    *answers // one goroutine at a time reads them
	open       int      // how many are still to come
	mine, lost int
	gone       []int // the nodes that have no lock of the name
	causes     []error
}

// ask asks all nodes.
func (h *hold) ask(question func(n *node, answered func(reply))) *poll {
	n := len(h.b.nodes)
	p := &poll{b: h.b, answers: newAnswers(n), open: n, causes: h.b.unanswered()}
	for i, n := range h.b.nodes {
		question(n, p.answers.from(i, toRenew))
	}
	return p
}

// wait returns nil when a quorum has said that it has the lock. Its error matches
// ErrLost once no quorum can have it, and says why where it is not known.
func (p *poll) wait(ctx context.Context, op string) error {
	for n, want := len(p.causes), p.b.quorum; ; want = 1 {
		if !p.answers.take(ctx.Done(), want, p.take) {
			return fmt.Errorf("%w: %w", ctx.Err(), p.b.quorumError(op, "", p.causes))
		}
		switch {
		case p.mine >= p.b.quorum:
			return nil
		case p.lost > n-p.b.quorum:
			return fmt.Errorf("redlock: %d of %d nodes do not have it any more: %w", p.lost, n, driver.ErrLost)
		case p.b.isClosed():
			return driver.ErrClosed
		case p.open == 0:
			return p.b.quorumError(op, "", p.causes)
		}
	}
}

func (p *poll) take(a answer) {
	p.open--
	p.causes[a.node] = a.err
	switch {
	case a.err != nil:
	case a.state == redisconn.Mine:
		p.mine++
	default:
		p.lost++
		if a.state == redisconn.Gone {
			p.gone = append(p.gone, a.node)
		}
	}
}
