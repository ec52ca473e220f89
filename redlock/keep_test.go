package redlock_test

import (
	"strings"
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

// What a Release leaves that keeps the lock. What single nodes make of it is in node_internal_test.go.

// grant acquires n, with a MinHold.
func (s *nodes) grant(t *testing.T, b *redlock.Backend) driver.Grant {
	t.Helper()
	req := request("n", time.Minute)
	req.MinHold = time.Minute
	return locktest.Acquire(t, b, req)
}

// held acquires n on all nodes, with a MinHold.
func (s *nodes) held(t *testing.T, b *redlock.Backend) driver.Grant {
	t.Helper()
	warm(t, b)
	g := s.grant(t, b)
	s.everywhere(t, g, "n")
	return g
}

// kept counts the nodes that keep n.
func (s *nodes) kept(t *testing.T) (n int) {
	t.Helper()
	for i := range s.servers {
		if strings.HasSuffix(s.value(t, i, "n"), redisnode.Kept) {
			n++
		}
	}
	return n
}

// What is kept is shown as it was, with its end. How long it is kept, and that it cannot be renewed, is in the suite.
func TestAKeptLockIsShown(t *testing.T) {
	s := durable(t, 3)
	b := s.backend(t, redlock.Options{Fencing: true})
	g := s.held(t, b)
	before, err := b.Inspect(t.Context(), "n")
	require.NoError(t, err)
	require.NoError(t, g.Hold.Release(t.Context(), time.Minute))
	within(t, 30*time.Second, "all nodes keep it", func() bool { return s.kept(t) == 3 })
	require.NoError(t, g.Hold.Release(t.Context(), time.Hour), "it is kept already")
	after, err := b.Inspect(t.Context(), "n")
	require.NoError(t, err)
	assert.LessOrEqual(t, after.Remaining, time.Minute)
	assert.WithinDuration(t, time.Now().Add(after.Remaining), after.KeptUntil, 5*time.Second)
	before.Remaining, after.Remaining, after.KeptUntil = 0, 0, time.Time{}
	assert.Equal(t, before, after)
}

// The vote of a slow node is still under way when its lock is kept: that node keeps it, too, or it does not count as one
// that does.
func TestASlowNodeKeepsTheLockOrDoesNotCount(t *testing.T) {
	for _, loses := range []bool{false, true} {
		s := durable(t, 3)
		b := s.through(t, redlock.Options{})
		warm(t, b)
		s.proxies[2].SetDelay(40 * time.Millisecond)
		g := s.grant(t, b)
		time.Sleep(25 * time.Millisecond) // a release does not wait for a vote that was sent so long ago
		if loses {
			s.servers[1].MustDo(t, "DEL", redisnode.LockKey("n"))
		}
		if err := g.Hold.Release(t.Context(), time.Minute); err == nil {
			assert.GreaterOrEqual(t, s.kept(t), 2, "it is said to be kept, and another could have it")
		} else {
			assert.True(t, loses, err)
		}
	}
}

// A node that is asked late keeps the lock for the rest of the time, and not for all of it once more.
func TestANodeThatIsAskedLateKeepsTheRest(t *testing.T) {
	t.Parallel()
	const keep, late = 30 * time.Second, 4 * time.Second
	s := durable(t, 3)
	b := s.through(t, redlock.Options{})
	g := s.held(t, b)
	s.proxies[2].Requests(lab.Drop)
	released := time.Now()
	require.NoError(t, g.Hold.Release(t.Context(), keep), "two are a quorum")
	time.Sleep(late) // one request to it, with its copies, takes up to half of that
	s.proxies[2].Set(lab.Reset)
	s.proxies[2].Set(lab.Pass)
	within(t, 30*time.Second, "the third keeps it", func() bool { return s.kept(t) == 3 })
	life := s.servers[2].TTL(t, redisnode.LockKey("n"))
	assert.LessOrEqual(t, life, keep-late/2)
	assert.Greater(t, life, time.Until(released.Add(keep))-time.Second)
}

// A release that removes the lock may come while another, which is to keep it, has no answer from a quorum.
func TestARemovalAfterAReleaseThatKeeps(t *testing.T) {
	for how, remove := range map[string]func(*testing.T, driver.Hold) error{
		"Release": func(t *testing.T, h driver.Hold) error { return h.Release(locktest.Within(t, time.Second), 0) },
		"Undo":    func(t *testing.T, h driver.Hold) error { return h.Undo(locktest.Within(t, time.Second)) },
	} {
		for _, mode := range []lab.Mode{lab.Hold, lab.Drop} {
			t.Run(how, func(t *testing.T) {
				t.Parallel()
				s := durable(t, 3)
				g := s.held(t, s.through(t, redlock.Options{NodeTimeout: 5 * time.Second}))
				s.proxies[1:].Requests(mode)
				require.Error(t, g.Hold.Release(locktest.Within(t, 200*time.Millisecond), 30*time.Second))
				within(t, 30*time.Second, "one keeps it", func() bool { return s.kept(t) == 1 })
				require.Error(t, remove(t, g.Hold))
				within(t, 30*time.Second, "that one is asked again, at once", func() bool { return s.value(t, 0, "n") == "" })
				if mode == lab.Drop {
					s.proxies[1:].Set(lab.Reset)
				}
				s.proxies[1:].Set(lab.Pass)
				within(t, 30*time.Second, "it is removed", func() bool { return s.holders(t, "n") == 0 })
				if how == "Undo" {
					within(t, 30*time.Second, "and that is known", func() bool { return remove(t, g.Hold) == nil })
				}
			})
		}
	}
}

// While a node is still asked to keep the lock, another release is for all of them.
func TestAReleaseWhileANodeIsStillAsked(t *testing.T) {
	t.Parallel()
	s := durable(t, 3)
	g := s.held(t, s.through(t, redlock.Options{}))
	s.proxies[2].Requests(lab.Drop)
	require.NoError(t, g.Hold.Release(t.Context(), 30*time.Second))
	require.NoError(t, g.Hold.Release(t.Context(), 30*time.Second), "it is kept")
	require.Equal(t, 2, s.kept(t))
	require.NoError(t, g.Hold.Release(t.Context(), 0), "it is kept")
	assert.Equal(t, 1, s.holders(t, "n"))
}

// The answers of nodes that were asked to keep the lock come when it is to be removed.
func TestARemovalWhileNodesAreAskedToKeep(t *testing.T) {
	s := durable(t, 3)
	g := s.held(t, s.through(t, redlock.Options{NodeTimeout: 5 * time.Second}))
	for _, p := range s.proxies {
		p.SetDelay(100 * time.Millisecond) // a connection that is made now takes several round trips
	}
	require.Error(t, g.Hold.Release(locktest.Within(t, 50*time.Millisecond), time.Minute))
	require.NoError(t, g.Hold.Release(t.Context(), 0))
	within(t, 30*time.Second, "no node keeps it", func() bool { return s.holders(t, "n") == 0 })
}
