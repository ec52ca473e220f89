package zookeeper_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/zookeeper"
)

// A release that nobody waits for is begun all the same, since the answer to the creation is there, and may have removed
// nothing: its hold is not lost by it. (Several times, since it might be by chance.)
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

// A renewal beside a release that nothing hinders says how it ended, not that it was begun.
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
