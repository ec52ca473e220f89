package zkguard_test

import (
	"context"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/zkguard"
	"github.com/golockers/locker/zookeeper"
)

// The two ways to guard a write to ZooKeeper, by mark and by ownership of the
// lock, side by side: what each refuses to a holder whose lock is gone before it knows.
func TestMarkAndOwnership(t *testing.T) {
	s := newScene(t)
	ctx := within(t, soon)
	put(t, s.admin, "/data", "")
	newHolder := func() *locker.Client {
		b, err := zookeeper.New([]string{s.server.Addr()}, nil)
		require.NoError(t, err)
		c := locker.New(b, nil)
		t.Cleanup(func() { assert.NoError(t, c.Close()); assert.NoError(t, b.Close()) })
		return c
	}
	first, second := newHolder(), newHolder()
	lock := func(c *locker.Client) (*locker.Lease, fencing.Token, any) {
		lease, err := c.Lock(ctx, "n")
		require.NoError(t, err)
		token, err := fencing.Of(lease)
		require.NoError(t, err)
		var node zookeeper.Node
		require.True(t, lease.As(&node))
		return lease, token, &zk.CheckVersionRequest{Path: node.Path, Version: -1}
	}
	byMark := func(token fencing.Token, value string) error {
		_, err := s.guard.Multi(ctx, "n", token, set("/data", value))
		return err
	}
	byOwnership := func(held any, value string) error {
		_, err := s.admin.Multi(held, set("/data", value))
		return err
	}
	lease, token, held := lock(first)
	require.NoError(t, byMark(token, "1"))
	require.NoError(t, byOwnership(held, "2"))

	// Its node goes, before it can know. Nobody came after it yet.
	require.NoError(t, s.admin.Delete(held.(*zk.CheckVersionRequest).Path, -1))
	require.ErrorIs(t, byOwnership(held, "late"), zk.ErrNoNode)
	require.NoError(t, byMark(token, "3"), "mark: it has not seen a higher token")

	// The next holder has the lock, and has not written.
	next, higher, nextHeld := lock(second)
	require.Greater(t, higher, token)
	require.ErrorIs(t, byOwnership(held, "late"), zk.ErrNoNode)
	require.NoError(t, byMark(token, "4"), "the mark knows only holders that have used it")

	// It says that it is there.
	_, err := s.guard.Multi(ctx, "n", higher)
	require.NoError(t, err)
	require.ErrorIs(t, byMark(token, "late"), fencing.ErrStale)
	require.ErrorIs(t, byOwnership(held, "late"), zk.ErrNoNode)

	// Both together.
	_, err = s.guard.Multi(ctx, "n", higher, nextHeld, set("/data", "5"))
	require.NoError(t, err)
	_, err = s.guard.Multi(ctx, "n", token, held, set("/data", "late"))
	require.ErrorIs(t, err, fencing.ErrStale)
	require.NoError(t, next.Unlock(ctx))
	_, err = s.guard.Multi(ctx, "n", higher, nextHeld, set("/data", "late"))
	var failed *zkguard.OpError
	require.ErrorAs(t, err, &failed, "ownership refuses what comes after the lock was given back")
	assert.Zero(t, failed.Index)
	data, _ := look(t, s.admin, "/data")
	assert.Equal(t, "5", data)
	<-lease.Done()
	require.ErrorIs(t, lease.Err(), locker.ErrLost)
	_ = lease.Unlock(context.Background())
}
