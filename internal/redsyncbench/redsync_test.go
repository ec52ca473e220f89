// Package redsyncbench compares package redlock with redsync, the most used
// client of the algorithm, with the same options of the Redis clients.
package redsyncbench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-redsync/redsync/v4"
	rsredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/redlock"
)

// BenchmarkCallers256 is 256 goroutines that take locks with names of their own
// on five nodes and release them.
func BenchmarkCallers256(b *testing.B) {
	var ours []*redis.Client
	var theirs []rsredis.Pool
	for range 5 {
		s := lab.StartRedis(b)
		client := func() *redis.Client {
			c := redis.NewClient(&redis.Options{Addr: s.Addr()})
			b.Cleanup(func() { _ = c.Close() })
			return c
		}
		ours = append(ours, client())
		theirs = append(theirs, goredis.NewPool(client()))
	}
	backend, err := redlock.New(ours, &redlock.Options{NoRestartGuard: true})
	if err != nil {
		b.Fatal(err)
	}
	locks := locker.New(backend, nil)
	defer func() {
		_ = locks.Close()
		_ = backend.Close()
	}()
	rs := redsync.New(theirs...)

	run := func(name string, pair func(ctx context.Context, name string) error) {
		b.Run(name, func(b *testing.B) {
			callers(b, 1000, pair)
			b.ResetTimer()
			callers(b, b.N, pair)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "locks/s")
		})
	}
	for range 3 {
		run("redsync", func(ctx context.Context, name string) error {
			m := rs.NewMutex(name, redsync.WithExpiry(locker.DefaultTTL))
			if err := m.LockContext(ctx); err != nil {
				return err
			}
			_, err := m.UnlockContext(ctx)
			return err
		})
		run("locker", func(ctx context.Context, name string) error {
			l, err := locks.Lock(ctx, name)
			if err != nil {
				return err
			}
			return l.Unlock(ctx)
		})
	}
}

func callers(b *testing.B, n int, pair func(ctx context.Context, name string) error) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for g := range 256 {
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
