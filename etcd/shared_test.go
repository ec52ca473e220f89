package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/etcd"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
)

func sharedRequest(name string, ttl time.Duration, wait bool) driver.Request {
	req := request(name, ttl, wait)
	req.Shared = true
	return req
}

// A sharer with nobody but sharers before it makes one transaction to get in and one to leave, and so does who
// asks for a free name alone, also beside a void key, which lives as long as a session of somebody's.
func TestFreeNamesTakeOneTransaction(t *testing.T) {
	s := parallelScene(t, 1)
	sent := 0
	b := backend(t, s.Addrs(), onTxn(func(req *pb.TxnRequest, send func() error) error {
		if strings.Contains(req.String(), queue("n")) {
			sent++
		}
		return send()
	}))
	ctx := t.Context()
	take := func(req driver.Request) driver.Grant {
		before := sent
		grant := locktest.Acquire(t, b, req)
		assert.Equal(t, before+1, sent)
		return grant
	}
	release := func(g driver.Grant) {
		before := sent
		require.NoError(t, g.Hold.Release(ctx, 0))
		assert.Equal(t, before+1, sent)
	}
	for _, wait := range []bool{false, true} {
		sharers := []driver.Grant{
			take(sharedRequest("n", time.Minute, wait)), take(sharedRequest("n", time.Minute, !wait)),
		}
		for _, g := range sharers {
			assert.Zero(t, g.Token)
			release(g)
		}
		release(take(request("n", time.Minute, wait)))
		_, err := s.admin.Put(ctx, queue("n")+"~"+strings.Repeat("0", 40), "")
		require.NoError(t, err)
	}
}

// A sharer's lease fences transactions in the same etcd as any other does.
func TestSharerFencesTransactions(t *testing.T) {
	s := parallelScene(t, 1)
	c := client(t, s.Addrs(), time.Minute)
	l := locktest.Lock(t, c, "n", locker.Shared())
	held, err := etcd.Held(l)
	require.NoError(t, err)
	for _, want := range []bool{true, false} {
		resp, err := s.admin.Txn(t.Context()).If(held).Then(clientv3.OpPut("data", "x")).Commit()
		require.NoError(t, err)
		assert.Equal(t, want, resp.Succeeded)
		if want {
			require.NoError(t, l.Unlock(t.Context()))
		}
	}
}

// With StrictExpiry sharers that may believe keep a writer out for one more TTL, all at one time, whoever
// holds beside them. Those that waited were never granted the lock, and keep nobody out. Where no writer
// ever asks, what they leave does not pile up.
func TestDeadSharersWithStrictExpiry(t *testing.T) {
	t.Parallel()
	const ttl, many = 3 * time.Second, 5
	for _, asks := range []string{"waits", "tries", "tries the oldest etcd", "shares", "joins"} {
		t.Run("next "+asks, func(t *testing.T) {
			t.Parallel()
			asks, _, oldest := strings.Cut(asks, " the oldest")
			s := newScene(t, 1, version(oldest)...)
			ctx := t.Context()
			strict := func(opts ...func(*clientv3.Config)) *etcd.Backend {
				b, err := etcd.New(dial(t, s.Addrs(), opts...), &etcd.Options{StrictExpiry: true, MaxTTL: ttl})
				require.NoError(t, err)
				t.Cleanup(func() { _ = b.Close() })
				return b
			}
			network, waiters := lab.StartProxy(t), lab.StartProxy(t)
			b, live := strict(through(network)), strict()
			declared := ttl + b.Guarantees().DeadHolderSlack
			dying, cancel := context.WithCancel(ctx)
			var all sync.WaitGroup
			defer all.Wait()
			defer cancel()
			stays := locktest.Acquire(t, live, sharedRequest("n", time.Minute, false))
			var dies driver.Grant
			for range many {
				dies = locktest.Acquire(t, b, sharedRequest("n", ttl, true))
			}
			next := client(t, s.Addrs(), time.Minute)
			if asks == "shares" { // a writer, and sharers behind it, wait and die
				w := strict(through(waiters))
				for i, req := range []driver.Request{
					request("n", ttl, true), sharedRequest("n", ttl, true), sharedRequest("n", ttl, true),
				} {
					all.Go(func() { _, _ = locktest.Ask(dying, w, req) })
					s.queued(t, "n", 2*(many+1)+1+i)
				}
			}
			proven, err := dies.Hold.Renew(ctx)
			require.NoError(t, err)
			network.Set(lab.Drop)
			waiters.Set(lab.Drop)
			began := time.Now()
			over := func() bool {
				resp, err := s.admin.Get(ctx, queue("n")+"s", clientv3.WithRange(queue("n")+"~"))
				return err == nil && len(resp.Kvs) == 1
			}
			if asks == "joins" {
				eventually(t, 30*time.Second, "their leases are over", over)
			}
			done := make(chan error, 1)
			go func() {
				var l *locker.Lease
				var err error
				switch asks {
				case "waits":
					l, err = next.Lock(ctx, "n")
				case "shares", "joins":
					l, err = next.Lock(ctx, "n", locker.Shared())
				case "tries":
					for err = driver.ErrHeld; errors.Is(err, driver.ErrHeld); time.Sleep(20 * time.Millisecond) {
						l, err = next.TryLock(ctx, "n")
					}
				}
				if err == nil {
					err = l.Unlock(ctx)
				}
				done <- err
			}()
			switch asks {
			case "shares", "joins":
				require.NoError(t, <-done)
				if asks == "shares" {
					assert.Less(t, time.Since(began), 2*ttl, "the dead waiters were never granted the lock")
					// The waiters can be over before the holders are: whoever shares the lock after those finds them.
					eventually(t, 30*time.Second, "their leases are over", over)
					l, err := next.Lock(ctx, "n", locker.Shared())
					require.NoError(t, err)
					require.NoError(t, l.Unlock(ctx))
				}
				s.queued(t, "n", 2)
				require.NoError(t, stays.Hold.Release(ctx, 0))
				return
			}
			// Who lives leaves when the leases of the others have been over for some time.
			eventually(t, 30*time.Second, "their leases are over", over)
			if asks == "tries" {
				s.queued(t, "n", 2) // whoever is refused has found them, beside one that lives
			} else {
				time.Sleep(ttl / 4)
			}
			require.NoError(t, stays.Hold.Release(ctx, 0))
			require.NoError(t, <-done)
			took := time.Since(began)
			t.Logf("free %v after %d died, %v are declared", took, many, declared)
			assert.Less(t, took, declared)
			assert.Greater(t, took+began.Sub(proven.Since), 2*ttl, "their leases were renewed then, or later")
		})
	}
}

