package single_test

import (
	"context"
	"fmt"
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

// The names and units are those that internal/benchtable reads. What a lock costs
// beside the raw commands and other libraries is in compare/peers.

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
