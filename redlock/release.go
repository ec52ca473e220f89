package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/clock"
	"github.com/golockers/locker/internal/redisconn"
)

// voidTime is how late a request may arrive and still be refused.
const voidTime = time.Minute

// The pauses before a release that was not answered is sent again, and how many holds
// have one: the others end with their TTL.
const (
	firstRelease = 200 * time.Millisecond
	lastRelease  = 2 * time.Second
	maxOwed      = 4096 // each is a goroutine
)

// ending is how a hold ends: one goroutine has the lock removed from all nodes that may
// have it (run). A quorum may confirm that long before the last node has answered. Where
// a node does not, it is asked again for as long as the lock could last there: a minority
// that keeps the lock would cost the next holders their spare nodes, and nobody else
// knows of it.
type ending struct {
	try    *try          // the one under way, or to begin at once; nil between two
	again  chan struct{} // ends the pause between two; capacity 1
	unsent bool          // its goroutine has sent nothing yet: Close waits for that
}

// try is one release on all nodes that may have the lock.
type try struct {
	over chan struct{} // closed when it is known what came of it
	err  error
}

func newTry() *try { return &try{over: make(chan struct{})} }

func (t *try) done(err error) {
	t.err = err
	close(t.over)
}

// Release implements [driver.Hold]: it removes the lock from all nodes that may
// have it, and returns when a quorum has confirmed that. The others go on in
// the background.
func (h *hold) Release(ctx context.Context) error { return h.free(ctx, releasing) }

// Undo implements [driver.Hold], for all rounds of the attempt. What may be late finds its value void on each
// node that has answered.
func (h *hold) Undo(ctx context.Context) error {
	err := h.undo.Undo(ctx, func(ctx context.Context) error { return h.free(ctx, abandoned) })
	if h.before == nil || err != nil && !errors.Is(err, driver.ErrLost) {
		return err
	}
	if before := h.before.Undo(ctx); before != nil {
		return before
	}
	return err
}

func (h *hold) free(ctx context.Context, as stage) error {
	ctx, _ = clock.Parts(ctx) // each node's answer has a limit of its own
	h.mu.Lock()
	switch {
	case as == abandoned, h.stage == held:
		h.stage = as // from here on nothing is repaired
	case h.stage == released:
		h.mu.Unlock()
		return fmt.Errorf("redlock: it was released before: %w", driver.ErrLost)
	}
	t := h.try()
	h.mu.Unlock()
	select {
	case <-t.over:
		return t.err
	case <-ctx.Done():
		h.mu.Lock()
		defer h.mu.Unlock()
		return fmt.Errorf("%w: %w", ctx.Err(), h.unreleased())
	}
}

// giveUp is the end of a round that was not won: nothing of it may stay. It returns what
// the engine is told: something to release, if it is not known what a node may have, from this round or from one
// before.
func (h *hold) giveUp() (left driver.Grant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stage = abandoned
	some, unknown := false, h.before != nil
	for _, s := range h.sites {
		some = some || s.asking || s.left != none
		unknown = unknown || s.asking || s.left == late
	}
	if some {
		h.try()
	}
	if unknown {
		left.Hold = h
	}
	return left
}

// try has all nodes released that may have the lock: by the try under way, or by the
// next. h.mu is held.
func (h *hold) try() *try {
	if h.end != nil {
		if h.end.try == nil {
			h.end.try = newTry()
			signal(h.end.again)
		}
		return h.end.try
	}
	t := newTry()
	h.end = &ending{try: t, again: make(chan struct{}, 1), unsent: true}
	h.b.unsent.Add(1)
	if !h.b.start(h.run) {
		h.sent()
		h.end = nil
		t.done(driver.ErrClosed)
	}
	return t
}

// sent notes that the first releases of the ending are sent, or never will be. h.mu is held.
func (h *hold) sent() {
	if h.end.unsent {
		h.end.unsent = false
		h.b.unsent.Add(-1)
	}
}

