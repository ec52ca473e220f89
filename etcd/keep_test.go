package etcd_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker"
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

// keeping asks for a lock that is free, with a MinHold: again, if a slow machine has made etcd's answer take so long
// that it was given back.
func keeping(t *testing.T, b driver.Backend, req driver.Request) driver.Grant {
	t.Helper()
	for {
		g, err := locktest.Ask(within(t, 30*time.Second), b, req)
		if err == nil || !strings.Contains(err.Error(), "the answer took") {
			require.NoError(t, err)
			return g
		}
		require.NoError(t, g.Hold.Undo(t.Context()))
		req.Owner = request("", 0, false).Owner
	}
}

func keepingBackend(t *testing.T, addrs []string, strict bool, opts ...func(*clientv3.Config)) *etcd.Backend {
	t.Helper()
	b, err := etcd.New(dial(t, addrs, opts...), &etcd.Options{StrictExpiry: strict, MaxTTL: time.Minute})
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	return b
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
		b := keepingBackend(t, s.Addrs(), strict)
		asked := time.Now()
		g := keeping(t, b, keepable("n", shared))
		began := time.Now()
		held, err := b.Inspect(ctx, "n")
		require.NoError(t, err)
		told := time.Since(began) // etcd says how many seconds its leases last, as of some moment in it
		assert.WithinRange(t, held.Since, asked.Add(-2*time.Second), began.Add(told+2*time.Second))
		assert.WithinRange(t, held.KeptUntil, asked.Add(keepTime-2*time.Second), began.Add(keepTime+told+3*time.Second))
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
		asked = time.Now()
		st, err := b.Inspect(ctx, "n")
		require.NoError(t, err)
		told += time.Since(asked)
		assert.InDelta(t, keepTime-time.Since(began), st.Remaining, float64(3*time.Second+told))
		assert.WithinDuration(t, held.Since, st.Since, 2*time.Second+told)
		assert.WithinDuration(t, held.KeptUntil, st.KeptUntil, 2*time.Second+told)
		st.Remaining, st.Since, st.KeptUntil = held.Remaining, held.Since, held.KeptUntil
		held.Waiters, held.Waiting = st.Waiters, st.Waiting
		assert.Equal(t, held, st, "it is told as before")
		assert.Equal(t, g.Token, st.Token)
		require.NoError(t, b.Close())
		ends(t, s, began, writer)
		assert.Empty(t, all(t, s.admin))
	})
}

// To who writes beside it, a lock that is kept is no longer held.
func TestKeptLockIsNotHeld(t *testing.T) {
	s := parallelScene(t, 1)
	ctx := t.Context()
	b := backend(t, s.Addrs())
	g := keeping(t, b, keepable("n", false))
	held, err := etcd.Held(lease{g.Hold.(driver.Aser)})
	require.NoError(t, err)
	for _, want := range []bool{true, false} {
		resp, err := s.admin.Txn(ctx).If(held).Commit()
		require.NoError(t, err)
		require.Equal(t, want, resp.Succeeded)
		require.NoError(t, g.Hold.Release(ctx, time.Second))
	}
}

// lease is as much of one as Held asks for.
type lease struct{ driver.Aser }

func (lease) Name() string { return "" }
func (lease) Err() error   { return nil }

