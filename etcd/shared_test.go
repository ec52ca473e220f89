package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"

	"github.com/golockers/locker"
	"github.com/golockers/locker/etcd"
	"github.com/golockers/locker/internal/lab"
)

func sharedRequest(name string, ttl time.Duration, wait bool) locker.Request {
	req := request(name, ttl, wait)
	req.Shared = true
	return req
}

// A sharer with nobody but sharers before it makes one transaction to get in and one to leave. Who asks for a
// free name alone pays nothing for sharers: one comparison, one put, and nothing to read.
func TestFreeNamesTakeOneTransaction(t *testing.T) {
	t.Parallel()
	s := newScene(t, 1)
	var sent []*pb.TxnRequest
	b := backend(t, s.Addrs(), func(c *clientv3.Config) {
		c.DialOptions = append(c.DialOptions, grpc.WithChainUnaryInterceptor(func(
			ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker,
			opts ...grpc.CallOption,
		) error {
			if txn, ok := req.(*pb.TxnRequest); ok && strings.Contains(txn.String(), queue("n")) {
				sent = append(sent, txn)
			}
			return next(ctx, method, req, reply, cc, opts...)
		}))
	})
	ctx := t.Context()
	take := func(req locker.Request) locker.Grant {
		before := len(sent)
		grant, err := b.Acquire(ctx, req)
		require.NoError(t, err)
		assert.Equal(t, before+1, len(sent)) //nolint:testifylint // Len would print them
		return grant
	}
	release := func(g locker.Grant) {
		before := len(sent)
		require.NoError(t, g.Hold.Release(ctx))
		assert.Equal(t, before+1, len(sent)) //nolint:testifylint // the same
	}
	for _, wait := range []bool{false, true} {
		sharers := []locker.Grant{
			take(sharedRequest("n", time.Minute, wait)), take(sharedRequest("n", time.Minute, !wait)),
		}
		for _, g := range sharers {
			assert.Zero(t, g.Token)
			release(g)
		}
		release(take(request("n", time.Minute, wait)))
		alone := sent[len(sent)-2]
		assert.Len(t, alone.Compare, 1)
		assert.Len(t, alone.Success, 1)
		assert.LessOrEqual(t, len(alone.Failure), 1)
		onTheWire, err := encoding.GetCodecV2("proto").Marshal(alone) // generated types differ by the client's version
		require.NoError(t, err)
		assert.Less(t, onTheWire.Len(), 330)
	}
	// A void key, which lives as long as a session of somebody's, costs each client one request more, once.
	_, err := s.admin.Put(ctx, queue("n")+"~"+strings.Repeat("0", 40), "")
	require.NoError(t, err)
	for _, wait := range []bool{true, false} {
		grant, err := b.Acquire(ctx, request("n", time.Minute, wait))
		require.NoError(t, err)
		release(grant)
		release(take(request("n", time.Minute, wait)))
		release(take(request("n", time.Minute, !wait)))
	}
	_, err = s.admin.Delete(ctx, queue("n"), clientv3.WithPrefix())
	require.NoError(t, err)
	release(take(request("n", time.Minute, true))) // and is forgotten when it is gone
	release(take(request("n", time.Minute, true)))
	assert.Len(t, sent[len(sent)-2].Compare, 1)
}

// A sharer's lease fences transactions in the same etcd as any other does.
func TestSharerFencesTransactions(t *testing.T) {
	t.Parallel()
	s := newScene(t, 1)
	c := client(t, s.Addrs(), time.Minute)
	l, err := c.Lock(t.Context(), "n", locker.Shared())
	require.NoError(t, err)
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
			network, waiters := newCut(t), newCut(t)
			b, live := strict(through(network.dial)), strict()
			declared := ttl + b.Guarantees().DeadHolderSlack
			dying, cancel := context.WithCancel(ctx)
			var all sync.WaitGroup
			defer all.Wait()
			defer cancel()
			stays, err := live.Acquire(ctx, sharedRequest("n", ttl, false))
			require.NoError(t, err)
			for range many {
				_, err := b.Acquire(ctx, sharedRequest("n", ttl, true))
				require.NoError(t, err)
			}
			next := client(t, s.Addrs(), time.Minute)
			if asks == "shares" { // a writer, and sharers behind it, wait and die
				w := strict(through(waiters.dial))
				for i, req := range []locker.Request{
					request("n", ttl, true), sharedRequest("n", ttl, true), sharedRequest("n", ttl, true),
				} {
					all.Go(func() { _, _ = w.Acquire(dying, req) })
					s.queued(t, "n", 2*(many+2+i))
				}
			}
			network.set(lab.Drop, lab.Drop)
			waiters.set(lab.Drop, lab.Drop)
			began := time.Now()
			over := func() bool {
				resp, err := s.admin.Get(ctx, queue("n")+"s", clientv3.WithRange(queue("n")+"~"))
				return err == nil && len(resp.Kvs) <= 2+many
			}
			if asks == "joins" {
				eventually(t, 10*time.Second, "their leases are over", over)
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
					for err = locker.ErrHeld; errors.Is(err, locker.ErrHeld); time.Sleep(20 * time.Millisecond) {
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
				}
				s.queued(t, "n", 2)
				require.NoError(t, stays.Hold.Release(ctx))
				return
			}
			// Who lives leaves when the leases of the others have been over for some time.
			eventually(t, 10*time.Second, "their leases are over", over)
			if asks == "tries" {
				s.queued(t, "n", 2) // whoever is refused has found them, beside one that lives
			} else {
				time.Sleep(ttl / 4)
			}
			require.NoError(t, stays.Hold.Release(ctx))
			require.NoError(t, <-done)
			took := time.Since(began)
			t.Logf("free %v after %d died, %v are declared", took, many, declared)
			assert.Less(t, took, declared)
			assert.Greater(t, took, 2*ttl-time.Second)
		})
	}
}

