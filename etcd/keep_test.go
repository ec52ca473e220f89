package etcd_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/etcd"
	"github.com/golockers/locker/internal/locktest"
)

// kinds runs a test for each kind of lock that can be kept.
func kinds(t *testing.T, test func(t *testing.T, strict, shared bool)) {
	t.Parallel()
	for _, strict := range []bool{false, true} {
		for _, shared := range []bool{false, true} {
			t.Run(fmt.Sprintf("strict=%v,shared=%v", strict, shared), func(t *testing.T) {
				t.Parallel()
				test(t, strict, shared)
			})
		}
	}
}

// keepTime is the MinHold of the locks here.
const keepTime = 3 * time.Second

// keepable is a request for a lock with a MinHold that its holder and its session would keep for far longer
// than a test.
func keepable(name string, shared bool) driver.Request {
	req := request(name, time.Minute, false)
	req.MinHold, req.Shared = keepTime, shared
	return req
}

func keepingBackend(t *testing.T, s scene, strict bool) *etcd.Backend {
	t.Helper()
	return backendWith(t, etcd.Options{StrictExpiry: strict, MaxTTL: time.Minute}, s.Addrs())
}

// ends checks that a lock which was granted at began is kept for keepTime, and not much longer, by a
// writer that waits.
func ends(t *testing.T, s scene, began time.Time, writer <-chan locked) {
	t.Helper()
	got := s.get(t, writer, time.Minute)
	assert.GreaterOrEqual(t, got.at.Sub(began), keepTime)
	slack := backend(t, s.Addrs()).Guarantees().MinHoldSlack
	assert.Less(t, got.at.Sub(began), keepTime*101/100+slack+time.Second, "and a second for a busy machine")
	require.NoError(t, got.lease.Unlock(t.Context()))
}

// A lock that is kept is nobody's, keeps others out, and ends when its MinHold does: with its TTL, its
// session, its client and StrictExpiry it would last for longer.
func TestKeptLockEnds(t *testing.T) {
	kinds(t, func(t *testing.T, strict, shared bool) {
		s := newScene(t, 1)
		ctx := t.Context()
		b := keepingBackend(t, s, strict)
		g := locktest.Acquire(t, b, keepable("n", shared))
		began := time.Now()
		held, err := b.Inspect(ctx, "n")
		require.NoError(t, err)
		assert.WithinDuration(t, began, held.Since, 2*time.Second)
		assert.WithinDuration(t, began.Add(keepTime), held.KeptUntil, 3*time.Second)
		writer := lockLater(ctx, client(t, s.Addrs(), time.Minute), "n")
		eventually(t, 30*time.Second, "a writer waits", func() bool {
			st, err := b.Inspect(ctx, "n")
			return err == nil && st.Waiters == 1
		})
		require.NoError(t, g.Hold.Release(ctx, keepTime-time.Since(began)))
		s.queued(t, "n", 2)
		_, err = g.Hold.Renew(ctx)
		require.ErrorIs(t, err, driver.ErrLost)
		require.ErrorIs(t, g.Hold.(driver.TokenRaiser).RaiseToken(ctx, 1<<40), driver.ErrLost)
		require.NoError(t, g.Hold.Release(ctx, time.Hour), "it is kept already")
		st, err := b.Inspect(ctx, "n")
		require.NoError(t, err)
		assert.InDelta(t, keepTime-time.Since(began), st.Remaining, float64(3*time.Second))
		assert.WithinDuration(t, held.Since, st.Since, 2*time.Second)
		assert.WithinDuration(t, held.KeptUntil, st.KeptUntil, 2*time.Second)
		st.Remaining, st.Since, st.KeptUntil = held.Remaining, held.Since, held.KeptUntil
		held.Waiters, held.Waiting = st.Waiters, st.Waiting
		assert.Equal(t, held, st, "it is told as before")
		assert.Equal(t, g.Token, st.Token)
		require.NoError(t, b.Close())
		ends(t, s, began, writer)
		assert.Empty(t, all(t, s.admin))
	})
}

// What is kept is removed by all that removes a lock.
func TestKeptLockIsRemoved(t *testing.T) {
	kinds(t, func(t *testing.T, strict, shared bool) {
		s := newScene(t, 1)
		ctx := t.Context()
		b := keepingBackend(t, s, strict)
		for how, remove := range map[string]func(driver.Hold) error{
			"Release": func(h driver.Hold) error { return h.Release(ctx, 0) },
			"Undo":    func(h driver.Hold) error { return h.Undo(ctx) },
			"Break": func(driver.Hold) error {
				_, err := locktest.Break(ctx, b, "n")
				return err
			},
		} {
			req := keepable("n", shared)
			req.MinHold = time.Hour
			g := locktest.Acquire(t, b, req)
			require.NoError(t, g.Hold.Release(ctx, time.Minute))
			require.Len(t, all(t, s.admin), 1, how)
			require.NoError(t, remove(g.Hold), how)
			require.Empty(t, all(t, s.admin), how)
			require.ErrorIs(t, g.Hold.Release(ctx, time.Minute), driver.ErrLost, how)
			require.Empty(t, all(t, s.admin), how)
			require.NoError(t, g.Hold.Undo(ctx), how)
		}
		others, err := s.admin.Leases(ctx)
		require.NoError(t, err)
		for _, l := range others.Leases {
			of, err := s.admin.TimeToLive(ctx, l.ID)
			require.NoError(t, err)
			assert.LessOrEqual(t, of.GrantedTTL, int64(60), "that of its MinHold is revoked")
		}
	})
}
