package redlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/clock"
	"github.com/golockers/locker/internal/redisconn"
)

// voidTime is how late a request may arrive and still be refused.
const voidTime = time.Minute

// Release implements [locker.Hold]: it removes the lock from all nodes that may
// have it, and returns when a quorum has confirmed that. The others go on in
// the background.
func (a *attempt) Release(ctx context.Context) error {
	ctx, _ = clock.Parts(ctx) // each node's answer has a limit of its own
	changed := make(chan struct{}, 1)
	a.mu.Lock()
	switch a.stage {
	case released:
		a.mu.Unlock()
		return fmt.Errorf("redlock: it was released before: %w", locker.ErrLost)
	case held:
		a.stage = releasing // from here on a late vote or repair is taken back
	case voting, raising:
		a.stage = abandoned
	}
	a.watching = append(a.watching, changed)
	a.mu.Unlock()
	a.freeAll()
	for {
		if done, err := a.released(); done {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			a.mu.Lock()
			defer a.mu.Unlock()
			return fmt.Errorf("%w: %w", ctx.Err(), a.unreleased())
		case <-a.b.closing:
			return locker.ErrClosed
		}
	}
}

// released reports whether it is known what came of a release.
func (a *attempt) released() (done bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	// From how many nodes the key was removed, how many did not have it, have not
	// answered yet, and did not in time.
	was, wasNot, open, unanswered := 0, 0, 0, 0
	for i := range a.states {
		switch s := &a.states[i]; {
		case s.freed == yes:
			was++
		case s.freed == no, s.left == none && s.vote != pending:
			wasNot++
		case s.freed == failed:
			unanswered++
		default:
			open++
		}
	}
	n, quorum, won := len(a.states), a.b.quorum, a.stage != abandoned
	switch {
	case won && wasNot > n-quorum:
		return true, fmt.Errorf("redlock: %d of %d nodes did not have it any more: %w", wasNot, n, locker.ErrLost)
	case won && was >= quorum:
	case open > 0:
		return false, nil
	case won && was+wasNot >= quorum, !won && unanswered == 0:
		// Others can have it. Of a round that was not won, nothing is left.
	default:
		return true, a.unreleased()
	}
	if a.stage == releasing {
		a.stage = released
	}
	return true, nil
}

// unreleased is the error of a release that too few nodes answered. a.mu is held.
func (a *attempt) unreleased() error {
	causes := make([]error, len(a.states))
	for i := range a.states {
		if s := &a.states[i]; s.freed != yes && s.freed != no && s.left != none {
			causes[i] = errNoAnswer
			if s.freed == failed && s.err != nil {
				causes[i] = s.err
			}
		}
	}
	return a.b.quorumError("release", "", causes)
}

// freeAll takes an attempt back from every node that may have it, and does not
// wait. Nodes that have not answered yet are taken care of when they do, or when
// their time is up.
func (a *attempt) freeAll() {
	var nodes []int
	a.mu.Lock()
	a.withdraw()
	for i := range a.states {
		if s := &a.states[i]; s.left != none && s.freed != yes && s.freed != no && s.freed != pending {
			nodes = append(nodes, i)
		}
	}
	a.mu.Unlock()
	for _, i := range nodes {
		a.free(i)
	}
}

// free removes the key from one node. Where the node does not answer, that is
// tried again for as long as the lock could last there: a minority that keeps it
// would cost the next holders their spare nodes.
func (a *attempt) free(i int) {
	a.mu.Lock()
	s := &a.states[i]
	if s.freed != yes {
		s.freed = pending
	}
	var void time.Duration
	if s.left == late {
		void = max(a.claim.lasts, voidTime)
	}
	claim := a.claim
	a.mu.Unlock()
	n := a.b.nodes[i]
	until := time.Now().Add(claim.lasts)
	began := time.Now()
	limit := a.b.patience(claim.ttl)
	var send func(delay time.Duration)
	send = func(delay time.Duration) {
		n.release(&claim, void, limit, func(r reply) {
			silent := errors.Is(r.err, redisconn.ErrSilent) && time.Since(began) < limit
			a.mu.Lock()
			s := &a.states[i]
			s.again = s.again || r.repeated || r.err != nil && !certain(r.err)
			switch {
			case s.freed == yes, silent:
			case r.err != nil:
				s.freed, s.err = failed, r.err
			case r.state == redisconn.Mine, s.again:
				s.freed = yes
			default:
				s.freed = no
			}
			a.tell()
			a.mu.Unlock()
			switch {
			case r.err == nil, a.b.isClosed():
			case silent:
				send(delay) // on another connection
			case time.Now().Add(delay).Before(until) && n.pendingReleases.Load() < maxPending:
				n.pendingReleases.Add(1)
				time.AfterFunc(clock.Jitter(delay), func() {
					n.pendingReleases.Add(-1)
					if !a.b.isClosed() {
						send(min(2*delay, lastRelease))
					}
				})
			}
		})
	}
	send(firstRelease)
}

// The pauses before a release that was not answered is sent again, and how many
// of them one node can have: the others end with their TTL.
const (
	firstRelease = 200 * time.Millisecond
	lastRelease  = 2 * time.Second
	maxPending   = 10000
)
