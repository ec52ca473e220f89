//go:build !race

package locker_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/metrics"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/internal/memlock"
)

// heapLive is what is in use after a collection, in bytes.
func heapLive() int64 {
	runtime.GC()
	runtime.GC() // what finalizers and pools kept
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(s)
	return int64(s[0].Value.Uint64())
}

// A client keeps nothing of what is over: 10,000 leases are renewed for ten hours, each fifteen times, and
// 100,000 names come and go beside them, each with a waiter that gets in and with one that gives up. From
// hour to hour, memory and goroutines stay as they are.
func TestManyNamesOverHours(t *testing.T) {
	const leases, names, hours = 10_000, 100_000, 10
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		c := locktest.Client(t, memlock.New(true), &locker.Options{TTL: 2 * time.Hour})
		held := make([]*locker.Lease, leases)
		for i := range held {
			var err error
			held[i], err = c.TryLock(ctx, fmt.Sprintf("held-%d", i))
			require.NoError(t, err)
		}
		var heap []int64
		var goroutines []int
		for hour := range hours {
			leaving, leave := context.WithCancel(ctx)
			var all sync.WaitGroup
			var brief []*locker.Lease
			for i := range names / hours {
				name := fmt.Sprintf("name-%d-%d", hour, i)
				l, err := c.TryLock(ctx, name)
				require.NoError(t, err)
				brief = append(brief, l)
				all.Go(func() {
					if _, err := c.Lock(leaving, name); !errors.Is(err, context.Canceled) {
						t.Errorf("%s: who gave up was told: %v", name, err)
					}
				})
				all.Go(func() {
					err := locker.Do(ctx, c, name, func(context.Context) error { return nil })
					if err != nil {
						t.Errorf("%s: %v", name, err)
					}
				})
			}
			synctest.Wait()
			leave()
			synctest.Wait()
			for _, l := range brief {
				require.NoError(t, l.Unlock(ctx))
			}
			all.Wait()
			time.Sleep(time.Hour)
			synctest.Wait()
			heap, goroutines = append(heap, heapLive()), append(goroutines, runtime.NumGoroutine())
		}
		t.Log("bytes:", heap, "goroutines:", goroutines)
		// What is over may stay until its TTL. Five bytes for each name that has come and gone would be found.
		grown := slices.Min(heap[hours/2:]) - slices.Min(heap[1:hours/2])
		assert.Less(t, grown, int64(5*names), "memory grows: %v", heap)
		assert.LessOrEqual(t, goroutines[hours-1], goroutines[1], "goroutines grow")
		for _, l := range held {
			require.NoError(t, l.Err())
			require.NoError(t, l.Unlock(ctx))
		}
	})
}
