package locker

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/driver"
)

// crowd is a service that grants everything, and keeps nothing of it. What is set is called.
type crowd struct {
	granting
	asked          func()
	renew, release func(ctx context.Context) error
	drift          time.Duration // of what a renewal brings
	kept           atomic.Int64  // how long by the last release
}

func (s *crowd) Acquire(_ context.Context, req driver.Request) (driver.Grant, error) {
	if s.asked != nil {
		s.asked()
	}
	return driver.Grant{Hold: s, Validity: driver.Validity{Since: time.Now(), TTL: req.TTL}}, nil
}

func (s *crowd) Renew(ctx context.Context) (driver.Validity, error) {
	return driver.Validity{Since: time.Now(), TTL: 9 * time.Second, Drift: s.drift}, s.renew(ctx)
}

func (s *crowd) Release(ctx context.Context, keep time.Duration) error {
	if s.kept.Store(int64(keep)); s.release != nil {
		return s.release(ctx)
	}
	return nil
}

func (s *crowd) Undo(ctx context.Context) error { return s.Release(ctx, 0) }

func well(context.Context) error { return nil }

func hangs(ctx context.Context) error {
	<-ctx.Done()
	return fmt.Errorf("no answer: %w", ErrUnavailable)
}

// withCrowd locks n names, one after the other with a pause between two.
func withCrowd(t *testing.T, s *crowd, n int, pause time.Duration) (*Client, []*Lease) {
	c := must(New(s, &Options{TTL: 9 * time.Second}))
	names, leases := make([]string, n), make([]*Lease, n)
	for i := range names {
		names[i] = fmt.Sprint("lease ", i)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range leases {
		var err error
		leases[i], err = c.Lock(t.Context(), names[i])
		require.NoError(t, err)
		time.Sleep(pause)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if each := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / int64(n); n >= 10_000 {
		t.Logf("%d bytes of heap for each lease", each)
		assert.Less(t, each, int64(1024))
	}
	return c, leases
}

// A lease that is held has a heap entry, and no goroutine; renewals that are due at about the same time are made
// at the same time, so that a backend can send them together.
func TestTenThousandLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 10_000
		moments := make(chan time.Time, 10*n)
		goroutines := runtime.NumGoroutine()
		renew := func(context.Context) error { moments <- time.Now(); return nil }
		c, leases := withCrowd(t, &crowd{renew: renew, release: well}, n, 900*time.Microsecond)
		time.Sleep(18 * time.Second)
		synctest.Wait()
		// A few may be the runtime's own, such as the one that runs finalizers. While it moves ended ones from one
		// list to another, it counts them.
		for try := 0; try < 1000 && runtime.NumGoroutine() >= goroutines+10; try++ {
			runtime.Gosched()
		}
		assert.Less(t, runtime.NumGoroutine(), goroutines+10, "held leases have no goroutines")
		renewed := int(c.Stats().Renewed)
		assert.InDelta(t, 7.7*n, renewed, n)
		crowds := map[time.Time]bool{}
		for range renewed {
			crowds[<-moments] = true
		}
		assert.Less(t, len(crowds), renewed/50, "moments at which there were renewals")
		assert.Greater(t, len(crowds), 100, "they are not made in one crowd")
		for _, l := range leases {
			require.NoError(t, l.Err())
		}
		require.NoError(t, c.Close())
	})
}

func TestHangingServiceDoesNotPileUpGoroutines(t *testing.T) {
	require.Eventually(t, func() bool { return runtime.NumGoroutine() < 100 }, 30*time.Second, 10*time.Millisecond,
		"those of the test before")
	synctest.Test(t, func(t *testing.T) {
		var back atomic.Bool
		var takeBacks, most atomic.Int64
		c, _ := withCrowd(t, &crowd{renew: hangs, release: func(ctx context.Context) error {
			if back.Load() {
				return nil
			}
			most.Store(max(most.Load(), takeBacks.Add(1)))
			defer takeBacks.Add(-1)
			return hangs(ctx)
		}}, 2000, 0)
		goroutines := 0
		for c.Stats().Held > 0 {
			goroutines = max(goroutines, runtime.NumGoroutine())
			time.Sleep(100 * time.Millisecond)
		}
		assert.Less(t, goroutines, 2010, "one for each lease")
		assert.EqualValues(t, 2000, c.Stats().Lost, "every one is told")
		time.Sleep(20 * time.Second)
		assert.LessOrEqual(t, most.Load(), int64(512))
		synctest.Wait()
		assert.Less(t, runtime.NumGoroutine(), 1000, "none waits for those that ask")
		back.Store(true)
		time.Sleep(time.Minute)
		require.NoError(t, c.Close())
	})
}

// R21: a server that hangs with more leases than requests are under way at once
// costs the leases of another server nothing.
func TestAServerThatHangsCostsOthersNoRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hung atomic.Int32
		c, _ := withCrowd(t, &crowd{release: well, renew: func(ctx context.Context) error {
			if hung.Add(1) <= 2000 {
				return hangs(ctx)
			}
			return nil
		}}, 2000, 0)
		time.Sleep(time.Second) // so that those come first
		l, err := c.Lock(t.Context(), "well")
		require.NoError(t, err)
		until := l.Until()
		time.Sleep(3*time.Second + time.Millisecond)
		assert.True(t, l.Until().After(until), "renewed in time")
		_ = c.Close()
	})
}

// R2: what is told of one lease does not delay the end of others.
func TestATraceThatHangsDelaysNoEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := must(New(granting{}, &Options{TTL: 9 * time.Second, Trace: &Trace{
			Lost: func(context.Context, Event) { time.Sleep(time.Hour) },
		}}))
		var leases []*Lease
		for _, name := range []string{"a", "b", "c"} {
			l, err := c.Lock(t.Context(), name, NoRenew())
			require.NoError(t, err)
			leases = append(leases, l)
		}
		for _, l := range leases {
			<-l.Done()
			assert.Zero(t, time.Since(l.Until()), l.Name())
		}
		time.Sleep(2 * time.Hour)
		require.NoError(t, c.Close())
	})
}

func TestARenewalThatPromisesTooMuchIsNone(t *testing.T) {
	l := must(must(New(&crowd{renew: well, drift: -time.Second}, nil)).Lock(t.Context(), "job"))
	until := l.Until()
	require.ErrorContains(t, l.Renew(t.Context()), "Drift")
	assert.Equal(t, until, l.Until())
	require.NoError(t, l.Unlock(t.Context()))
}

// Close asks for all take-backs: none of those that are too many for a service that hangs is given up.
func TestCloseAsksForEveryTakeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var back atomic.Bool
		c, leases := withCrowd(t, &crowd{release: func(context.Context) error {
			if !back.Load() {
				return ErrUnavailable
			}
			time.Sleep(time.Millisecond)
			return nil
		}}, 2000, 0)
		for _, l := range leases {
			require.ErrorIs(t, l.Unlock(t.Context()), ErrUnavailable)
		}
		back.Store(true)
		require.NoError(t, c.Close())
		assert.EqualValues(t, 2000, c.Stats().TakenBack)
	})
}