// What is kept is removed by all that removes a lock.
func TestKeptLockIsRemoved(t *testing.T) {
	kinds(t, func(t *testing.T, strict, shared bool) {
		s := newScene(t, 1)
		ctx := t.Context()
		b := keepingBackend(t, s.Addrs(), strict)
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
			g := keeping(t, b, req)
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

// A sharer that is kept keeps out who wants the lock alone, and no sharer, and it goes while another stays.
// The other may be of the same client, whose MinHold does not end that of the first.
func TestKeptSharerBesideOthers(t *testing.T) {
	kinds(t, func(t *testing.T, strict, _ bool) {
		s := newScene(t, 1)
		ctx := t.Context()
		b := keepingBackend(t, s.Addrs(), strict)
		first := keeping(t, b, keepable("n", true))
		began := time.Now()
		require.NoError(t, first.Hold.Release(ctx, keepTime))
		short := keepable("n", true)
		short.MinHold = time.Millisecond
		stays := keeping(t, b, short)
		_, err := locktest.Ask(ctx, b, request("n", time.Minute, false))
		require.ErrorIs(t, err, driver.ErrHeld)
		eventually(t, time.Minute, "it is over", func() bool {
			st, err := b.Inspect(ctx, "n")
			return err == nil && st.Sharers == 1
		})
		assert.GreaterOrEqual(t, time.Since(began), keepTime)
		_, err = stays.Hold.Renew(ctx)
		require.NoError(t, err)
		require.NoError(t, stays.Hold.Release(ctx, 0))
		assert.Empty(t, all(t, s.admin))
	})
}

// The session of a holder ends, who then unlocks, or whose Client is closed: what is left keeps the
// lock for its MinHold.
func TestMinHoldOfALockWhoseSessionEnds(t *testing.T) {
	kinds(t, func(t *testing.T, strict, shared bool) {
		s := newScene(t, 1)
		opts := []locker.Option{locker.MinHold(keepTime)}
		if shared {
			opts = append(opts, locker.Shared())
		}
		var checks []func()
		for how, end := range map[string]func(*locker.Client, *locker.Lease) error{
			"Unlock": func(_ *locker.Client, l *locker.Lease) error { return l.Unlock(t.Context()) },
			"Unlock after the loss": func(_ *locker.Client, l *locker.Lease) error {
				<-l.Done()
				return l.Unlock(t.Context())
			},
			"Close": func(c *locker.Client, _ *locker.Lease) error {
				assert.NoError(t, c.Close())
				return driver.ErrLost
			},
		} {
			c := locktest.Client(t, keepingBackend(t, s.Addrs(), strict), &locker.Options{TTL: time.Minute})
			began := time.Now()
			l := locktest.Lock(t, c, how, opts...)
			var k etcd.Key
			require.True(t, l.As(&k))
			s.revoke(t, k.Lease)
			require.ErrorIs(t, end(c, l), driver.ErrLost)
			writer := lockLater(t.Context(), client(t, s.Addrs(), time.Minute), how)
			checks = append(checks, func() { ends(t, s, began, writer) })
		}
		for _, check := range checks {
			check()
		}
	})
}

// keeps reports whether a transaction releases a lock, and keeps it.
func keeps(req *etcdserverpb.TxnRequest) bool {
	return len(req.Success) > 0 && req.Success[0].GetRequestDeleteRange() != nil &&
		len(req.Failure) > 0 && req.Failure[0].GetRequestTxn().GetSuccess()[0].GetRequestRange() != nil
}

// The answer to a Release that keeps the lock is lost, and a copy of it is sent, or it is made again: it is
// kept, and that is what is told.
func TestKeepThatIsSentTwice(t *testing.T) {
	s := parallelScene(t, 1)
	ctx := t.Context()
	addr := s.Nodes[0].Addr()
	for members, addrs := range [][]string{{addr}, {addr, addr}} {
		b := backend(t, addrs, loseAnswer(keeps))
		name := fmt.Sprint(members)
		g := keeping(t, b, keepable(name, false))
		began := time.Now()
		require.NoError(t, g.Hold.Release(ctx, keepTime))
		require.NoError(t, g.Hold.Release(ctx, time.Hour))
		s.queued(t, name, 1)
		ends(t, s, began, lockLater(ctx, client(t, s.Addrs(), time.Minute), name))
	}
}

// A Release that keeps the lock is made again while the answer to the first is on its way: what the first has done is
// no loss.
func TestKeepBesideOneThatIsNotAnswered(t *testing.T) {
	s := parallelScene(t, 1)
	ctx := t.Context()
	done, pass := make(chan struct{}), make(chan struct{})
	var first atomic.Bool
	b := backend(t, s.Addrs(), onTxn(func(req *etcdserverpb.TxnRequest, send func() error) error {
		err := send()
		if keeps(req) && first.CompareAndSwap(false, true) {
			close(done)
			<-pass
		}
		return err
	}))
	g := keeping(t, b, keepable("n", false))
	answer := make(chan error, 1)
	go func() { answer <- g.Hold.Release(ctx, keepTime) }()
	<-done
	err := g.Hold.Release(ctx, keepTime)
	close(pass)
	require.NoError(t, err)
	require.NoError(t, <-answer)
	require.NoError(t, g.Hold.Release(ctx, keepTime))
}

// A request that is made again finds its own lock: its floors are not in its way.
func TestRequestThatIsMadeAgainHasTheLock(t *testing.T) {
	kinds(t, func(t *testing.T, strict, shared bool) {
		s := newScene(t, 1)
		b := keepingBackend(t, s.Addrs(), strict)
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

// A Release that keeps the lock arrives when it has been removed, and the name taken again.
func TestKeepThatArrivesLate(t *testing.T) {
	s := parallelScene(t, 1)
	ctx := t.Context()
	var network laggard
	b := backend(t, s.Addrs(), network.config)
	g := keeping(t, b, keepable("n", false))
	network.keep(0, queue("n"))
	given, cancel := context.WithCancel(ctx)
	go func() {
		<-network.kept
		cancel()
	}()
	require.ErrorIs(t, g.Hold.Release(given, time.Hour), context.Canceled)
	require.NoError(t, g.Hold.Release(ctx, 0))
	again := keeping(t, b, keepable("n", false))
	is := locksIn(t, s.admin, "n")
	require.NoError(t, network.late()) // now it arrives
	assert.Equal(t, is, locksIn(t, s.admin, "n"))
	_, err := again.Hold.Renew(ctx)
	require.NoError(t, err)
}

// The floor of a MinHold is there when Acquire returns, or the lock is given back: an answer that took too
// long leaves less of its lease than MinHold.
func TestGrantThatTakesTooLongForItsMinHold(t *testing.T) {
	s := parallelScene(t, 1)
	ctx := t.Context()
	var slow atomic.Bool
	slow.Store(true)
	b := backend(t, s.Addrs(), onTxn(func(req *etcdserverpb.TxnRequest, send func() error) error {
		err := send()
		if strings.HasSuffix(string(req.Success[0].GetRequestPut().GetKey()), "+") && slow.CompareAndSwap(true, false) {
			time.Sleep(1100 * time.Millisecond)
		}
		return err
	}))
	g, err := locktest.Ask(ctx, b, keepable("n", false))
	require.ErrorIs(t, err, driver.ErrUnavailable)
	require.ErrorContains(t, err, "the answer took")
	require.NoError(t, g.Hold.Undo(ctx))
	assert.Empty(t, all(t, s.admin))
	keeping(t, b, keepable("n", false))
	assert.Len(t, all(t, s.admin), 2)
}

// While a lock of its own is kept, a client can wait for the name, share what sharers have, and hold others.
func TestClientComesAgainWhileItsLockIsKept(t *testing.T) {
	kinds(t, func(t *testing.T, strict, shared bool) {
		s := newScene(t, 1)
		ctx := t.Context()
		b := keepingBackend(t, s.Addrs(), strict)
		for range 2 { // kept, and waited for
			req := keepable("n", shared)
			req.Wait = true
			g := keeping(t, b, req)
			require.NoError(t, g.Hold.Release(ctx, keepTime))
			req = request("n", time.Minute, true)
			req.Shared = shared
			g = locktest.Acquire(t, b, req)
			require.NoError(t, g.Hold.Release(ctx, 0))
		}
	})
}

// A client stands still after etcd has granted the lock, and before its caller is told: MinHold counts from then, and
// the floor, which began before, lasts for longer.
func TestMinHoldOfAClientThatStoodStill(t *testing.T) {
	kinds(t, func(t *testing.T, strict, shared bool) {
		s := newScene(t, 1)
		b := keepingBackend(t, s.Addrs(), strict)
		g := keeping(t, b, keepable("n", shared))
		time.Sleep(keepTime + time.Second)
		told := time.Now()
		require.NoError(t, g.Hold.Release(t.Context(), keepTime))
		require.NoError(t, g.Hold.Release(t.Context(), keepTime-time.Since(told)), "again")
		ends(t, s, told, lockLater(t.Context(), client(t, s.Addrs(), time.Minute), "n"))
	})
}
