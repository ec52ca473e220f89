package zookeeper_test

import (
	"context"
	"sync"
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

// undeletable makes the parent of a lock's nodes, under which nothing can be
// deleted until allow is called.
func undeletable(t *testing.T, z *lab.ZooKeeper, dir string) (allow func()) {
	t.Helper()
	admin := adminOf(t, z.Addr())
	_, err := admin.Create(dir, nil, 0, zk.WorldACL(zk.PermAll&^zk.PermDelete))
	require.NoError(t, err)
	return func() {
		t.Helper()
		_, err := admin.SetACL(dir, zk.WorldACL(zk.PermAll), -1)
		require.NoError(t, err)
	}
}

// A node that may not be removed is still in everybody's way: nobody is told
// that it is gone, until it is.
func testRemovalThatIsRefused(t *testing.T, z *lab.ZooKeeper) {
	b := newBackend(t, []string{z.Addr()}, zookeeper.Options{})
	warm := acquire(t, b, asking("a", false))
	require.NoError(t, warm.Hold.Release(within(t, soon), 0))
	for what, leaves := range map[string]func(name string) driver.Hold{
		"unlocked": func(name string) driver.Hold {
			grant := acquire(t, b, asking(name, false))
			return grant.Hold
		},
		"given-up": func(name string) driver.Hold {
			create(t, adminOf(t, z.Addr()), name, owner()+"-lock-")
			grant, err := locktest.Ask(untilQueued(t, z, name, 2), b, asking(name, true))
			require.ErrorIs(t, err, context.Canceled)
			return grant.Hold
		},
	} {
		name := "stuck-" + what
		allow := undeletable(t, z, "/locker/"+name)
		hold := leaves(name)
		require.NotNil(t, hold, what)
		before := len(queueOf(t, z.Addr(), name))
		require.ErrorIs(t, hold.Undo(within(t, soon)), zk.ErrNoAuth, what)
		for range 3 {
			err := hold.Release(within(t, soon), 0)
			require.ErrorIs(t, err, zk.ErrNoAuth, what)
			assert.Contains(t, err.Error(), "/locker/"+name)
		}
		assert.Len(t, queueOf(t, z.Addr(), name), before, what)
		allow()
		require.NoError(t, hold.Release(within(t, soon), 0), what)
		assert.Len(t, queueOf(t, z.Addr(), name), before-1, what)
	}
}

// untilQueued returns a context that ends when there are n nodes in a queue.
func untilQueued(t *testing.T, z *lab.ZooKeeper, name string, n int) context.Context {
	t.Helper()
	admin := adminOf(t, z.Addr())
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	var all sync.WaitGroup
	all.Go(func() {
		for ctx.Err() == nil {
			if nodes, err := childrenOf(admin, name); err == nil && len(nodes) >= n {
				cancel()
			}
			time.Sleep(time.Millisecond)
		}
	})
	t.Cleanup(func() { cancel(); all.Wait() })
	return ctx
}
