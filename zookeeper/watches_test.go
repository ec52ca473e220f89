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
	// The holder's watch on its node, and one of the waiter on the same node.
	require.Eventually(t, func() bool { n := watchesOf(t, z); return n >= 0 && n <= 2 }, soon, 10*time.Millisecond)
	require.NoError(t, held.Unlock(within(t, soon)))
	require.Eventually(t, func() bool { return watchesOf(t, z) == 0 }, soon, 10*time.Millisecond)
}

// A wait that is given up just before the answer to its watch leaves the watch to the driver, which sets it again on each
// new connection, while answers to other requests arrive. With -race, this shows whether the two race.
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

func testManyWatchesSurviveAReconnection(t *testing.T, z *lab.ZooKeeper) {
	waitersReconnect(t, z, 200, longName, nil)
}

// Each of very many waiters of one client costs two goroutines, and no requests while nothing changes. No other test
// runs at the same time, since its heartbeats would be late.
func TestProveTenThousandWaitersReconnect(t *testing.T) {
	lab.NeedProve(t)
	const waiters = 10_000
	goroutines := runtime.NumGoroutine()
	name := func(i int) string { return fmt.Sprint("waited-", i) }
	waitersReconnect(t, lab.StartZooKeeper(t), waiters, name, func(p *lab.Proxy) {
		assert.LessOrEqual(t, runtime.NumGoroutine()-goroutines, 2*waiters+200)
		sent := p.Stats().Packets
		time.Sleep(3 * time.Second)
		assert.Less(t, p.Stats().Packets-sent, int64(3*20), "20 requests a second, heartbeats included")
	})
}

// waitersReconnect has n waiters of one client wait, whose watches take several packets. When their connections break,
// all go on waiting soon afterward, and none is forgotten. It calls meanwhile, if that is not nil, while all wait.
func waitersReconnect(t *testing.T, z *lab.ZooKeeper, n int, name func(int) string, meanwhile func(*lab.Proxy)) {
	const patience = 10 * time.Minute
	opts := zookeeper.Options{SessionTimeout: time.Minute}
	p := lab.StartProxy(t, z.Addr())
	holder := newClientOf(t, newBackend(t, []string{z.Addr()}, opts), patience)
	waiter := newClientOf(t, newBackend(t, []string{p.Addr()}, opts), patience)
	ctx := within(t, patience)
	leases := make([]*locker.Lease, n)
	aFewAtATime(n, func(i int) {
		var err error
		leases[i], err = holder.Lock(ctx, name(i))
		assert.NoError(t, err)
	})
	require.False(t, t.Failed())
	served := make([]chan error, n)
	for i := range n {
		served[i] = make(chan error, 1)
		go func() {
			l, err := waiter.Lock(ctx, name(i))
			if err == nil {
				err = l.Unlock(ctx)
			}
			served[i] <- err
		}()
	}
	has := func(n int) time.Duration {
		began := time.Now()
		require.Eventually(t, func() bool { return watchesOf(t, z) == n }, 5*time.Minute, time.Millisecond)
		return time.Since(began)
	}
	t.Logf("all wait after %v", has(2*n)) // each node is watched by its holder, too
	if meanwhile != nil {
		meanwhile(p)
	}
	p.Set(lab.Reset)
	has(n)
	sent := p.Stats().Packets
	p.Set(lab.Pass)
	took := has(2 * n)
	t.Logf("all wait again after %v", took)
	assert.Less(t, took, time.Minute, "ten times what it takes on an idle machine")
	aFewAtATime(n, func(i int) {
		assert.NoError(t, leases[i].Unlock(ctx))
		assert.NoError(t, <-served[i])
	})
	t.Logf("%d packets after the reconnection", p.Stats().Packets-sent)
}

// aFewAtATime calls f with each number below n. With more calls at once, the test would measure its own flood.
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