// As many as may be share a name, with a floor each, and one more is told so. A writer gets in behind them.
func TestProveAsManySharersAsMayBe(t *testing.T) {
	lab.NeedProve(t)
	s := newScene(t, 1)
	ctx := t.Context()
	b, err := etcd.New(dial(t, s.Addrs()), &etcd.Options{StrictExpiry: true, MaxTTL: time.Minute})
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	locktest.MaxSharers(t, b, func() {
		in := make(chan driver.Grant, 1)
		go func() {
			grant, err := backend(t, s.Addrs()).Acquire(ctx, request("n", time.Minute, true))
			assert.NoError(t, err)
			in <- grant
		}()
		s.queued(t, "n", 2*driver.MaxSharers+1)
		st, err := locktest.Break(ctx, b, "n")
		require.NoError(t, err)
		assert.Equal(t, driver.MaxSharers, st.Sharers)
		require.NoError(t, (<-in).Hold.Release(ctx, 0))
		s.queued(t, "n", 0)
	})
}

// Sharers who get in together, more than may read a queue at one time, and all find that dead ones have left
// something.
func TestManySharersWhoFindDeadOnes(t *testing.T) {
	const many = 40
	s := parallelScene(t, 1)
	ctx := within(t, 2*time.Minute)
	b, err := etcd.New(dial(t, s.Addrs()), &etcd.Options{Timeout: 30 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	writer := locktest.Acquire(t, b, request("n", time.Minute, false))
	granted := make(chan error, many)
	for range many {
		go func() {
			_, err := locktest.Ask(ctx, b, sharedRequest("n", time.Minute, true))
			granted <- err
		}()
	}
	s.queued(t, "n", many+1)
	for i := range many + 1 {
		_, err := s.admin.Put(ctx, fmt.Sprintf("%s!sDEAD.%d", queue("n"), i), fmt.Sprintf("%040d/1/1:", i))
		require.NoError(t, err)
	}
	require.NoError(t, writer.Hold.Release(ctx, 0))
	for range many {
		require.NoError(t, <-granted)
	}
}

// The time of a sharer that died begins when a writer tries or waits, also if others, released before their MinHold
// was over, keep the name for longer.
func TestADeadSharerIsFoundAmongThoseThatAreKept(t *testing.T) {
	s := parallelScene(t, 1)
	ctx := t.Context()
	for range 6 { // so that the floor of one stands before that of the dead
		req := sharedRequest("n", time.Minute, false)
		req.MinHold = time.Minute
		g := locktest.Acquire(t, backend(t, s.Addrs()), req)
		require.NoError(t, g.Hold.Release(ctx, time.Minute))
	}
	for _, wait := range []bool{false, true} {
		g := locktest.Acquire(t, strictBackend(t, s), sharedRequest("n", 2*time.Second, false))
		var k etcd.Key
		require.True(t, g.Hold.(driver.Aser).As(&k))
		s.revoke(t, k.Lease)
		asking, cancel := context.WithCancel(ctx)
		asked := make(chan error, 1)
		go func() {
			_, err := locktest.Ask(asking, backend(t, s.Addrs()), request("n", time.Minute, wait))
			asked <- err
		}()
		eventually(t, 10*time.Second, "its floor is gone, after its TTL", func() bool {
			resp, err := s.admin.Get(ctx, queue("n"), clientv3.WithRange(queue("n")+"\""))
			return err == nil && len(resp.Kvs) == 6
		})
		cancel()
		require.ErrorIs(t, <-asked, driver.ErrHeld)
	}
}
