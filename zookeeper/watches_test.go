package zookeeper_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/zookeeper"
)

var totalWatches = regexp.MustCompile(`Total watches:(\d+)`)

func watchesOf(t testing.TB, z *lab.ZooKeeper) int {
	t.Helper()
	text, err := z.FourLetters("wchs")
	m := totalWatches.FindStringSubmatch(text)
	if err != nil || len(m) != 2 {
		return -1 // a busy machine; whoever waits for a number asks again
	}
	n, err := strconv.Atoi(m[1])
	assert.NoError(t, err)
	return n
}

func testWaitsThatAreGivenUpLeaveNoWatches(t *testing.T, z *lab.ZooKeeper) {
	holder := newClient(t, []string{z.Addr()}, zookeeper.Options{})
	waiter := newClient(t, []string{z.Addr()}, zookeeper.Options{})
	held, err := holder.Lock(within(t, soon), "a")
	require.NoError(t, err)
	for range 30 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		_, err := waiter.Lock(ctx, "a")
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	eventuallyLen(t, z.Addr(), "a", 1)
	// The holder's on its node, and one of the waiter's on the same node.
	require.Eventually(t, func() bool { return watchesOf(t, z) <= 2 }, soon, 10*time.Millisecond)
	require.NoError(t, held.Unlock(within(t, soon)))
	require.Eventually(t, func() bool { return watchesOf(t, z) == 0 }, soon, 10*time.Millisecond)
}

// manyWaiters is how many there are: more than one packet of watches, and no more, since the
// machine that runs the gate is small.
func manyWaiters() int {
	if n, err := strconv.Atoi(os.Getenv("LOCKER_ZOOKEEPER_WAITERS")); err == nil {
		return n
	}
	return 1500
}

// received returns how many packets the server has got.
func received(t testing.TB, z *lab.ZooKeeper) (n float64) {
	t.Helper()
	require.Eventually(t, func() bool {
		text, err := z.FourLetters("srvr")
		_, text, _ = strings.Cut(text, "\nReceived: ")
		_, parseErr := fmt.Sscan(text, &n)
		return err == nil && parseErr == nil
	}, soon, 10*time.Millisecond)
	return n
}

func testManyWaiters(t *testing.T, z *lab.ZooKeeper) {
	names := manyWaiters()
	bound := soon + time.Duration(names)*10*time.Millisecond
	p := lab.StartProxy(t, z.Addr())
	holder := newClient(t, []string{z.Addr()}, zookeeper.Options{SessionTimeout: 30 * time.Second})
	waiter := newClient(t, []string{p.Addr()}, zookeeper.Options{SessionTimeout: 30 * time.Second})
	ctx, cancel := context.WithCancel(t.Context())
	before := runtime.NumGoroutine()
	var all sync.WaitGroup
	limit := make(chan struct{}, 50)
	var leases sync.Map
	for i := range names {
		limit <- struct{}{}
		all.Go(func() {
			name := fmt.Sprintf("many-%d", i)
			l, err := holder.Lock(ctx, name)
			<-limit
			if !assert.NoError(t, err) {
				return
			}
			leases.Store(name, l)
			if l, err := waiter.Lock(ctx, name); err == nil {
				_ = l.Unlock(context.Background())
			} else {
				assert.ErrorIs(t, err, context.Canceled)
			}
		})
	}
	has := func(n int, within time.Duration) {
		t.Helper()
		have := 0
		for deadline := time.Now().Add(within); have != n; time.Sleep(time.Millisecond) {
			require.True(t, time.Now().Before(deadline), "want %d watches, have %d", n, have)
			have = watchesOf(t, z)
		}
	}
	has(3*names, time.Minute+bound) // the holder's, and two of a waiter
	had, began := received(t, z), time.Now()
	time.Sleep(map[bool]time.Duration{false: 2 * time.Second, true: 30 * time.Second}[names > 5000])
	rate, goroutines := (received(t, z)-had)/time.Since(began).Seconds(), float64(runtime.NumGoroutine()-before)/float64(names)
	t.Logf("%.1f requests/s, %.2f goroutines each", rate, goroutines)
	assert.Less(t, rate, 20.)
	assert.Less(t, goroutines, 2.1)
	p.Set(lab.Reset)
	has(names, bound)
	p.Set(lab.Pass)
	has(3*names, bound)
	assert.Zero(t, holder.Stats().Lost)
	for range names / 2 { // they get it
		leases.Range(func(name, l any) bool {
			leases.Delete(name)
			assert.NoError(t, l.(*locker.Lease).Unlock(ctx))
			return false
		})
	}
	require.Eventually(t, func() bool { return waiter.Stats().Acquired >= uint64(names/2) }, bound, 10*time.Millisecond)
	cancel()
	all.Wait()
}
