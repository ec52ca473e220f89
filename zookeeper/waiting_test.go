package zookeeper_test

import (
	"bytes"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/zookeeper"
)

// queueOf returns the nodes in the queue of name, as seen now.
func queueOf(t testing.TB, addr, name string) []string {
	t.Helper()
	c, done := dial(t, []string{addr})
	defer done()
	nodes, err := childrenOf(c, name)
	require.NoError(t, err)
	return nodes
}

func eventuallyLen(t testing.TB, addr, name string, n int) {
	t.Helper()
	var got []string
	c, done := dial(t, []string{addr})
	defer done()
	require.Eventually(t, func() bool {
		nodes, err := childrenOf(c, name)
		got = nodes
		return err == nil && len(nodes) == n
	}, soon, 5*time.Millisecond, "%d nodes in the queue, have %v", n, &got)
}

func testAReleaseWakesOneWaiter(t *testing.T, z *lab.ZooKeeper) {
	const waiters = 12
	rare := zookeeper.Options{SessionTimeout: 50 * time.Second}
	held := locktest.Lock(t, newClient(t, []string{z.Addr()}, rare), "a")
	p := lab.StartProxy(t, z.Addr())
	addr, in, leave := z.Addr(), make(chan int, waiters), make(chan struct{})
	var all sync.WaitGroup
	for i := range waiters {
		c := newClient(t, []string{addr}, rare)
		all.Go(func() {
			l, err := c.Lock(within(t, soon), "a")
			in <- i
			<-leave
			if assert.NoError(t, err) {
				assert.NoError(t, l.Unlock(within(t, soon)))
			}
		})
		eventuallyLen(t, z.Addr(), "a", i+2)
		addr = p.Addr() // all but the first
	}
	// The session behind each node watches it, and the holder's own session watches the holder's.
	require.Eventually(t, func() bool { return watchesOf(t, z) == waiters+1 }, soon, 10*time.Millisecond)
	var more atomic.Int32 // than heartbeats, which are about other nodes
	p.Watch(func(_ *lab.Link, _ bool, data []byte, _ bool) {
		if bytes.Contains(data, []byte("/locker/a")) {
			more.Add(1)
		}
	})
	require.NoError(t, held.Unlock(within(t, soon)))
	assert.Equal(t, 0, <-in)
	require.Eventually(t, func() bool { return watchesOf(t, z) == waiters }, soon, 10*time.Millisecond)
	assert.Zero(t, more.Load(), "the others are told nothing, and ask nothing")
	close(leave)
	all.Wait()
}

// A waiter whose node was removed does not get the lock when the holder ahead of it leaves:
// it is at the end of the queue again.
func testWaiterWhoseNodeIsRemoved(t *testing.T, z *lab.ZooKeeper) {
	const name = "removed-waiter"
	held := locktest.Lock(t, newClient(t, []string{z.Addr()}, zookeeper.Options{}), name)
	removed := lock(t, newClient(t, []string{z.Addr()}, zookeeper.Options{}), name)
	eventuallyLen(t, z.Addr(), name, 2)
	nodes := queueOf(t, z.Addr(), name)
	other := lock(t, newClient(t, []string{z.Addr()}, zookeeper.Options{}), name)
	eventuallyLen(t, z.Addr(), name, 3)
	require.Eventually(t, func() bool { return watchesOf(t, z) >= 3 }, soon, time.Millisecond)
	require.NoError(t, adminOf(t, z.Addr()).Delete(nodes[1], -1))
	require.NoError(t, held.Unlock(within(t, soon)))
	first := <-other
	eventuallyLen(t, z.Addr(), name, 2) // it has a place again
	select {
	case <-removed:
		t.Error("two hold at once")
	default:
	}
	require.NoError(t, first.Unlock(within(t, soon)))
	require.NoError(t, (<-removed).Unlock(within(t, soon)))
}

func testNoMoreShareANameThanThereMayBe(t *testing.T, z *lab.ZooKeeper) {
	const name = "crowd"
	c := newClient(t, []string{z.Addr()}, zookeeper.Options{})
	first := locktest.Lock(t, c, name, locker.Shared())
	admin := adminOf(t, z.Addr())
	for n := 1; n < driver.MaxSharers; {
		var some []any
		for ; len(some) < 512 && n < driver.MaxSharers; n++ {
			some = append(some, &zk.CreateRequest{Path: "/locker/" + name + "/" + strconv.Itoa(n) + "-read-",
				Acl: zk.WorldACL(zk.PermAll), Flags: zk.FlagEphemeral | zk.FlagSequence})
		}
		_, err := admin.Multi(some...)
		require.NoError(t, err)
	}
	began := time.Now()
	_, err := c.TryLock(t.Context(), name, locker.Shared())
	require.ErrorIs(t, err, driver.ErrRefused)
	require.ErrorContains(t, err, "4096 share")
	t.Logf("refused after %v", time.Since(began))
	eventuallyLen(t, z.Addr(), name, driver.MaxSharers)
	st, err := c.Inspect(t.Context(), name)
	require.NoError(t, err)
	assert.Equal(t, driver.MaxSharers, st.Sharers)
	require.NoError(t, first.Unlock(t.Context()))
	last, err := c.TryLock(t.Context(), name, locker.Shared())
	require.NoError(t, err)
	require.NoError(t, last.Unlock(t.Context()))
}
