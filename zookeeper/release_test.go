package zookeeper_test

import (
	"context"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/zookeeper"
)

// A node that may not be removed still keeps everybody out, so no call reports that it
// is gone before it is.
func testRemovalThatIsRefused(t *testing.T, z *lab.ZooKeeper) {
	b := newBackend(t, []string{z.Addr()}, zookeeper.Options{})
	warm := acquire(t, b, asking("a", false))
	require.NoError(t, warm.Hold.Release(within(t, soon), 0))
	admin := adminOf(t, z.Addr())
	for what, leaves := range map[string]func(name string) driver.Hold{
		"unlocked": func(name string) driver.Hold {
			return acquire(t, b, asking(name, false)).Hold
		},
		"given-up": func(name string) driver.Hold {
			create(t, admin, name, owner()+"-lock-")
			ctx, cancel := context.WithCancel(within(t, soon))
			req := asking(name, true)
			req.Queued = cancel
			grant, err := locktest.Ask(ctx, b, req)
			require.ErrorIs(t, err, context.Canceled)
			return grant.Hold
		},
	} {
		name := "stuck-" + what
		dir := "/locker/" + name
		_, err := admin.Create(dir, nil, 0, zk.WorldACL(zk.PermAll&^zk.PermDelete))
		require.NoError(t, err)
		hold := leaves(name)
		require.NotNil(t, hold, what)
		before := len(queueOf(t, z.Addr(), name))
		require.ErrorIs(t, hold.Undo(within(t, soon)), zk.ErrNoAuth, what)
		for range 3 {
			err := hold.Release(within(t, soon), 0)
			require.ErrorIs(t, err, zk.ErrNoAuth, what)
			assert.Contains(t, err.Error(), dir)
		}
		assert.Len(t, queueOf(t, z.Addr(), name), before, what)
		_, err = admin.SetACL(dir, zk.WorldACL(zk.PermAll), -1)
		require.NoError(t, err)
		require.NoError(t, hold.Release(within(t, soon), 0), what)
		assert.Len(t, queueOf(t, z.Addr(), name), before-1, what)
	}
}

// A release whose context has ended is begun all the same, but may have removed nothing, so the hold does not count as
// lost. (Several rounds, since one may pass by chance.)
func testReleaseThatWasGivenUpIsNoLoss(t *testing.T, z *lab.ZooKeeper) {
	b := newBackend(t, []string{z.Addr()}, zookeeper.Options{})
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 10 {
		g := acquire(t, b, asking("given-up-release", false))
		require.Error(t, g.Hold.Release(over, 0))
		_, err := g.Hold.Renew(within(t, soon))
		require.ErrorContains(t, err, "its removal was begun")
		require.NotErrorIs(t, err, driver.ErrLost)
		require.NoError(t, g.Hold.Release(within(t, soon), 0))
		_, err = g.Hold.Renew(within(t, soon))
		require.ErrorIs(t, err, driver.ErrLost)
	}
}

// A renewal that runs during a release reports how the release ended, not that it was begun.
func testRenewWaitsForARelease(t *testing.T, z *lab.ZooKeeper) {
	b := newBackend(t, []string{z.Addr()}, zookeeper.Options{})
	for range 100 {
		g := acquire(t, b, asking("a", false))
		released := make(chan error, 1)
		go func() { released <- g.Hold.Release(within(t, soon), 0) }()
		var err error
		for err == nil {
			_, err = g.Hold.Renew(within(t, soon))
		}
		require.ErrorIs(t, err, driver.ErrLost)
		require.NoError(t, <-released)
	}
}