// run is the goroutine of an ending: tries, with pauses between them, until all nodes have answered or
// none can have the lock any more.
func (h *hold) run() {
	owed := false
	for delay := firstRelease; ; delay = min(2*delay, lastRelease) {
		settled := h.undo.Undo(h.b.ctx, h.releaseAll) == nil
		if !settled && !owed {
			owed = true
			defer h.b.owed.Add(-1)
			settled = h.b.owed.Add(1) > maxOwed
		}
		h.mu.Lock()
		h.sent()
		if h.end.try == nil && (settled || h.b.isClosed()) {
			h.end = nil
			h.mu.Unlock()
			return
		}
		again := h.end.again
		h.mu.Unlock()
		timer := time.NewTimer(clock.Jitter(delay))
		select {
		case <-again:
		case <-timer.C:
		case <-h.b.ctx.Done():
		}
		timer.Stop()
	}
}

// releaseAll is one try. It returns when each node has answered, or has had the time to,
// and nil if all have. Nodes whose votes are still to come are released when they
// have, if they need to be.
func (h *hold) releaseAll(context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.answers == nil {
		h.answers = newAnswers(len(h.sites))
	}
	for i := range h.sites {
		h.release(i)
	}
	h.sent()
	for want := h.b.quorum; ; want = 1 {
		open := h.decide()
		if open == 0 {
			if slices.ContainsFunc(h.sites, func(s site) bool { return s.err != nil }) {
				return h.unreleased()
			}
			return nil
		}
		if h.end.try == nil && !slices.ContainsFunc(h.sites, func(s site) bool { return s.asking }) {
			want = open // nobody waits, and there is nothing to do before that
		}
		h.mu.Unlock()
		h.answers.take(nil, min(want, open), func(a answer) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.take(a)
		})
		h.mu.Lock()
	}
}

// release asks a node to remove what it may have, unless its vote is still to come. One that
// was not sent never is: what waits behind a hung node would grow with every lock. h.mu is held.
func (h *hold) release(i int) {
	s := &h.sites[i]
	if s.asking && h.b.nodes[i].withdraw(s.vote) {
		s.asking, s.vote = false, redisconn.Started{}
	}
	var void time.Duration
	switch {
	case s.asking, s.releasing, s.left == none, s.left == removed:
		return
	case s.left == late:
		void = max(h.claim.lasts, voidTime)
	}
	s.releasing, s.err = true, nil
	h.b.nodes[i].release(&h.claim, void, h.patience(), h.answers.from(i, toRelease))
}

// freed notes what a release has left.
func (s *site) freed(r reply) {
	s.releasing = false
	s.again = s.again || r.repeated || r.err != nil && !certain(r.err)
	switch {
	case r.err != nil:
		s.err = r.err
	case r.state == redisconn.Mine, s.again:
		s.left = removed
	default:
		s.left = none
	}
}

// decide ends the try if it is known what came of it, and returns how many nodes have
// not answered yet. h.mu is held.
func (h *hold) decide() (open int) {
	// From how many nodes the lock was removed, how many did not have it, and did not answer in time.
	was, wasNot, unanswered := 0, 0, 0
	for _, s := range h.sites {
		switch {
		case s.asking, s.releasing:
			open++
		case s.err != nil:
			unanswered++
		case s.left == removed:
			was++
		default:
			wasNot++
		}
	}
	t, n, quorum, won := h.end.try, len(h.sites), h.b.quorum, h.stage != abandoned
	var err error
	switch {
	case t == nil:
		return open
	case won && wasNot > n-quorum:
		err = fmt.Errorf("redlock: %d of %d nodes did not have it any more: %w", wasNot, n, driver.ErrLost)
	case won && was >= quorum:
	case open > 0:
		return open
	case won && was+wasNot >= quorum, !won && unanswered == 0:
		// Others can have it. Of a round that was not won, nothing is left.
	case h.b.isClosed():
		err = driver.ErrClosed
	default:
		err = h.unreleased()
	}
	if err == nil && won {
		h.stage = released
	}
	h.end.try = nil
	t.done(err)
	return open
}

// unreleased is the error of a release that too few nodes answered. h.mu is held.
func (h *hold) unreleased() error {
	causes := make([]error, len(h.sites))
	for i, s := range h.sites {
		causes[i] = s.err
		if s.asking || s.releasing {
			causes[i] = errNoAnswer
		}
	}
	return h.b.quorumError("release", "", causes)
}
