package etcd_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/etcd"
	"github.com/golockers/locker/internal/locktest"
)

func TestTokensAreCreateRevisionsAndFenceTransactions(t *testing.T) {
	s := parallelScene(t, 1)
	ctx := t.Context()
	c := client(t, s.Addrs(), time.Minute)
	first := locktest.Lock(t, c, "n")
	var k etcd.Key
	require.True(t, first.As(&k))
	token, _ := first.Token()
	assert.EqualValues(t, k.CreateRevision, token)
	kv, err := s.admin.Get(ctx, k.Key)
	require.NoError(t, err)
	assert.Equal(t, k.CreateRevision, kv.Kvs[0].CreateRevision)
	write := func(held clientv3.Cmp) bool {
		resp, err := s.admin.Txn(ctx).If(held).Then(clientv3.OpPut("data", "x")).Commit()
		require.NoError(t, err)
		return resp.Succeeded
	}
	held, err := etcd.Held(first)
	require.NoError(t, err)
	assert.True(t, write(held))
	require.NoError(t, first.Unlock(ctx))
	assert.False(t, write(held), "it was released")
	second := locktest.Lock(t, c, "n")
	var again etcd.Key
	require.True(t, second.As(&again))
	assert.Equal(t, k.Key, again.Key, "the key is used again, so deleted ones do not pile up")
	assert.False(t, write(held), "another has it")
	_, err = etcd.Held(first)
	require.ErrorIs(t, err, locker.ErrUnlocked)
	_, err = etcd.Held(nil)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.NoError(t, second.Unlock(ctx))
	shared := locktest.Lock(t, c, "n", locker.Shared())
	held, err = etcd.Held(shared)
	require.NoError(t, err)
	assert.True(t, write(held), "a sharer's lease fences, too")
	require.NoError(t, shared.Unlock(ctx))
	assert.False(t, write(held))
}

// A process hands a lock on to another with the two writes that each of them
// needs anyway: its key is put and deleted.
func TestHandingOnCostsNoMoreWrites(t *testing.T) {
	s := parallelScene(t, 1)
	ctx := t.Context()
	const clients, each = 4, 25
	revision := func() int64 {
		resp, err := s.admin.Get(ctx, "x")
		require.NoError(t, err)
		return resp.Header.Revision
	}
	var all sync.WaitGroup
	var locks []*locker.Client
	for range clients {
		c := client(t, s.Addrs(), time.Minute)
		l := locktest.Lock(t, c, "warm")
		require.NoError(t, l.Unlock(ctx))
		locks = append(locks, c)
	}
	before := revision()
	for _, c := range locks {
		all.Go(func() {
			for range each {
				l, err := c.Lock(ctx, "n")
				if assert.NoError(t, err) {
					assert.NoError(t, l.Unlock(ctx))
				}
			}
		})
	}
	all.Wait()
	assert.EqualValues(t, 2*clients*each, revision()-before)
	held := locktest.Lock(t, locks[0], "n")
	before = revision()
	for range 10 {
		_, err := locks[1].TryLock(ctx, "n")
		require.ErrorIs(t, err, driver.ErrHeld)
	}
	assert.Equal(t, before, revision(), "a refusal writes nothing")
	require.NoError(t, held.Unlock(ctx))
}
