package zookeeper_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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

// A waiter whose session has expired takes its place anew, and gets the lock.
func testSessionExpiresWhileWaiting(t *testing.T, z *lab.ZooKeeper) {
	p := lab.StartProxy(t, z.Addr())
	held := locktest.Lock(t, newClient(t, []string{z.Addr()}, zookeeper.Options{}), "a")
	waiter := lock(t, newClient(t, []string{p.Addr()}, zookeeper.Options{SessionTimeout: 2 * time.Second}), "a")
	eventuallyLen(t, z.Addr(), "a", 2)
	before := queueOf(t, z.Addr(), "a")
	// For the service the session has to end, within the outage that the client sits out.
	p.Requests(lab.Drop)
	eventuallyLen(t, z.Addr(), "a", 1)
	p.Requests(lab.Pass)
	eventuallyLen(t, z.Addr(), "a", 2)
	assert.NotEqual(t, before, queueOf(t, z.Addr(), "a"), "not the node of the session that has expired")
	require.NoError(t, held.Unlock(within(t, soon)))
	l := <-waiter
	require.NoError(t, l.Err())
	require.NoError(t, l.Unlock(within(t, soon)))
	eventuallyLen(t, z.Addr(), "a", 0)
}

func testAReleaseWakesOneWaiter(t *testing.T, z *lab.ZooKeeper) {
	const waiters = 12
	rare := zookeeper.Options{SessionTimeout: 50 * time.Second} // few heartbeats
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
	// Each node is watched by the session behind it, and that of the holder by its own, too.
	require.Eventually(t, func() bool { return watchesOf(t, z) == waiters+1 }, soon, 10*time.Millisecond)
	before := p.Stats().Packets
	require.NoError(t, held.Unlock(within(t, soon)))
	assert.Equal(t, 0, <-in)
	require.Eventually(t, func() bool { return watchesOf(t, z) == waiters }, soon, 10*time.Millisecond)
	assert.Less(t, p.Stats().Packets-before, int64(waiters), "the others are told nothing, and ask nothing")
	close(leave)
	all.Wait()
}

// A waiter whose node was removed holds nothing when the one before it leaves: it
// stands at the end of the queue again.
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
