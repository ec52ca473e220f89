package zookeeper_test

import (
	"bytes"
	"errors"
	"sync"
	"sync/atomic"
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
	const session = 2 * time.Second
	p := lab.StartProxy(t, z.Addr())
	held := locktest.Lock(t, newClient(t, []string{z.Addr()}, zookeeper.Options{}), "a")
	waiter := newClient(t, []string{p.Addr()}, zookeeper.Options{SessionTimeout: session})
	type answer struct {
		l   *locker.Lease
		err error
	}
	in := make(chan answer, 1)
	go func() {
		for {
			l, err := waiter.Lock(within(t, time.Minute), "a")
			// An outage longer than the session may end the wait.
			if err == nil || !errors.Is(err, driver.ErrUnavailable) {
				in <- answer{l, err}
				return
			}
		}
	}()
	eventuallyLen(t, z.Addr(), "a", 2)
	before := queueOf(t, z.Addr(), "a")
	// Within the time that a waiter sits out, from its side; from the service's
	// side the session must have ended: the replies are what is lost.
	p.Requests(lab.Drop)
	eventuallyLen(t, z.Addr(), "a", 1)
	p.Requests(lab.Pass)
	eventuallyLen(t, z.Addr(), "a", 2)
	assert.NotEqual(t, before, queueOf(t, z.Addr(), "a"), "not the node of the session that has expired")
	require.NoError(t, held.Unlock(within(t, soon)))
	a := <-in
	require.NoError(t, a.err)
	require.NoError(t, a.l.Err())
	require.NoError(t, a.l.Unlock(within(t, soon)))
	eventuallyLen(t, z.Addr(), "a", 0)
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
	// Each node is watched by the session behind it, and that of the holder by its own, too.
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

func testDeletedNodeIsTold(t *testing.T, z *lab.ZooKeeper) {
	c := newClient(t, []string{z.Addr()}, zookeeper.Options{})
	l := locktest.Lock(t, c, "a")
	node := nodeOf(t, l)
	admin := adminOf(t, z.Addr())
	_, err := admin.Set(node.Path, []byte("x"), -1)
	require.NoError(t, err)
	assert.Never(t, func() bool { return l.Err() != nil }, 100*time.Millisecond, 10*time.Millisecond,
		"a write to the node is not its end")
	require.NoError(t, admin.Delete(node.Path, -1))
	select {
	case <-l.Done():
	case <-time.After(soon):
		t.Error("not told")
	}
	require.ErrorIs(t, l.Err(), driver.ErrLost)
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
