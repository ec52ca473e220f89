// Package waiting is the benchmark of waiting for a lock, the same for every service: how long a
// release in one process takes to become the grant of one of a thousand callers in another.
package waiting

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/lab"
)

// Waiters wait for one name.
type Waiters struct {
	Ready chan struct{} // closed when all of them wait and are told of a release
	Got   chan time.Time
	Done  sync.WaitGroup
}

// Start has so many goroutines wait for name until ctx ends. They poll until they are told of
// releases: they are ready when they were refused twice, and not again for the time of settle.
func Start(ctx context.Context, c *locker.Client, name string, goroutines int,
	settle time.Duration) *Waiters {
	w := &Waiters{Ready: make(chan struct{}), Got: make(chan time.Time, goroutines)}
	refused := c.Stats().Refused
	for range goroutines {
		w.Done.Go(func() {
			l, err := c.Lock(ctx, name)
			if err != nil {
				return
			}
			w.Got <- time.Now()
			<-ctx.Done()
			_ = l.Unlock(context.WithoutCancel(ctx))
		})
	}
	w.Done.Go(func() {
		last, since := refused, time.Now()
		for ; ctx.Err() == nil; time.Sleep(time.Millisecond) {
			now := c.Stats()
			if now.Waiting != goroutines || now.Refused < refused+2 || now.Refused != last {
				last, since = now.Refused, time.Now()
			} else if time.Since(since) > settle {
				close(w.Ready)
				return
			}
		}
	})
	return w
}

// TakeOver returns what a child does with c: a thousand wait for the lock "job", until one has it.
func TakeOver(c *locker.Client, settle time.Duration) func(waiting func()) time.Time {
	return func(waiting func()) time.Time {
		ctx, cancel := context.WithCancel(context.Background())
		w := Start(ctx, c, "job", 1000, settle)
		<-w.Ready
		waiting()
		got := <-w.Got
		cancel()
		w.Done.Wait()
		return got
	}
}

// Play is the other process of HandOver. next calls waiting when it waits, and returns the time of its grant.
func Play(p *lab.Parent, next func(waiting func()) time.Time) {
	for {
		p.Hear()
		got := next(func() { p.Say("waiting") })
		p.Say("got %d", got.UnixNano())
	}
}

// Lock takes a lock, and returns what releases it.
type Lock func(context.Context) (unlock func(context.Context) error, err error)

// HandOver measures the time from a release here to the grant in a child, and compares it to one
// round trip, measured under the same conditions: after a pause, in which processors go to sleep and
// caches grow cold.
func HandOver(b *testing.B, child *lab.Child, roundTrip func(context.Context) error, lock Lock) {
	const pause = time.Millisecond
	ctx := b.Context()
	var handOvers, roundTrips []float64
	for b.Loop() {
		unlock, err := lock(ctx)
		require.NoError(b, err)
		child.Send(b, "wait")
		child.Expect(b, "waiting", time.Minute)
		time.Sleep(pause)
		began := time.Now()
		require.NoError(b, roundTrip(ctx))
		roundTrips = append(roundTrips, float64(time.Since(began)))

		time.Sleep(pause)
		released := time.Now().UnixNano() // the processes share the wall clock, not the monotonic one
		require.NoError(b, unlock(ctx))
		got, err := strconv.ParseInt(child.Expect(b, "got", time.Minute), 10, 64)
		require.NoError(b, err)
		handOvers = append(handOvers, float64(got-released))
	}
	b.ReportMetric(median(handOvers), "ns/op")
	b.ReportMetric(median(handOvers)/median(roundTrips), "round-trips")
}

// OfClient is the Lock of "job".
func OfClient(c *locker.Client) Lock {
	return func(ctx context.Context) (func(context.Context) error, error) {
		l, err := c.Lock(ctx, "job")
		if err != nil {
			return nil, err
		}
		return l.Unlock, nil
	}
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}
