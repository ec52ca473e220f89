package zookeeper_test

import (
	"encoding/binary"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/zookeeper"
)

const opCreate, opMulti = 1, 14

// creationIn is the creation of a node in the queue of a lock: the first
// operation of a transaction.
func creationIn(dir string) string {
	b := binary.BigEndian.AppendUint32(nil, opMulti)
	b = append(binary.BigEndian.AppendUint32(b, opCreate), 0, 0xff, 0xff, 0xff, 0xff)
	b = binary.BigEndian.AppendUint32(b, uint32(len(dir)+len("/"+owner()+"-lock-")))
	return string(b) + dir + "/"
}

// A container may be removed just after another client has created or found it.
func testContainerIsRemovedUnderAnother(t *testing.T, z *lab.ZooKeeper) {
	admin := adminOf(t, z.Addr())
	p := lab.StartProxy(t, z.Addr())
	c := newClient(t, []string{p.Addr()}, zookeeper.Options{})
	dir := "/locker/removed-under"
	removed := 0
	var hook func(*lab.Link)
	hook = func(*lab.Link) { // the creation of the node
		err := admin.Delete(dir, -1)
		if removed == 0 {
			assert.ErrorIs(t, err, zk.ErrNoNode)
		} else {
			assert.NoError(t, err)
		}
		if removed++; removed < 4 {
			p.OnRequest(creationIn(dir), hook)
		}
	}
	p.OnRequest(creationIn(dir), hook)
	l := locktest.Lock(t, c, "removed-under")
	assert.Equal(t, 4, removed)
	assert.Len(t, queueOf(t, z.Addr(), "removed-under"), 1)
	require.NoError(t, l.Unlock(within(t, soon)))
}

// A caller that only tries writes nothing, so that it is in nobody's way if it is cut off.
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
