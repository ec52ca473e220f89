package etcd_test

import (
	"context"
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

// Inspect counts what keeps the lock beside the session, and who takes back an attempt with MinHold takes its
// lease back, too.
func TestMinHoldIsToldAndTakenBack(t *testing.T) {
	s := parallelScene(t, 1)
	ctx := t.Context()
	for i, strict := range []bool{false, true} {
		b, err := etcd.New(dial(t, s.Addrs()), &etcd.Options{StrictExpiry: strict})
		require.NoError(t, err)
		defer func() { _ = b.Close() }()
		for n := range 6 {
			req := request("n", time.Minute, n%2 > 0)
			req.MinHold = time.Hour
			g := locktest.Acquire(t, b, req)
			st, err := b.Inspect(ctx, "n")
			require.NoError(t, err)
			assert.Greater(t, st.Remaining, req.MinHold-time.Minute)
			assert.Less(t, st.Remaining, req.MinHold+2*req.TTL)
			require.NoError(t, g.Hold.Undo(ctx))
		}
		leases, err := s.admin.Leases(ctx)
		require.NoError(t, err)
		assert.Len(t, leases.Leases, 1+i, "the sessions'")
	}
}

// MinHold counts from the grant, is kept whatever becomes of the client, and ends when it is over: for a job that
// runs in a process of its own. With StrictExpiry it was kept until somebody asked, and for a whole MinHold from
// then on, so that an hourly job ran every second hour. It still is where the backend is closed under a holder.
func TestMinHoldEndsAlthoughItsClientIsClosed(t *testing.T) {
	t.Parallel()
	const keep = 4 * time.Second
	for _, strict := range []bool{false, true} {
		t.Run(fmt.Sprintf("strict=%v", strict), func(t *testing.T) {
			t.Parallel()
			s := newScene(t, 1, version(strict)...)
			ctx := t.Context()
			b, other := keepingBackend(t, s, strict), client(t, s.Addrs(), time.Minute)
			before := locktest.Lock(t, other, "n")
			ask := func(name string) driver.Grant {
				req := request(name, keep, true)
				req.MinHold = keep
				return locktest.Acquire(t, b, req)
			}
			waits := make(chan driver.Grant, 1)
			go func() { waits <- ask("n") }()
			s.queued(t, "n", 2)
			time.Sleep(1500 * time.Millisecond)
			began := time.Now()
			require.NoError(t, before.Unlock(ctx))
			require.NoError(t, (<-waits).Hold.Release(ctx, keep-time.Since(began)))
			ask("held") // when it is closed
			require.NoError(t, b.Close())
			for _, name := range []string{"n", "held"} {
				_, err := other.TryLock(ctx, name)
				require.ErrorIs(t, err, driver.ErrHeld)
			}
			eventually(t, keep+5*time.Second, "it is over", func() bool { return len(all(t, s.admin)) == 0 })
			assert.Greater(t, time.Since(began), keep)
		})
	}
}

type lease struct{ driver.Aser }

func (lease) Name() string { return "" }

func (lease) Err() error { return nil }

// For a transaction that checks it, a lock that is kept is no longer held.
func TestKeptLockIsNotHeld(t *testing.T) {
	s := parallelScene(t, 1)
	ctx := t.Context()
	b := backend(t, s.Addrs())
	g := locktest.Acquire(t, b, keepable("n", false))
	held, err := etcd.Held(lease{g.Hold.(driver.Aser)})
	require.NoError(t, err)
	for _, want := range []bool{true, false} {
		resp, err := s.admin.Txn(ctx).If(held).Commit()
		require.NoError(t, err)
		require.Equal(t, want, resp.Succeeded)
		require.NoError(t, g.Hold.Release(ctx, time.Second))
	}
}

// A Release that keeps the lock arrives when it has been removed, and the name taken again.
func TestKeepThatArrivesLate(t *testing.T) {
	s := parallelScene(t, 1)
	ctx := t.Context()
	network := laggard{queue: queue("n"), skip: 2, kept: make(chan struct{})}
	b := backend(t, s.Addrs(), onCalls(network.take))
	g := locktest.Acquire(t, b, keepable("n", false))
	given, cancel := context.WithCancel(ctx)
	go func() {
		<-network.kept
		cancel()
	}()
	require.ErrorIs(t, g.Hold.Release(given, time.Hour), context.Canceled)
	require.NoError(t, g.Hold.Release(ctx, 0))
	again := locktest.Acquire(t, b, keepable("n", false))
	is := locksIn(t, s.admin, "n")
	require.NoError(t, network.late()) // now it arrives
	assert.Equal(t, is, locksIn(t, s.admin, "n"))
	_, err := again.Hold.Renew(ctx)
	require.NoError(t, err)
}

// A request that is made again finds its own lock: its floors are not in its way.
func TestRequestThatIsMadeAgainHasTheLock(t *testing.T) {
	kinds(t, func(t *testing.T, strict, shared bool) {
		s := newScene(t, 1)
		b := keepingBackend(t, s, strict)
		req := keepable("n", shared)
		first := locktest.Acquire(t, b, req)
		for _, req.Wait = range []bool{false, true} {
			again, err := locktest.Ask(within(t, 20*time.Second), b, req)
			require.NoError(t, err)
			assert.Equal(t, first.Token, again.Token)
		}
		require.NoError(t, first.Hold.Release(t.Context(), 0))
		assert.Empty(t, all(t, s.admin))
	})
}
