package zookeeper_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/zookeeper"
)

// A poller that is cut off in the middle of it is in nobody's way.
func testPollerThatDiesIsInNobodysWay(t *testing.T, z *lab.ZooKeeper) {
	const session = 8 * time.Second
	p := lab.StartProxy(t, z.Addr())
	holder := newClient(t, []string{z.Addr()}, zookeeper.Options{SessionTimeout: session})
	poller := newClient(t, []string{p.Addr()}, zookeeper.Options{SessionTimeout: session})
	held := locktest.Lock(t, holder, "polled")
	_, err := poller.TryLock(within(t, soon), "polled")
	require.ErrorIs(t, err, driver.ErrHeld)
	eventuallyLen(t, z.Addr(), "polled", 1)
	// From now on it polls, and loses its connection with the first write.
	p.OnRequest(creationIn("/locker/polled"), func(l *lab.Link) {
		l.Replies(lab.Drop)
		p.Requests(lab.Drop)
		assert.Fail(t, "it has written")
	})
	for range 5 {
		_, err = poller.TryLock(within(t, soon), "polled")
		require.ErrorIs(t, err, driver.ErrHeld)
		assert.Len(t, queueOf(t, z.Addr(), "polled"), 1)
	}
	require.NoError(t, held.Unlock(within(t, soon)))
	l, err := holder.TryLock(within(t, soon), "polled")
	require.NoError(t, err, "nobody holds it")
	require.NoError(t, l.Unlock(within(t, soon)))
}
