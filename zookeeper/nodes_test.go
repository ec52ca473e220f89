package zookeeper_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
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

// The parent of a lock's nodes is a container, which the service removes when
// it is empty: names do not pile up.
func testParentIsRemovedByTheService(t *testing.T, z *lab.ZooKeeper) {
	c := newClient(t, []string{z.Addr()}, zookeeper.Options{})
	warm(t, c, "a")
	admin := adminOf(t, z.Addr())
	require.Eventually(t, func() bool {
		there, _, err := admin.Exists("/locker/a")
		return err == nil && !there
	}, soon, 10*time.Millisecond)
}

// One write keeps a session alive, however many locks depend on it, and renewing them
// takes no request. (Each is marked once, when it has been held for a second.)
func testHeartbeatIsOneWriteForAllLocks(t *testing.T, z *lab.ZooKeeper) {
	const prefix, session = "/beats", 4 * time.Second
	c := newClient(t, []string{z.Addr()}, zookeeper.Options{Prefix: prefix, SessionTimeout: session})
	var leases []*locker.Lease
	for i := range 50 {
		leases = append(leases, locktest.Lock(t, c, fmt.Sprint("beat-", i)))
	}
	admin := adminOf(t, z.Addr())
	beat := beatsOf(t, admin, prefix)[0]
	for _, l := range leases {
		require.Eventually(t, func() bool {
			_, stat, err := admin.Exists(nodeOf(t, l).Path)
			return err == nil && stat.Version == 1
		}, soon, 10*time.Millisecond)
	}
	began := time.Now()
	before, first, err := stateOf(admin, beat)
	require.NoError(t, err)
	var after int64
	var beats int32
	require.Eventually(t, func() bool {
		var now int32
		after, now, err = stateOf(admin, beat)
		beats = now - first
		return err == nil && beats >= 6
	}, 3*soon, session/10)
	looks := int64(time.Since(began)/(session/10)) + 2 // each of stateOf writes twice
	assert.LessOrEqual(t, int64(beats), looks, "one each tenth of the session")
	assert.LessOrEqual(t, after-before, int64(beats)+2*looks, "there is no other write")
	for _, l := range leases {
		require.NoError(t, l.Err())
		require.NoError(t, l.Unlock(within(t, soon)))
	}
}

// stateOf returns the number of the service's last transaction, and how often a node
// has been written.
func stateOf(c *zk.Conn, node string) (zxid int64, version int32, err error) {
	_, stat, err := c.Get(node)
	if err != nil {
		return 0, 0, err
	}
	made, err := c.Create("/now-", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
	if err != nil {
		return 0, 0, err
	}
	_, now, err := c.Get(made) // the transaction that makes a node says how many there were before
	if err != nil {
		return 0, 0, err
	}
	return now.Czxid, stat.Version, c.Delete(made, -1)
}

// Every lock lasts as long as the session, even if a shorter TTL was requested, and the promise about dead holders says
// so. (The suite measures it with such TTLs.)
func TestDeadHolderWithAShortTTL(t *testing.T) {
	const session, ttl = 5500 * time.Millisecond, 100 * time.Millisecond
	b := newBackend(t, []string{"localhost"}, zookeeper.Options{SessionTimeout: session})
	c := locktest.Must(locker.New(b, &locker.Options{TTL: ttl}))
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, locker.Require(c, driver.Guarantees{DeadHolder: driver.RecoveryAfterTTL,
		DeadHolderSlack: session + 4*time.Second, MinTTL: ttl}))
	assert.ErrorIs(t, locker.Require(c, driver.Guarantees{DeadHolderSlack: 4 * time.Second}),
		errors.ErrUnsupported)
	assert.Contains(t, c.Guarantees().RestsOn, session.String())
}

// A lock passes from one process to another with the two writes that each of them
// needs anyway, which create and delete its node.
func testHandingOnCostsNoMoreWrites(t *testing.T, z *lab.ZooKeeper) {
	const clients, each = 4, 25
	var locks []*locker.Client
	for range clients {
		c := newClient(t, []string{z.Addr()}, zookeeper.Options{SessionTimeout: 30 * time.Second})
		warm(t, c, "handed")
		locks = append(locks, c)
	}
	admin := adminOf(t, z.Addr())
	before, _, err := stateOf(admin, "/locker")
	require.NoError(t, err)
	began := time.Now()
	var all sync.WaitGroup
	for _, c := range locks {
		all.Go(func() {
			for range each {
				l, err := c.Lock(context.Background(), "handed")
				if assert.NoError(t, err) {
					assert.NoError(t, l.Unlock(context.Background()))
				}
			}
		})
	}
	all.Wait()
	after, _, err := stateOf(admin, "/locker")
	require.NoError(t, err)
	// stateOf makes two of its own, and each client a heartbeat every 3 s. A node that holds for a second is marked.
	others := clients*(2+int64(time.Since(began)/(3*time.Second))) + int64(time.Since(began)/time.Second)
	assert.LessOrEqual(t, after-before, 2*clients*each+2+others)
}
