package zookeeper_test

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
