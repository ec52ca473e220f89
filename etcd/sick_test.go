package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
)

// One member of three is sick, and clients reach it all the same. Taking turns
// among the members made half of all Locks fail after nine seconds (R23).
func TestProveOneSickMemberCostsLittle(t *testing.T) {
	lab.NeedProve(t)
	t.Parallel()
	for how, fault := range map[string]func(t *testing.T, s scene) (addrs []string, begin func() (end func())){
		"cut off from its peers": func(t *testing.T, s scene) ([]string, func() func()) {
			return s.Addrs(), func() func() { return s.Isolate(s.Follower(t)) }
		},
		"the leader is cut off": func(t *testing.T, s scene) ([]string, func() func()) {
			return s.Addrs(), func() func() { return s.Isolate(s.Leader(t)) }
		},
		"paused": func(t *testing.T, s scene) ([]string, func() func()) {
			return s.Addrs(), func() func() {
				sick := s.Follower(t)
				sick.Pause()
				return sick.Resume
			}
		},
		"slow": func(t *testing.T, s scene) ([]string, func() func()) {
			sick := lab.StartProxy(t, s.Nodes[0].Addr())
			return []string{sick.Addr(), s.Nodes[1].Addr(), s.Nodes[2].Addr()}, func() func() {
				sick.SetDelay(2 * time.Second)
				return func() { sick.SetDelay(0) }
			}
		},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, 3, lab.WithPeerProxies())
			addrs, begin := fault(t, s)
			const clients, each = 6, 10
			var locks []*locker.Client
			for range clients {
				c := client(t, addrs, 20*time.Second)
				l := locktest.Lock(t, c, "warm")
				require.NoError(t, l.Unlock(t.Context()))
				locks = append(locks, c)
			}
			defer begin()()
			if how == "the leader is cut off" {
				// Nothing can be had during the election, which is not what is measured.
				eventually(t, 30*time.Second, "another leader", func() bool {
					l, err := locks[0].TryLock(t.Context(), "elected")
					return err == nil && l.Unlock(t.Context()) == nil
				})
			}
			var mu sync.Mutex
			var took []time.Duration
			var all sync.WaitGroup
			for i, c := range locks {
				all.Go(func() {
					for n := range each {
						began := time.Now()
						l, err := c.Lock(t.Context(), fmt.Sprintf("%d-%d", i, n))
						if !assert.NoError(t, err) {
							return
						}
						locked := time.Now()
						assert.NoError(t, l.Unlock(t.Context()))
						mu.Lock()
						took = append(took, locked.Sub(began), time.Since(locked))
						mu.Unlock()
					}
				})
			}
			all.Wait()
			require.Len(t, took, 2*clients*each)
			slices.Sort(took)
			t.Logf("median %v, the worst %v", took[len(took)/2], took[len(took)-1])
			// Where the healthy ones are slow as well, the machine has much to do.
			assert.Less(t, took[len(took)*98/100], min(time.Second+20*took[len(took)/2], 1900*time.Millisecond))
		})
	}
}

// A leader is stopped for longer than a TTL and goes on, while the lock passes
// from one to the next.
func TestProveLeaderThatWakesUpNeverMakesTwoStrictHolders(t *testing.T) {
	lab.NeedProve(t)
	s := parallelScene(t, 3)
	const ttl = 2 * time.Second
	var inside atomic.Int32
	ctx, cancel := context.WithCancel(t.Context())
	var workers sync.WaitGroup
	for range 3 {
		c := locktest.Must(locker.New(strictBackend(t, s), &locker.Options{TTL: ttl}))
		t.Cleanup(func() { _ = c.Close() })
		workers.Go(func() {
			for ctx.Err() == nil {
				l, err := c.Lock(ctx, "n")
				if err != nil {
					continue
				}
				assert.EqualValues(t, 1, inside.Add(1), "one holds it")
				select {
				case <-l.Done():
				case <-time.After(3 * ttl): // long enough to be revoked
				}
				inside.Add(-1)
				_ = l.Unlock(t.Context())
			}
		})
	}
	for range 2 {
		leader := s.Leader(t)
		eventually(t, 30*time.Second, "somebody holds it", func() bool { return inside.Load() == 1 })
		leader.Pause()
		s.Leader(t, leader)
		time.Sleep(ttl + ttl/2)
		leader.Resume()
		time.Sleep(ttl / 2)
	}
	cancel()
	workers.Wait()
}