// As many as may be share a name, with a shadow each, and one more is told so. A writer gets in behind them.
func TestAsManySharersAsMayBe(t *testing.T) {
	s := newScene(t, 1)
	ctx := t.Context()
	b, err := etcd.New(dial(t, s.Addrs()), &etcd.Options{StrictExpiry: true, MaxTTL: time.Minute})
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	holds := make([]locker.Hold, locker.MaxSharers)
	began := time.Now()
	var all sync.WaitGroup
	const callers = 64
	for first := range callers {
		all.Go(func() {
			for i := first; i < len(holds); i += callers {
				grant, err := b.Acquire(ctx, sharedRequest("n", time.Minute, i%2 == 0))
				assert.NoError(t, err)
				holds[i] = grant.Hold
			}
		})
	}
	all.Wait()
	t.Logf("acquire: %v each of %d", time.Since(began)/time.Duration(len(holds)), len(holds))
	for _, wait := range []bool{false, true} {
		grant, err := b.Acquire(ctx, sharedRequest("n", time.Minute, wait))
		require.ErrorIs(t, err, locker.ErrRefused)
		assert.ErrorContains(t, err, `4096 share "n"`)
		assert.Nil(t, grant.Hold, "it has left nothing")
	}
	began = time.Now()
	st, err := b.Inspect(ctx, "n")
	require.NoError(t, err)
	assert.Equal(t, locker.MaxSharers, st.Sharers)
	t.Logf("inspect: %v", time.Since(began))
	began = time.Now()
	_, err = b.Acquire(ctx, request("n", time.Minute, false))
	require.ErrorIs(t, err, locker.ErrHeld)
	t.Logf("a writer is refused: %v", time.Since(began))
	in := make(chan locker.Grant, 1)
	go func() {
		grant, err := backend(t, s.Addrs()).Acquire(ctx, request("n", time.Minute, true))
		assert.NoError(t, err)
		in <- grant
	}()
	s.queued(t, "n", 2*len(holds)+1)
	require.NoError(t, holds[7].Release(ctx))
	_, err = b.Acquire(ctx, sharedRequest("n", time.Minute, false))
	require.ErrorIs(t, err, locker.ErrHeld, "the writer waits")
	began = time.Now()
	st, err = b.Break(ctx, "n")
	require.NoError(t, err)
	assert.Equal(t, len(holds)-1, st.Sharers)
	require.NoError(t, (<-in).Hold.Release(ctx))
	t.Logf("break, and a writer gets in: %v", time.Since(began))
	s.queued(t, "n", 0)
	require.ErrorIs(t, holds[0].Release(ctx), locker.ErrLost)
}

