package etcdguard_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker"
	"github.com/golockers/locker/etcd"
	"github.com/golockers/locker/fencing"
)

// The two ways to guard a write to etcd, by mark and by ownership of the lock,
// side by side: what each refuses to a holder whose lease was over before it knew.
func TestMarkAndOwnership(t *testing.T) {
	s := newScene(t, 1)
	ctx := within(t, soon)
	newHolder := func() *locker.Client {
		b, err := etcd.New(dial(t, s.Addrs()), nil)
		require.NoError(t, err)
		c := locker.New(b, &locker.Options{TTL: 8 * time.Second})
		t.Cleanup(func() { assert.NoError(t, c.Close()); assert.NoError(t, b.Close()) })
		return c
	}
	first, second := newHolder(), newHolder()
	lease, err := first.Lock(ctx, "n")
	require.NoError(t, err)
	token, err := fencing.Of(lease)
	require.NoError(t, err)
	held, err := etcd.Held(lease)
	require.NoError(t, err)

	byMark := func(token fencing.Token, value string) error {
		_, err := s.guard.Commit(ctx, "n", token, clientv3.OpPut("data", value))
		return err
	}
	byOwnership := func(held clientv3.Cmp, value string) bool {
		resp, err := s.admin.Txn(ctx).If(held).Then(clientv3.OpPut("data", value)).Commit()
		require.NoError(t, err)
		return resp.Succeeded
	}
	require.NoError(t, byMark(token, "1"))
	require.True(t, byOwnership(held, "2"))

	// Its session ends in etcd, before it can know. Nobody came after it yet.
	var key etcd.Key
	require.True(t, lease.As(&key))
	_, err = s.admin.Revoke(ctx, key.Lease)
	require.NoError(t, err)
	assert.False(t, byOwnership(held, "late"), "ownership: the key is gone")
	require.NoError(t, byMark(token, "3"), "mark: it has not seen a higher token")

	// The next holder has the lock, and has not written.
	next, err := second.Lock(ctx, "n")
	require.NoError(t, err)
	higher, err := fencing.Of(next)
	require.NoError(t, err)
	require.Greater(t, higher, token)
	assert.False(t, byOwnership(held, "late"))
	require.NoError(t, byMark(token, "4"), "the mark knows only holders that have used it")

	// It says that it is there.
	_, err = s.guard.Commit(ctx, "n", higher)
	require.NoError(t, err)
	require.ErrorIs(t, byMark(token, "late"), fencing.ErrStale)
	assert.False(t, byOwnership(held, "late"))
	assert.Equal(t, "4", s.value(t, "data"))

	// Both together.
	nextHeld, err := etcd.Held(next)
	require.NoError(t, err)
	resp, err := s.guard.Txn(ctx, "n", higher).If(nextHeld).Then(clientv3.OpPut("data", "5")).Commit()
	require.NoError(t, err)
	assert.True(t, resp.Succeeded)
	_, err = s.guard.Txn(ctx, "n", token).If(held).Then(clientv3.OpPut("data", "late")).Commit()
	require.ErrorIs(t, err, fencing.ErrStale)
	require.NoError(t, next.Unlock(ctx))
	resp, err = s.guard.Txn(ctx, "n", higher).If(nextHeld).Then(clientv3.OpPut("data", "late")).Commit()
	require.NoError(t, err)
	assert.False(t, resp.Succeeded, "ownership refuses what comes after the lock was given back")
	assert.Equal(t, "5", s.value(t, "data"))
	<-lease.Done()
	require.ErrorIs(t, lease.Err(), locker.ErrLost)
	_ = lease.Unlock(context.Background())
}
