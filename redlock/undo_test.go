package redlock_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/internal/redisnode"
	"github.com/golockers/locker/redlock"
)

// Undo is nil once no node can have the lock any more. A node that is silent counts until the longest time
// that it was asked for has passed; a quorum of others that have confirmed is not enough.
func TestUndoIsForAllNodes(t *testing.T) {
	const life = 2 * time.Second
	for what, test := range map[string]struct {
		minHold time.Duration
		before  func(t *testing.T, g driver.Grant)
	}{
		"granted":       {},
		"with MinHold":  {minHold: life},
		"after Release": {before: func(t *testing.T, g driver.Grant) { release(t, g) }},
		"renewed": {before: func(t *testing.T, g driver.Grant) {
			_, err := g.Hold.Renew(t.Context())
			require.NoError(t, err)
		}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := durable(t, 3)
			b := s.through(t, redlock.Options{Fencing: true})
			warm(t, b)
			n := 0
			lab.Again(t, func() bool { // on a machine that stalls it may be over before it is released
				n++
				req := request(fmt.Sprint("n", n), life)
				if req.MinHold = test.minHold; req.MinHold > 0 {
					req.TTL = life / 2
				}
				began := time.Now()
				g := locktest.Acquire(t, b, req)
				for s.holders(t, req.Name) < 3 && time.Since(began) < life/2 {
					_, _ = g.Hold.Renew(t.Context())
				}
				if time.Since(began) >= life/2 {
					return false
				}
				s.proxies[2].Requests(lab.Drop)
				if test.before != nil {
					test.before(t, g)
				}
				undone := func() bool { return g.Hold.Undo(locktest.Within(t, 100*time.Millisecond)) == nil }
				within(t, 30*time.Second, "it is over", undone)
				assert.GreaterOrEqual(t, time.Since(began), life)
				assert.Zero(t, s.holders(t, req.Name))
				return true
			})
		})
	}
}

// A vote that was sent a moment before the release is removed when it has come: nodes do not have to write that it is
// void.
func TestAReleaseWaitsForVotesThatAreUnderWay(t *testing.T) {
	s := start(t, 5) // votes that are written to a disk take longer than a moment
	b := s.through(t, redlock.Options{NodeTimeout: 20 * time.Second, NoRestartGuard: true})
	warm(t, b)
	voids := func() (n int) {
		for _, r := range s.servers[3:] {
			n += len(r.MustDo(t, "KEYS", "*:void:*").([]any))
		}
		return n
	}
	for what, late := range map[string]func(proxies, lab.Mode){
		"the vote is late": proxies.Requests, "its answer is late": proxies.Replies,
	} {
		lab.Again(t, func() bool { // a machine that stalls is not in time
			before := voids()
			late(s.proxies[3:], lab.Hold)
			g := acquire(t, b, "n", time.Minute)
			release(t, g)
			inFlight := func() int { return b.Nodes()[3].InFlight + b.Nodes()[4].InFlight }
			underWay := inFlight() == 2
			late(s.proxies[3:], lab.Pass)
			within(t, 30*time.Second, what, func() bool { return inFlight() == 0 && s.holders(t, "n") == 0 })
			return underWay && voids() == before
		})
	}
}

// Undo is for all rounds of an Acquire, and not for the last one alone: what an earlier one may have left on
// every node keeps the others out.
func TestUndoIsForAllRounds(t *testing.T) {
	t.Parallel()
	s := durable(t, 3)
	b := s.through(t, redlock.Options{NodeTimeout: hasty})
	warm(t, b)
	req := request("n", time.Minute)
	first := req.Owner + ".0:"
	var healed atomic.Bool
	for _, p := range s.proxies {
		var lose func(l *lab.Link)
		lose = func(l *lab.Link) {
			if !healed.Load() {
				l.Requests(lab.Drop)
				p.OnRequest(first, lose)
			}
		}
		p.OnRequest(first, func(l *lab.Link) { // the vote is given, and what follows is lost
			l.Replies(lab.Drop)
			p.OnRequest(first, lose)
		})
	}
	g, err := locktest.Ask(t.Context(), b, req)
	require.Error(t, err)
	require.NotNil(t, g.Hold, "%v", err)
	require.Equal(t, 3, s.holders(t, "n"))
	require.Error(t, g.Hold.Undo(locktest.Within(t, time.Second)))
	healed.Store(true)
	within(t, 30*time.Second, "it is over", func() bool {
		return g.Hold.Undo(locktest.Within(t, time.Second)) == nil
	})
	assert.Zero(t, s.holders(t, "n"))
}

// Who is told "held" undoes what an earlier round may have left.
func TestHeldBesideWhatAnEarlierRoundHasLeft(t *testing.T) {
	t.Parallel()
	s := durable(t, 3)
	b := s.through(t, redlock.Options{NodeTimeout: 50 * time.Millisecond}) // before a copy is sent
	warm(t, b)
	acquire(t, s.backend(t, redlock.Options{}), "n", time.Minute)
	within(t, 30*time.Second, "the first round stalls, the second is refused", func() bool {
		req := request("n", time.Minute)
		var again atomic.Bool
		for _, p := range s.proxies {
			p.OnRequest(req.Owner+".0:", func(l *lab.Link) { l.Requests(lab.Drop) })
			p.OnRequest(req.Owner+".1:", func(*lab.Link) { again.Store(true) })
		}
		g, err := locktest.Ask(t.Context(), b, req)
		held := errors.Is(err, driver.ErrHeld)
		if held && g.Hold == nil {
			for _, r := range s.servers {
				void := redisnode.LockKey("n") + ":void:" + req.Owner + ".0:" + req.Label
				within(t, 30*time.Second, "a vote of the first round that arrives finds itself void",
					func() bool { return r.MustDo(t, "EXISTS", void) == int64(1) })
			}
			return again.Load()
		} else if !held {
			require.ErrorIs(t, err, driver.ErrUnavailable, "too slow for the second round as well")
			require.NotNil(t, g.Hold)
		}
		within(t, 30*time.Second, "it is over", func() bool {
			return g.Hold.Undo(locktest.Within(t, time.Second)) == nil
		})
		return held && again.Load()
	})
}
