package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/clock"
	"github.com/golockers/locker/internal/redisnode"
)

// How a hold ends. Whatever it may have on a node is removed there, at once and again until the node has answered: a
// vote that is still under way finds its value void, or is removed when it has come.

// The pauses before a release that was not answered is sent again, and how many holds have one: the others end with
// their TTL.
const (
	firstRelease = 200 * time.Millisecond
	lastRelease  = 2 * time.Second
	maxOwed      = 4096 // each is a goroutine
)

// Release implements [driver.Hold]: it removes the lock from all nodes that may have it, or has them keep it, and
// returns when a quorum has confirmed that. The others go on in the background.
func (h *hold) Release(ctx context.Context, keep time.Duration) error {
	ctx, _ = clock.Parts(ctx) // each node's answer has a limit of its own
	h.mu.Lock()
	switch was := h.stage; {
	case was == released:
		h.mu.Unlock()
		return fmt.Errorf("redlock: it was released before: %w", driver.ErrLost)
	case was == abandoned:
		h.mu.Unlock()
		if err := h.abandon(ctx); err != nil {
			return err
		}
		return fmt.Errorf("redlock: it was undone: %w", driver.ErrLost)
	case keep == 0, was == releasing && h.keep.IsZero():
		h.keep = time.Time{}
	default:
		h.keep = time.Now().Add(keep)
	}
	p, keeps := h.removeAll(releasing, freed), !h.keep.IsZero()
	h.mu.Unlock()
	c := p.wait(ctx, h.patience())
	if !settled(p, c, keeps) {
		return p.failure(ctx, "release")
	}
	return h.confirmed(c)
}

// confirmed ends the hold with what a quorum of nodes has said to its release.
func (h *hold) confirmed(c count) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch n := len(h.places); {
	case c[gone]+c[no] > n-h.b.quorum:
		return fmt.Errorf("redlock: %d of %d nodes did not have it any more: %w", c[gone]+c[no], n, driver.ErrLost)
	case h.stage != releasing:
	case h.keep.IsZero():
		h.stage = released
	default:
		h.stage = kept
	}
	return nil
}

// freed decides a release: a quorum has confirmed it, or it is known that none had the lock.
func freed(p *poll, c count) bool {
	return c[yes] >= p.b.quorum || c[gone]+c[no] > len(p.said)-p.b.quorum
}

// settled reports whether it is known what came of a release. What a quorum does not have any more, others can have, which
// is what a release is for; but a lock is only kept if a quorum keeps it.
func settled(p *poll, c count, keeps bool) bool {
	return c[yes]+c[gone]+c[no] >= p.b.quorum && (freed(p, c) || c[open] == 0 && !keeps)
}

// Undo implements [driver.Hold], for all rounds of the attempt. What may be late finds its value void on each node
// that has answered.
func (h *hold) Undo(ctx context.Context) error {
	err := h.undo.Undo(ctx, h.abandon)
	for _, before := range h.before { // whose own before are among these
		if err != nil && !errors.Is(err, driver.ErrLost) {
			break
		}
		err = cmp.Or(before.undo.Undo(ctx, before.abandon), err)
	}
	return err
}

// abandon removes the lock from all nodes that may have it, and returns nil when each has answered.
func (h *hold) abandon(ctx context.Context) error {
	ctx, _ = clock.Parts(ctx)
	h.mu.Lock()
	h.keep = time.Time{}
	p := h.removeAll(abandoned, everybody)
	h.mu.Unlock()
	if c := p.wait(ctx, h.patience()); c[open]+c[failed] > 0 {
		return p.failure(ctx, "release")
	}
	return nil
}

// giveUp is the end of a round that was not won, or is not to be believed: nothing of it may stay.
func (h *hold) giveUp() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stage, h.keep = abandoned, time.Time{}
	for i := range h.places {
		h.doubted = h.doubted || h.places[i].vote != nil || h.places[i].left == late
	}
	for i := range h.places {
		h.remove(i, nil)
	}
}

// uncertain reports whether it was not known what a node had when the hold was given up, and still is not.
func (h *hold) uncertain() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.doubted && slices.ContainsFunc(h.places, func(p place) bool {
		return p.vote != nil && !p.void || p.left != nothing && p.left != removed
	})
}

// removeAll ends the hold: nothing is repaired from here on. h.mu is held.
func (h *hold) removeAll(as stage, decides func(*poll, count) bool) *poll {
	h.stage = as
	p := h.b.newPoll(decides)
	for i := range h.places {
		h.remove(i, p)
	}
	return p
}

