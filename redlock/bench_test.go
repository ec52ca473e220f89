package redlock_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/redlock"
)

// The names and units are those that internal/benchtable reads. The comparison with
// redsync is in compare/peers.

const benchNodes = 5

// benchSetup is five servers, one go-redis client for each, and a Client of
// this library on them. The guard is off, for the servers are new.
func benchSetup(b *testing.B) (s *nodes, clients []*redis.Client, locks *locker.Client) {
	s = start(b, benchNodes)
	for _, r := range s.servers {
		c := redis.NewClient(&redis.Options{Addr: r.Addr()})
		b.Cleanup(func() { _ = c.Close() })
		clients = append(clients, c)
	}
	backend, err := redlock.New(clients, &redlock.Options{NoRestartGuard: true})
	require.NoError(b, err)
	locks = locker.New(backend, nil)
	b.Cleanup(func() {
		_ = locks.Close()
		_ = backend.Close()
	})
	return s, clients, locks
}

// rawPairs is what the commands cost by themselves: on all nodes at the same
// time, as long as the slowest takes.
func rawPairs(b *testing.B, clients []*redis.Client) func(ctx context.Context, name string) error {
	const deleteOwn = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`
	var sha string
	for _, c := range clients {
		var err error
		sha, err = c.ScriptLoad(b.Context(), deleteOwn).Result()
		require.NoError(b, err)
	}
	return func(ctx context.Context, name string) error {
		var random [20]byte
		_, _ = rand.Read(random[:])
		key, owner := "raw:"+name, hex.EncodeToString(random[:])
		errs := make(chan error, len(clients))
		for _, c := range clients {
			go func() {
				if ok, err := c.SetNX(ctx, key, owner, locker.DefaultTTL).Result(); err != nil || !ok {
					errs <- fmt.Errorf("SET NX: %v, %w", ok, err)
					return
				}
				if n, err := c.EvalSha(ctx, sha, []string{key}, owner).Int(); err != nil || n != 1 {
					errs <- fmt.Errorf("EVALSHA: %v, %w", n, err)
					return
				}
				errs <- nil
			}()
		}
		var failed error
		for range clients {
			if err := <-errs; err != nil {
				failed = err
			}
		}
		return failed
	}
}

func viaLocker(c *locker.Client) func(ctx context.Context, name string) error {
	return func(ctx context.Context, name string) error {
		l, err := c.Lock(ctx, name)
		if err != nil {
			return err
		}
		return l.Unlock(ctx)
	}
}

// BenchmarkRedlockUncontended is one caller that takes a free lock on five
// nodes and releases it.
func BenchmarkRedlockUncontended(b *testing.B) {
	_, clients, locks := benchSetup(b)
	run := func(name string, pair func(context.Context, string) error) {
		b.Run(name, func(b *testing.B) {
			for i := range 100 {
				require.NoError(b, pair(b.Context(), "warm"+strconv.Itoa(i)))
			}
			n := 0
			for b.Loop() {
				// Names of their own: the last release's stragglers are no contenders.
				if err := pair(b.Context(), strconv.Itoa(n)); err != nil {
					b.Fatal(err)
				}
				n++
			}
			b.ReportMetric(1.25, "target-time")
		})
	}
	for range 3 {
		run("raw", rawPairs(b, clients))
		run("locker", viaLocker(locks))
	}
}

// BenchmarkRedlockCurve is how the pairs of a second change with the number of
// callers: nobody is refused, and 16 times the callers of the peak get most of it
// (R21).
func BenchmarkRedlockCurve(b *testing.B) {
	_, _, locks := benchSetup(b)
	for goroutines := 64; goroutines <= 16384; goroutines *= 4 {
		b.Run(fmt.Sprintf("callers=%d", goroutines), func(b *testing.B) {
			callers(b, goroutines, 2*goroutines, viaLocker(locks))
			b.ResetTimer()
			callers(b, goroutines, b.N, viaLocker(locks))
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pairs/s")
		})
	}
}

// callers shares n pairs out among goroutines with names of their own.
func callers(b *testing.B, goroutines, n int, pair func(context.Context, string) error) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				if err := pair(b.Context(), fmt.Sprint(g, "-", i)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkRedlockHung is the 99th percentile of an acquire with nodes hung,
// beside that with none hung, which stands for raw here.
func BenchmarkRedlockHung(b *testing.B) {
	for hung := 1; hung <= 2; hung++ {
		b.Run(fmt.Sprintf("nodes=%d", hung), func(b *testing.B) {
			s, _, locks := benchSetup(b)
			run := func(name string) {
				b.Run(name, func(b *testing.B) {
					acquire := func(name string) time.Duration {
						began := time.Now()
						l, err := locks.Lock(b.Context(), name)
						took := time.Since(began)
						require.NoError(b, err)
						require.NoError(b, l.Unlock(b.Context()))
						return took
					}
					for i := range 200 {
						acquire("warm" + strconv.Itoa(i))
					}
					var took []time.Duration
					for b.Loop() {
						took = append(took, acquire(strconv.Itoa(len(took))))
					}
					slices.Sort(took)
					b.ReportMetric(float64(took[len(took)*99/100]), "ns/op")
					b.ReportMetric(1.5, "target-time")
				})
			}
			for range 3 {
				run("raw")
				for i := range hung {
					s.servers[i].Pause()
				}
				run("locker")
				for i := range hung {
					s.servers[i].Resume()
				}
				within(b, 10*time.Second, "they answer again", func() bool {
					l, err := locks.Lock(b.Context(), "again")
					if err == nil {
						_ = l.Unlock(b.Context())
					}
					return s.holders(b, "again") == 0
				})
			}
		})
	}
}
