package zookeeper_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/zookeeper"
)

// A poller writes nothing: cut off in the middle of it, it is in nobody's way.
func testPollerWritesNothing(t *testing.T, z *lab.ZooKeeper) {
	p := lab.StartProxy(t, z.Addr())
	poller := newClient(t, []string{p.Addr()}, zookeeper.Options{})
	held := locktest.Lock(t, newClient(t, []string{z.Addr()}, zookeeper.Options{}), "polled")
	p.OnRequest(creationIn("/locker/polled"), func(*lab.Link) { assert.Fail(t, "it has written") })
	for range 5 {
		_, err := poller.TryLock(within(t, soon), "polled")
		require.ErrorIs(t, err, driver.ErrHeld)
	}
	require.NoError(t, held.Unlock(within(t, soon)))
}
