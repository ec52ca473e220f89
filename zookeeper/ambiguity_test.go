package zookeeper_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/zookeeper"
)

func testNodeOfAnotherSessionIsDeletedAndNotUsed(t *testing.T, z *lab.ZooKeeper) {
	b := newBackend(t, []string{z.Addr()}, zookeeper.Options{})
	req := asking("a", true)
	grant := acquire(t, b, asking("a", false))
	require.NoError(t, grant.Hold.Release(within(t, soon), 0))
	old := create(t, adminOf(t, z.Addr()), "a", req.Owner+"-lock-")
	grant = acquire(t, b, req)
	nodes := queueOf(t, z.Addr(), "a")
	require.Len(t, nodes, 1)
	assert.NotEqual(t, old, nodes[0])
	require.NoError(t, grant.Hold.Release(within(t, soon), 0))
}

// A client whose session is over by its own clock does not know whether the service has ended it: until then its
// nodes are there, those of a holder and of a waiter who gave up. The service is told all the while that the
// client lives, and its answers do not get through. It makes no difference whether somebody has removed the session's
// own node by hand, or whether the same request has been made again on another session.
func testSessionThatOnlyTheClientHasGivenUp(t *testing.T, z *lab.ZooKeeper) {
	admin := adminOf(t, z.Addr())
	for name, is := range map[string]struct {
		removed, again bool
	}{"given-up": {again: true}, "given-up-by-hand": {removed: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := lab.StartProxy(t, z.Addr())
			b := newBackend(t, []string{p.Addr()}, zookeeper.Options{SessionTimeout: 3 * time.Second})
			other := newBackend(t, []string{z.Addr()}, zookeeper.Options{SessionTimeout: 20 * time.Second})
			held := acquire(t, b, asking(name, true)).Hold
			acquire(t, other, asking(name+"-too", false))
			waiting := later(t, func() (driver.Hold, error) {
				g, err := locktest.Ask(within(t, 2*soon), b, asking(name+"-too", true))
				assert.ErrorIs(t, err, driver.ErrUnavailable)
				return g.Hold, nil
			})
			eventuallyLen(t, z.Addr(), name+"-too", 2)
			p.Replies(lab.Drop)
			removed := false
			for _, beat := range beatsOf(t, admin, "/locker") {
				_, stat, err := admin.Exists(beat)
				if is.removed && err == nil && stat.EphemeralOwner == nodeOf(t, held.(driver.Aser)).Session {
					require.NoError(t, admin.Delete(beat, -1))
					removed = true
				}
			}
			require.Equal(t, is.removed, removed)
			waited := <-waiting
			require.NotNil(t, waited, "its node is still there")
			require.Eventually(t, func() bool {
				_, err := held.Renew(within(t, soon))
				return errors.Is(err, driver.ErrLost)
			}, soon, time.Millisecond)
			err := held.Release(within(t, time.Second/10), 0)
			require.ErrorIs(t, err, driver.ErrUnavailable, "its node is still there")
			require.NotErrorIs(t, err, driver.ErrLost)
			p.Replies(lab.Pass)
			remain := 0
			if is.again {
				path := nodeOf(t, held.(driver.Aser)).Path
				_, err := admin.Create(path[:len(path)-1]+"9", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
				require.NoError(t, err)
				remain = 1
			}
			for _, left := range []struct {
				name  string
				hold  driver.Hold
				nodes int
			}{{name, held, remain}, {name + "-too", waited, 1}} {
				require.Eventually(t, func() bool { return left.hold.Undo(within(t, soon)) == nil }, 2*soon, time.Millisecond)
				assert.Len(t, queueOf(t, z.Addr(), left.name), left.nodes, "it is not undone before the service has removed it")
			}
			require.NoError(t, b.Close())
			assert.NoError(t, held.Undo(within(t, soon)), "it is known")
		})
	}
}

// What the service has closed is gone with all its nodes; what it has not said so of may be there.
func testUndoAfterClose(t *testing.T, z *lab.ZooKeeper) {
	p := lab.StartProxy(t, z.Addr())
	undo := func(name string) error {
		b := newBackend(t, []string{p.Addr()}, zookeeper.Options{})
		g := acquire(t, b, asking(name, false))
		if name == "unheard" {
			p.Replies(lab.Drop)
		}
		require.NoError(t, b.Close())
		err := g.Hold.Undo(within(t, soon))
		if err == nil {
			require.ErrorIs(t, g.Hold.Release(within(t, soon), 0), driver.ErrLost)
			assert.Empty(t, queueOf(t, z.Addr(), name))
		}
		return err
	}
	tries := 0
	for undo(fmt.Sprint("heard-", tries)) != nil { // Close waits for half a second
		tries++
		require.Less(t, tries, 20)
	}
	require.ErrorIs(t, undo("unheard"), driver.ErrUnavailable)
}

// When a client ends a session, it notifies all holders before it tells the service, which lets the next ones in, even
// if one holder takes its time. A session ends when its backend is closed, or when somebody has removed its own node
// and it has no right to create that again, although the service would keep it.
func testHoldersKnowBeforeTheNextOneGetsIn(t *testing.T, z *lab.ZooKeeper) {
	const holders = 8
	admin := adminOf(t, z.Addr())
	for prefix, end := range map[string]func(b *zookeeper.Backend, node string){
		"/known-closed": func(b *zookeeper.Backend, _ string) { require.NoError(t, b.Close()) },
		"/known-removed": func(_ *zookeeper.Backend, node string) {
			_, err := admin.SetACL("/known-removed", zk.WorldACL(zk.PermAll&^zk.PermCreate), -1)
			require.NoError(t, err)
			require.NoError(t, admin.Delete(node, -1))
		},
	} {
		b := newBackend(t, []string{z.Addr()}, zookeeper.Options{Prefix: prefix, SessionTimeout: 3 * time.Second})
		other := newBackend(t, []string{z.Addr()}, zookeeper.Options{Prefix: prefix})
		var node string
		var notified atomic.Int32
		var waiters sync.WaitGroup
		for i := range holders {
			req := asking(fmt.Sprint("known-", i), false)
			var first sync.Once // it is told again when its node is gone
			req.Lost = func() {
				first.Do(func() {
					time.Sleep(50 * time.Millisecond)
					notified.Add(1)
				})
			}
			acquire(t, b, req)
			if i == 0 { // that of the other session is not there yet
				node = beatsOf(t, admin, prefix)[0]
			}
			waiters.Go(func() {
				g, err := sitOut(within(t, soon), other, asking(req.Name, true))
				if assert.NoError(t, err) {
					assert.EqualValues(t, holders, notified.Load(), "%s: the next one gets in before they know", prefix)
					assert.NoError(t, g.Hold.Release(within(t, soon), 0))
				}
			})
			require.Eventually(t, func() bool {
				nodes, _, err := admin.Children(prefix + "/" + req.Name)
				return err == nil && len(nodes) == 2
			}, soon, 5*time.Millisecond)
		}
		end(b, node)
		waiters.Wait()
	}
}