// remove has a node remove or keep what it may have, and its answer counted by p. A vote that was not sent never is:
// what waits behind a hung node would grow with every lock. h.mu is held.
func (h *hold) remove(i int, p *poll) {
	n, k, s := h.b.nodes[i], &h.keys, &h.places[i]
	if h.refused != nil {
		h.refused.Stop()
	}
	if s.vote != nil && n.withdraw(s.vote) {
		s.vote = nil
	}
	put := func(v verdict) {
		if p != nil {
			p.put(i, said{verdict: v})
		}
	}
	keep := time.Until(h.keep)
	switch {
	case s.left == removed:
		s.err = nil
		put(yes)
		return
	case s.left == nothing && (s.vote == nil || s.void):
		s.err = nil
		put(gone)
		return
	case p == nil && s.removing > 0: // that one sees to it, or owe
		return
	}
	if p != nil && h.stage == releasing && h.awaits(i, p) {
		return
	}
	var void time.Duration
	if s.left == late || s.vote != nil {
		void = max(h.lasts, redisnode.VoidTime)
	}
	a := n.Release(k, void)
	if keep > 0 { // also what a vote may just have left: its yes counts as that of a node that keeps the lock
		a = n.Retain(k, keep, void, &h.undo)
	}
	a.Op = opRelease
	if s.left != nothing {
		s.left = late // before it is sent: the next one, and what may be under way, finds it void
	}
	s.removing++
	if p == nil {
		p = h.b.newPoll(everybody)
	}
	p.ask(i, a, func(o redisnode.Outcome) verdict { return h.removed(i, o, keep > 0, void > 0) })
}

// awaits lets the release p wait for the vote of a node that was asked a moment ago, and reports whether it does: to
// remove what a vote has left costs the server less than half of what it costs to make the vote void. h.mu is held.
func (h *hold) awaits(i int, p *poll) bool {
	s := &h.places[i]
	if s.vote == nil || s.left != nothing || s.release != nil {
		return false
	}
	if sent, _ := h.b.nodes[i].Sent(s.vote, 0); time.Since(sent) > oneMoment {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.said[i].attempt, s.release = s.vote, p
	return true
}

// removed notes what a release has left, and what it says of the lock.
func (h *hold) removed(i int, o redisnode.Outcome, keeps, voids bool) verdict {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &h.places[i]
	s.removing--
	s.again = s.again || o.Copies > 1 || o.Err != nil && o.Err.Unknown
	s.err = nil
	if o.Err != nil {
		s.err = o.Err
		h.owe()
		return failed
	}
	s.void = s.void || voids
	if release := s.release; release != nil && s.void { // it need not wait for the vote any more
		s.release = nil
		defer h.remove(i, release)
	}
	switch done := o.Answer.Code == redisnode.Done; {
	case keeps && done:
		s.left = remains
		if !time.Now().Before(h.keep) { // it is to be removed by now
			s.left = late
			h.remove(i, nil)
		}
	case done, s.again && !(keeps && time.Now().Before(h.keep)): // else what is not there was lost before
		s.left = removed
	default:
		s.left = nothing
		return gone
	}
	return yes
}

// owe has what was not removed asked for again, for as long as the lock could last: a minority that keeps the lock
// would cost the next holders their spare nodes, and nobody else knows of it. A node that stays down is given up
// then, or it would be asked for good. h.mu is held.
func (h *hold) owe() {
	if h.owedUntil.IsZero() {
		h.owedUntil = time.Now().Add(h.lasts + driver.Drift(h.lasts) + requestTimeout)
	}
	if h.owing || !time.Now().Before(h.owedUntil) {
		return
	}
	h.owing = h.b.owed.Add(1) <= maxOwed && h.b.start(func() {
		defer h.b.owed.Add(-1)
		for delay := firstRelease; h.asksAgain(delay); delay = min(2*delay, lastRelease) {
		}
	})
	if !h.owing {
		h.b.owed.Add(-1)
	}
}

// asksAgain asks, after a pause, those nodes again that did not answer. It returns whether more is to come.
func (h *hold) asksAgain(pause time.Duration) (more bool) {
	err := clock.Sleep(h.b.ctx, clock.Jitter(pause))
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.places {
		s := &h.places[i]
		more = more || s.err != nil || s.removing > 0
		if s.err != nil && err == nil {
			h.remove(i, nil)
		}
	}
	h.owing = more && err == nil && time.Now().Before(h.owedUntil)
	return h.owing
}