// A leader hangs for longer than a TTL, and the others elect another at once: a member that waits for the old
// one is not waited for, and nearly all leases are kept meanwhile. What the old leader does when it goes on,
// which believes that all of them have expired, makes no two hold.
func TestProveLeaderThatHangsCostsFewLeases(t *testing.T) {
	lab.NeedProve(t)
	const ttl, many = 5 * time.Second, 12
	for version, opts := range versions {
		t.Run(version, func(t *testing.T) {
			s := newScene(t, 3, opts...)
			var leases []*locker.Lease
			var next []<-chan locked
			for i := range many {
				c := locktest.Client(t, strictBackend(t, s), &locker.Options{TTL: ttl, OutageTimeout: 30 * time.Second})
				leases = append(leases, locktest.Lock(t, c, fmt.Sprint(i)))
				next = append(next, lockLater(t.Context(), client(t, s.Addrs(), time.Minute), fmt.Sprint(i)))
			}
			leader := s.Leader(t)
			leader.Pause()
			stopped := time.Now()
			s.Leader(t, leader)
			elected := time.Since(stopped)
			t.Logf("another was elected after %v", elected)
			time.Sleep(ttl*3/2 - time.Since(stopped))
			lost := 0
			for _, l := range leases {
				if l.Err() != nil {
					lost++
				}
			}
			leader.Resume()
			time.Sleep(ttl)
			revoked := -lost
			for i, l := range leases {
				isLost := l.Err() != nil
				if isLost {
					revoked++
					t.Logf("%d: its time was over %v after the leader was stopped: %v", i, l.Until().Sub(stopped), l.Err())
				} else {
					assert.NoError(t, l.Unlock(within(t, 20*time.Second)))
				}
				got := s.get(t, next[i], time.Minute)
				assert.True(t, !isLost || l.Until().Before(got.at), "the next got in %v before", l.Until().Sub(got.at))
				assert.NoError(t, got.lease.Unlock(within(t, 20*time.Second)))
			}
			t.Logf("%d were lost while the leader was stopped, and %d when it went on", lost, revoked)
			if elected < ttl/2 { // before that, nothing can be renewed
				assert.LessOrEqual(t, lost, 1)
			}
		})
	}
}

// Each waiter used to poll, for ever; and where watches were late, as on etcd
// 3.4, all of them watched again until the sessions starved.
func TestProveManyWaitersCostNextToNothing(t *testing.T) {
	lab.NeedProve(t)
	for version, opts := range versions {
		t.Run(version, func(t *testing.T) {
			s := newScene(t, 1, opts...)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			const ttl = 10 * time.Second
			n := manyWaiters()
			held := backend(t, s.Addrs())
			var grants []driver.Grant // a hundred wait for each
			name := func(i int) string { return fmt.Sprint("n", i/100) }
			for i := 0; i < n; i += 100 {
				g := locktest.Acquire(t, held, request(name(i), time.Minute, false))
				grants = append(grants, g)
			}
			var asked atomic.Int64
			b := backend(t, s.Addrs(), intercepted(func(_ context.Context, _ string, send func() error) error {
				asked.Add(1)
				return send()
			}))
			before, asking := runtime.NumGoroutine(), time.Now()
			// So few hardly share the requests by which they look again, which a slow machine may see: two of each,
			// after ten seconds at the earliest.
			look := func() bool { return n <= 1000 && time.Since(asking) > 10*time.Second }
			var lost atomic.Int32
			var waiters sync.WaitGroup
			for i := range n {
				req := request(name(i), ttl, true)
				req.Lost = func() { lost.Add(1) }
				waiters.Go(func() {
					g, err := locktest.Ask(ctx, b, req)
					for ; errors.Is(err, driver.ErrUnavailable) && ctx.Err() == nil; g, err = locktest.Ask(ctx, b, req) {
						// As the engine does: the machine has much to do.
						if g.Hold != nil {
							_ = g.Hold.Undo(ctx)
						}
						req.Owner = request("", ttl, true).Owner
					}
					if ctx.Err() == nil && assert.NoError(t, err) {
						_ = g.Hold.Release(t.Context(), 0)
					}
				})
			}
			s.watchedWithin(t, time.Minute+time.Duration(n)*10*time.Millisecond, n)
			eventually(t, 30*time.Second, "nobody asks any more", func() bool {
				had := asked.Load()
				time.Sleep(500 * time.Millisecond)
				return asked.Load() <= had+5 || look()
			})
			goroutines := float64(runtime.NumGoroutine()-before) / float64(n)
			had, began := asked.Load(), time.Now()
			time.Sleep(
				map[bool]time.Duration{false: ttl / 2, true: 3 * ttl}[n > 1000],
			) // longer than from one look to the next
			rate := float64(asked.Load()-had) / time.Since(began).Seconds()
			t.Logf("%.1f requests/s, %.2f goroutines each", rate, goroutines)
			most := 20.
			if look() {
				most += 2 * float64(n) / 10
			}
			assert.Less(t, rate, most)
			assert.Less(t, goroutines, 2.1)
			assert.Zero(t, lost.Load())
			for _, g := range grants {
				require.NoError(t, g.Hold.Release(ctx, 0))
			}
			eventually(t, time.Minute+time.Duration(n)*10*time.Millisecond,
				"they get it one after the other", func() bool { return len(all(t, s.admin)) == 0 })
			assert.Zero(t, lost.Load())
			cancel()
			waiters.Wait()
		})
	}
}

// manyWaiters is how many there are: the machine that runs the gate is small.
func manyWaiters() int {
	if n, err := strconv.Atoi(os.Getenv("LOCKER_ETCD_WAITERS")); err == nil {
		return n
	}
	return 500
}

// versions are the oldest and the newest etcd that are tested.
var versions = map[string][]lab.Option{"oldest": {lab.WithTool(lab.ToolOldEtcd)}, "newest": nil}
