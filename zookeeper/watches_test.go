package zookeeper_test

import (
	"context"
	"fmt"
	"regexp"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/zookeeper"
)

var totalWatches = regexp.MustCompile(`zk_watch_count\s+(\d+)`)

func watchesOf(t testing.TB, z *lab.ZooKeeper) int {
	t.Helper()
	text, err := z.FourLetters("mntr")
	m := totalWatches.FindStringSubmatch(text)
	if err != nil || len(m) != 2 {
		return -1 // a busy machine; the caller, which waits for a number, asks again
	}
	n, err := strconv.Atoi(m[1])
	assert.NoError(t, err)
	return n
}

func testWaitsThatAreGivenUpLeaveNoWatches(t *testing.T, z *lab.ZooKeeper) {
	holder := newClient(t, []string{z.Addr()}, zookeeper.Options{})
	waiter := newClient(t, []string{z.Addr()}, zookeeper.Options{})
	held := locktest.Lock(t, holder, "a")
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

// Very many waiters of one client cost two goroutines each, and nothing while nothing changes. When their connections
// break, all of them wait on soon afterwards, and none is forgotten. Their watches take several packets. No other test
// runs beside it: their heartbeats would be late.
func TestProveTenThousandWaitersReconnect(t *testing.T) {
	lab.NeedProve(t)
	const waiters = 10_000
	const patience = 10 * time.Minute
	opts := zookeeper.Options{SessionTimeout: time.Minute}
	z := lab.StartZooKeeper(t)
	p := lab.StartProxy(t, z.Addr())
	holder := newClientOf(t, newBackend(t, []string{z.Addr()}, opts), patience)
	waiter := newClientOf(t, newBackend(t, []string{p.Addr()}, opts), patience)
	ctx := within(t, patience)
	var locks, all sync.WaitGroup
	leases := make([]*locker.Lease, waiters)
	for i := range waiters {
		locks.Go(func() {
			var err error
			leases[i], err = holder.Lock(ctx, fmt.Sprint("waited-", i))
			assert.NoError(t, err)
		})
	}
	locks.Wait()
	goroutines := runtime.NumGoroutine()
	var served atomic.Int64
	for i := range waiters {
		all.Go(func() {
			l, err := waiter.Lock(ctx, fmt.Sprint("waited-", i))
			if assert.NoError(t, err) {
				served.Add(1)
				assert.NoError(t, l.Unlock(ctx))
			}
		})
	}
	has := func(n int) time.Duration {
		began := time.Now()
		require.Eventually(t, func() bool { return watchesOf(t, z) == n }, 5*time.Minute, 10*time.Millisecond)
		return time.Since(began)
	}
	t.Logf("all wait after %v", has(2*waiters)) // each node is watched by its holder, too
	assert.LessOrEqual(t, runtime.NumGoroutine()-goroutines, 2*waiters+100)
	sent := p.Stats().Packets
	time.Sleep(3 * time.Second)
	assert.Less(t, p.Stats().Packets-sent, int64(3*20), "20 requests a second, heartbeats included")

	p.Set(lab.Reset)
	has(waiters)
	sent = p.Stats().Packets
	p.Set(lab.Pass)
	took := has(2 * waiters)
	t.Logf("all wait again after %v", took)
	assert.Less(t, took, time.Minute, "ten times what it takes on an idle machine")
	const atOnce = 64 // more would time the machine
	for worker := range atOnce {
		all.Go(func() {
			for i := worker; i < waiters; i += atOnce {
				assert.NoError(t, leases[i].Unlock(ctx))
			}
		})
	}
	all.Wait()
	assert.EqualValues(t, waiters, served.Load())
	t.Logf("%d packets after the reconnection", p.Stats().Packets-sent)
}
