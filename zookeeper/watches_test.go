package zookeeper_test

import (
	"context"
	"fmt"
	"regexp"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
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

func testManyWatchesSurviveAReconnection(t *testing.T, z *lab.ZooKeeper) {
	const names = 1500 // more than one packet of them
	p := lab.StartProxy(t, z.Addr())
	holder := newClient(t, []string{z.Addr()}, zookeeper.Options{SessionTimeout: 30 * time.Second})
	waiter := newClient(t, []string{p.Addr()}, zookeeper.Options{SessionTimeout: 30 * time.Second})
	ctx, cancel := context.WithCancel(t.Context())
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
	has(2*names, time.Minute) // the holder's, and the waiter's
	p.Set(lab.Reset)
	has(names, soon)
	p.Set(lab.Pass)
	has(2*names, soon)
	cancel()
	all.Wait()
}

// A wait that is given up just before the answer to its watch leaves the watch to the driver, which sets it again on each
// new connection, while answers come to what others ask: with -race, this shows whether the two get in each other's way.
func testAnswersBesideWatchesThatAreSetAgain(t *testing.T, z *lab.ZooKeeper) {
	holder := newBackend(t, []string{z.Addr()}, zookeeper.Options{})
	p := lab.StartProxy(t, z.Addr())
	b := newBackend(t, []string{p.Addr()}, zookeeper.Options{})
	acquire(t, b, asking("beside", false))
	g := acquire(t, holder, asking("left", false))
	var node zookeeper.Node
	require.True(t, g.Hold.(driver.Aser).As(&node))
	ctx, giveUp := context.WithCancel(within(t, soon))
	p.OnRequest(node.Path, func(*lab.Link) {
		p.Replies(lab.Hold)
		giveUp()
	})
	_, err := locktest.Ask(ctx, b, asking("left", true))
	require.ErrorIs(t, err, context.Canceled)
	p.Replies(lab.Pass)
	require.Eventually(t, func() bool { return watchesOf(t, z) >= 3 }, soon, 10*time.Millisecond,
		"those of two holders, and the one that was left")
	for range 20 {
		p.Set(lab.Reset)
		p.Set(lab.Pass)
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				require.Eventually(t, func() bool { _, err := b.Inspect(within(t, soon), "left"); return err == nil },
					soon, time.Millisecond)
			})
		}
		all.Wait()
	}
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
	leases := make([]*locker.Lease, waiters)
	aFewAtATime(waiters, func(i int) {
		var err error
		leases[i], err = holder.Lock(ctx, fmt.Sprint("waited-", i))
		assert.NoError(t, err)
	})
	goroutines := runtime.NumGoroutine()
	served := make([]chan error, waiters)
	for i := range waiters {
		served[i] = make(chan error, 1)
		go func() {
			l, err := waiter.Lock(ctx, fmt.Sprint("waited-", i))
			if err == nil {
				err = l.Unlock(ctx)
			}
			served[i] <- err
		}()
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
	aFewAtATime(waiters, func(i int) {
		assert.NoError(t, leases[i].Unlock(ctx))
		assert.NoError(t, <-served[i])
	})
	t.Logf("%d packets after the reconnection", p.Stats().Packets-sent)
}

// aFewAtATime calls f with each number below n. More at once would be a flood of the test's own, which it would measure.
func aFewAtATime(n int, f func(i int)) {
	const atOnce = 64
	var all sync.WaitGroup
	for worker := range atOnce {
		all.Go(func() {
			for i := worker; i < n; i += atOnce {
				f(i)
			}
		})
	}
	all.Wait()
}
