package locker_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
)

func TestBadInput(t *testing.T) {
	f := newFake()
	c := closing(t, locker.New(f, nil))
	for name, tc := range map[string]struct {
		name string
		opts []locker.Option
		want string
	}{
		"empty name": {"", nil, "the name is empty"},
		"long name":  {strings.Repeat("x", 513), nil, "513 bytes: the limit is 512"},
		"not UTF-8":  {"a\xff", nil, "not valid UTF-8"},
		"no TTL":     {"a", []locker.Option{locker.TTL(0)}, "from 100ms to 1h0m0s"},
		"TTL of 500 µs": {"a", []locker.Option{locker.TTL(500 * time.Microsecond)},
			"a TTL of 500µs is outside of what backend fake can do"},
		"TTL of 290 years": {"a", []locker.Option{locker.TTL(290 * 365 * 24 * time.Hour)},
			"from 100ms to 1h0m0s"},
		"no MaxHold":          {"a", []locker.Option{locker.MaxHold(0)}, "leave it out for no bound"},
		"negative MaxHold":    {"a", []locker.Option{locker.MaxHold(-1)}, "positive duration"},
		"MaxHold of a moment": {"a", []locker.Option{locker.MaxHold(time.Millisecond)}, "at least 10ms"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.Lock(t.Context(), tc.name, tc.opts...)
			assert.ErrorContains(t, err, tc.want)
			_, err = c.TryLock(t.Context(), tc.name, tc.opts...)
			assert.ErrorContains(t, err, tc.want)
			assert.ErrorIs(t, err, locker.ErrInvalid)
			assert.Equal(t, strings.Contains(name, "TTL"), errors.Is(err, errors.ErrUnsupported),
				"asked for more than the backend claims")
		})
	}
	for want, o := range map[string]locker.Options{
		"Options.TTL is -1s":        {TTL: -time.Second},
		"Options.MaxHold is -1s":    {MaxHold: -time.Second},
		"Options.Prefix has 129":    {Prefix: strings.Repeat("p", 129)},
		"Options.Prefix \"\\xff\"":  {Prefix: "\xff"},
		"Options.Label has 129":     {Label: strings.Repeat("l", 129)},
		"cannot be printed":         {Label: "a\nb"},
		"a TTL of 2h0m0s is outsid": {TTL: 2 * time.Hour},
		"so that no token overflow": {TokenBase: locker.MaxToken + 1},
	} {
		c := locker.New(f, &o)
		asked := f.asked()
		_, err := c.Lock(t.Context(), "a")
		assert.ErrorContains(t, err, want)
		assert.ErrorIs(t, err, locker.ErrInvalid)
		assert.Equal(t, asked, f.asked(), "found before the lock is granted")
		require.NoError(t, c.Close())
	}
	_, err := locker.New(nil, nil).Lock(t.Context(), "a")
	assert.ErrorContains(t, err, "no Backend")
	assert.Empty(t, f.owner("a"), "nothing is left behind")
}

// A lease that is held has a heap entry, and no goroutine.
func TestTenThousandLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 10_000
		f := newFake()
		c := locker.New(f, &locker.Options{TTL: ttl})
		names := make([]string, n)
		for i := range names {
			names[i] = "lease " + strconv.Itoa(i)
			f.keys[names[i]] = &fakeKey{} // what the service itself keeps is not the engine's
		}
		f.requests = make([]locker.Request, 0, n)
		leases := make([]*locker.Lease, n)
		goroutines := runtime.NumGoroutine()
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i, name := range names {
			l, err := c.Lock(t.Context(), name)
			require.NoError(t, err)
			leases[i] = l
		}
		synctest.Wait()
		f.requests = nil
		runtime.GC()
		runtime.ReadMemStats(&after)
		each := (after.HeapAlloc - before.HeapAlloc) / n
		t.Logf("%d bytes of heap for each lease, the fake service's keys included", each)
		assert.Less(t, each, uint64(1024))

		time.Sleep(2 * ttl)
		synctest.Wait()
		// A few may be the runtime's own, such as the one that runs finalizers.
		assert.Less(t, runtime.NumGoroutine(), goroutines+10, "held leases have no goroutines")
		assert.InDelta(t, 6.2*n, c.Stats().Renewed, n)
		for _, l := range leases {
			require.NoError(t, l.Err())
		}
		require.NoError(t, c.Close())
	})
}

// Renewals that are due at about the same time are made at the same time, so
// that a backend can send them together.
func TestRenewalsAreMadeTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		var mu sync.Mutex
		moments := map[time.Time]int{}
		f.renew = func(int, context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			moments[time.Now()]++
			return nil
		}
		c := locker.New(f, &locker.Options{TTL: 30 * time.Second})
		for i := range 1000 {
			_, err := c.Lock(t.Context(), strconv.Itoa(i))
			require.NoError(t, err)
			time.Sleep(9 * time.Millisecond)
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		renewals := int(c.Stats().Renewed)
		assert.Greater(t, renewals, 3000)
		assert.Less(t, len(moments), renewals/5, "moments at which there were renewals")
		assert.Greater(t, len(moments), 100, "they are not made in one crowd")
		require.NoError(t, c.Close())
	})
}

func TestHangingServiceDoesNotPileUpGoroutines(t *testing.T) {
	require.Eventually(t, func() bool { return runtime.NumGoroutine() < 100 }, 30*time.Second, 10*time.Millisecond,
		"those of the test before")
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.renew = func(_ int, ctx context.Context) error { return hang(ctx) }
		var back atomic.Bool
		var takeBacks atomic.Int64
		f.release = func(_ int, ctx context.Context) error {
			if back.Load() {
				return nil
			}
			takeBacks.Add(1)
			defer takeBacks.Add(-1)
			return hang(ctx)
		}
		c := locker.New(f, &locker.Options{TTL: ttl})
		for i := range 2000 {
			_, err := c.Lock(t.Context(), strings.Repeat("x", i%500+1)+string(rune('a'+i/500)))
			require.NoError(t, err)
		}
		most := 0
		for c.Stats().Held > 0 {
			most = max(most, runtime.NumGoroutine())
			time.Sleep(100 * time.Millisecond)
		}
		assert.Less(t, most, 2010, "one for each lease")
		assert.EqualValues(t, 2000, c.Stats().Lost, "every one is told")
		for range 20 {
			time.Sleep(time.Second)
			synctest.Wait()
			assert.LessOrEqual(t, takeBacks.Load(), int64(512)) // NumGoroutine counts some that have ended
		}
		back.Store(true)
		time.Sleep(time.Minute)
		require.NoError(t, c.Close())
	})
}

// R21: a server that hangs with more leases than requests are under way at once
// costs the leases of another server nothing.
func TestAServerThatHangsCostsOthersNoRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		var hung atomic.Int32
		f.renew = func(_ int, ctx context.Context) error {
			if hung.Add(1) <= 2000 {
				return hang(ctx)
			}
			return nil
		}
		c := locker.New(f, &locker.Options{TTL: ttl})
		for i := range 2000 {
			_, err := c.Lock(t.Context(), fmt.Sprint("hanging/", i))
			require.NoError(t, err)
		}
		time.Sleep(time.Second) // so that those come first
		l, err := c.Lock(t.Context(), "well")
		require.NoError(t, err)
		until := l.Until()
		time.Sleep(ttl/3 + time.Second/100)
		assert.True(t, l.Until().After(until), "renewed in time")
		assert.Equal(t, int32(2001), hung.Load())
		_ = c.Close()
	})
}