// A third are writers, and networks, members and the calls themselves come to grief all the time: no writer
// holds beside anybody, tokens of writers rise, nobody is stuck, and nothing is left.
func TestProveReadersAndWritersUnderFaults(t *testing.T) {
	lab.NeedProve(t)
	t.Parallel()
	const clients, names, turns, ttl = 8, 3, 3_000, 3 * time.Second
	s := newScene(t, 3)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	type held struct {
		l      *locker.Lease
		writes bool
	}
	var mu sync.Mutex
	var holders [names][]*held
	var last [names]uint64
	var done, writers, lost, together, longest int64
	enter := func(n int, h *held) {
		mu.Lock()
		defer mu.Unlock()
		readers := int64(0)
		for _, other := range holders[n] {
			// Who has not noticed the end of its lease yet does not believe in it.
			if other.l.Err() == nil && time.Now().Before(other.l.Until()) && h.l.Err() == nil {
				if h.writes || other.writes {
					assert.Fail(t, "a writer beside another", "writes: %t and %t", h.writes, other.writes)
				}
				readers++
			}
		}
		together = max(together, readers+1)
		if token, _ := h.l.Token(); h.writes {
			assert.Greater(t, token, last[n])
			last[n] = token
			writers++
		} else {
			assert.Zero(t, token)
		}
		holders[n] = append(holders[n], h)
		done++
	}
	leave := func(n int, h *held) {
		mu.Lock()
		defer mu.Unlock()
		holders[n] = slices.DeleteFunc(holders[n], func(other *held) bool { return other == h })
	}
	var networks []*cut
	var all sync.WaitGroup
	var close []func()
	for i := range clients {
		network := newCut(t)
		networks = append(networks, network)
		opts := &etcd.Options{Timeout: time.Second, StrictExpiry: i%2 == 0, MaxTTL: ttl}
		b, err := etcd.New(dial(t, s.Addrs(), through(network.dial)), opts)
		require.NoError(t, err)
		c := locker.New(b, &locker.Options{TTL: ttl, Patience: time.Minute})
		close = append(close, func() { _ = c.Close(); _ = b.Close() })
		for range 6 {
			all.Go(func() {
				for ctx.Err() == nil {
					n, h := rand.IntN(names), &held{writes: rand.IntN(3) == 0}
					var opts []locker.Option
					if !h.writes {
						opts = append(opts, locker.Shared())
					}
					patience := time.Minute
					if rand.IntN(8) == 0 {
						patience = time.Duration(rand.IntN(20)) * time.Millisecond
					}
					asking, cancel := context.WithTimeout(ctx, patience)
					began := time.Now()
					var err error
					if h.l, err = c.Lock(asking, fmt.Sprint("n", n), opts...); err == nil {
						enter(n, h)
						select {
						case <-time.After(time.Duration(rand.IntN(5)) * time.Millisecond):
						case <-h.l.Done():
							mu.Lock()
							lost++
							mu.Unlock()
						}
						leave(n, h)
						_ = h.l.Unlock(ctx)
					} else if patience == time.Minute && ctx.Err() == nil {
						assert.NoError(t, err)
					}
					mu.Lock()
					longest = max(longest, int64(time.Since(began)))
					mu.Unlock()
					cancel()
				}
			})
		}
	}
	count := func() int64 {
		mu.Lock()
		defer mu.Unlock()
		return done
	}
	began := time.Now()
	for fault := 0; count() < turns && time.Since(began) < 4*time.Minute && !t.Failed(); fault++ {
		pause := func(d time.Duration) { time.Sleep(d/2 + rand.N(d)) }
		switch network := networks[rand.IntN(clients)]; fault % 5 {
		case 0:
			network.set(lab.Pass, lab.Drop)
			pause(200 * time.Millisecond)
			network.set(lab.Pass, lab.Pass)
		case 1:
			network.set(lab.Hold, lab.Pass)
			pause(500 * time.Millisecond)
			network.set(lab.Pass, lab.Pass)
		case 2:
			network.set(lab.Drop, lab.Drop)
			pause(ttl) // some lose their session
			network.set(lab.Pass, lab.Pass)
		case 3:
			m := s.Leader(t)
			m.Kill()
			pause(300 * time.Millisecond)
			m.Restart(t)
		case 4:
			m := s.Nodes[rand.IntN(3)]
			m.Pause()
			pause(ttl / 4)
			m.Resume()
		}
		pause(300 * time.Millisecond)
	}
	stop()
	all.Wait()
	for _, c := range close {
		c()
	}
	t.Logf("%d turns in %v, %d of writers, at most %d together, %d leases lost, the longest wait %v",
		count(), time.Since(began), writers, together, lost, time.Duration(longest))
	assert.GreaterOrEqual(t, count(), int64(turns))
	c := client(t, s.Addrs(), time.Minute)
	for n := range names { // some have left a shadow, for whoever asks
		l, err := c.Lock(within(t, 30*time.Second), fmt.Sprint("n", n))
		require.NoError(t, err)
		require.NoError(t, l.Unlock(t.Context()))
	}
	eventually(t, 10*time.Second, "nothing is left", func() bool { return len(keysOf(t, s)) == 0 })
}

func keysOf(t *testing.T, s scene) []string { return all(t, s.admin) }
