package single_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/single"
)

// The names and units are those that internal/benchtable reads.

// deleteOwn is what whoever writes a lock by hand releases it with.
const deleteOwn = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`

// once takes a lock of that name and releases it.
type once func(ctx context.Context, name string) error

// bench is one server and one go-redis client, which the contenders share.
type bench struct {
	server *lab.Redis
	rdb    *redis.Client
	locks  *locker.Client
}

func newBench(b *testing.B) *bench {
	s := &bench{server: lab.StartRedis(b)}
	s.rdb = redis.NewClient(&redis.Options{Addr: s.server.Addr()})
	b.Cleanup(func() { require.NoError(b, s.rdb.Close()) })
	s.locks = s.client(b, locker.DefaultTTL)
	return s
}

// client returns another Client on the same go-redis client.
func (s *bench) client(b *testing.B, ttl time.Duration) *locker.Client {
	backend, err := single.New(s.rdb, nil)
	require.NoError(b, err)
	c := locker.New(backend, &locker.Options{TTL: ttl})
	b.Cleanup(func() {
		require.NoError(b, c.Close())
		require.NoError(b, backend.Close())
	})
	return c
}

// raw is what the commands cost by themselves: no token, nobody woken, nothing
// renewed, nothing taken back.
func raw(b *testing.B, client redis.Cmdable) once {
	sha, err := client.ScriptLoad(b.Context(), deleteOwn).Result()
	require.NoError(b, err)
	return func(ctx context.Context, name string) error {
		var random [20]byte
		_, _ = rand.Read(random[:])
		key, owner := "raw:"+name, hex.EncodeToString(random[:])
		if ok, err := client.SetNX(ctx, key, owner, locker.DefaultTTL).Result(); err != nil || !ok {
			return fmt.Errorf("SET NX: %v, %w", ok, err)
		}
		if n, err := client.EvalSha(ctx, sha, []string{key}, owner).Int(); err != nil || n != 1 {
			return fmt.Errorf("EVALSHA: %v, %w", n, err)
		}
		return nil
	}
}

func viaLocker(c *locker.Client) once {
	return func(ctx context.Context, name string) error {
		l, err := c.Lock(ctx, name)
		if err != nil {
			return err
		}
		return l.Unlock(ctx)
	}
}

// turns is how often the contenders of a topic take turns in one run: how long a
// round trip takes changes by a factor of four with where the kernel puts the
// processes, and that changes every few seconds.
const turns = 3

// BenchmarkUncontended is one caller that takes a free lock and releases it.
func BenchmarkUncontended(b *testing.B) {
	s := newBench(b)
	run := func(name string, pair once) {
		b.Run(name, func(b *testing.B) {
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			require.NoError(b, callers(ctx, 1, 200, pair)) // connections, scripts
			for b.Loop() {
				if err := pair(ctx, "job"); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(1.10, "target-time")
		})
	}
	for range turns {
		run("raw", raw(b, s.rdb))
		run("locker", viaLocker(s.locks))
	}
}

// BenchmarkCallers256 is 256 goroutines that do so with names of their own. The
// third contender sends the raw commands through go-redis's own pipelining.
func BenchmarkCallers256(b *testing.B) {
	const goroutines = 256
	s := newBench(b)
	auto, err := s.rdb.AutoPipeline()
	require.NoError(b, err)
	defer func() { require.NoError(b, auto.Close()) }()
	run := func(name string, pair once) {
		b.Run(name, func(b *testing.B) {
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			require.NoError(b, callers(ctx, goroutines, 10*goroutines, pair))
			b.ResetTimer()
			require.NoError(b, callers(ctx, goroutines, b.N, pair))
			b.ReportMetric(3, "target-speed")
		})
	}
	for range turns {
		run("raw", raw(b, s.rdb))
		run("locker", viaLocker(s.locks))
		run("autopipeline", raw(b, auto))
	}
}

// BenchmarkCurve is how the pairs of a second change with the number of callers:
// nobody is refused, and 16 times the callers of the peak get most of it (R21).
func BenchmarkCurve(b *testing.B) {
	s := newBench(b)
	for goroutines := 64; goroutines <= 16384; goroutines *= 4 {
		b.Run(fmt.Sprintf("callers=%d", goroutines), func(b *testing.B) {
			require.NoError(b, callers(b.Context(), goroutines, 2*goroutines, viaLocker(s.locks)))
			b.ResetTimer()
			require.NoError(b, callers(b.Context(), goroutines, b.N, viaLocker(s.locks)))
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pairs/s")
		})
	}
}

// callers shares n pairs out among goroutines with names of their own.
func callers(ctx context.Context, goroutines, n int, pair once) error {
	var all sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(n))
	failed := make(chan error, goroutines)
	for i := range goroutines {
		all.Go(func() {
			name := "job-" + strconv.Itoa(i)
			for left.Add(-1) >= 0 {
				if err := pair(ctx, name); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	all.Wait()
	close(failed)
	return <-failed
}

// BenchmarkHeld10000 is 10,000 leases that are held and renewed.
func BenchmarkHeld10000(b *testing.B) {
	const (
		leases = 10_000
		ttl    = 9 * time.Second
		cycle  = ttl / 3 // in which each is renewed about once
	)
	names := make([]string, leases)
	for i := range names {
		names[i] = "job-" + strconv.Itoa(i)
	}
	held := make([]*locker.Lease, leases)
	s := newBench(b)
	b.Run("locker", func(b *testing.B) {
		ctx := b.Context()
		c := s.client(b, ttl)
		require.NoError(b, callers(ctx, 4, 100, viaLocker(c))) // connections, scripts
		heap, goroutines := heapInUse(), runtime.NumGoroutine()
		began := time.Now()
		for i, name := range names {
			// Evenly over the cycle: leases taken in a burst share their renewals anyway.
			if ahead := cycle*time.Duration(i)/leases - time.Since(began); ahead > 5*time.Millisecond {
				time.Sleep(ahead)
			}
			var err error
			held[i], err = c.Lock(ctx, name)
			require.NoError(b, err)
		}
		heap = heapInUse() - heap
		for b.Loop() {
			renewed, reads := c.Stats().Renewed, s.reads(b)
			most := 0
			for end := time.Now().Add(cycle); time.Now().Before(end); time.Sleep(time.Millisecond) {
				most = max(most, runtime.NumGoroutine()-goroutines)
			}
			renewed, reads = c.Stats().Renewed-renewed, s.reads(b)-reads
			b.ReportMetric(float64(most), "goroutines")
			b.ReportMetric(float64(reads)/float64(renewed), "round-trips/renewal")
			b.ReportMetric(float64(renewed)/cycle.Seconds(), "renewals/s")
		}
		b.ReportMetric(leases/10, "target:goroutines")
		b.ReportMetric(float64(heap)/leases, "heap-B/lease")
		b.ReportMetric(1024, "target:heap-B/lease")
		b.ReportMetric(0.5, "target:round-trips/renewal")
		b.ReportMetric(0, "ns/op")
		require.Zero(b, c.Stats().Lost)
		for _, l := range held {
			require.NoError(b, l.Unlock(ctx))
		}
	})
}

// reads is how often the server has read from its clients.
func (s *bench) reads(b *testing.B) uint64 {
	n, err := strconv.ParseUint(s.server.Info(b, "stats")["total_reads_processed"], 10, 64)
	require.NoError(b, err)
	return n
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC() // what was only reachable from pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
