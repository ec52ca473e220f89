package etcd_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker"
	"github.com/golockers/locker/etcd"
)

func TestThousandWaitersOfOneClientAreOneKey(t *testing.T) {
	t.Parallel()
	s := newScene(t, 1)
	ctx := t.Context()
	held, err := client(t, s.Addrs(), time.Minute).Lock(ctx, "n")
	require.NoError(t, err)
	c := client(t, s.Addrs(), time.Minute)
	waiting, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	var ended atomic.Int32
	for range 1000 {
		all.Go(func() {
			l, err := c.Lock(waiting, "n")
			if err == nil {
				err = l.Unlock(ctx)
			}
			if err == nil || errors.Is(err, context.Canceled) {
				ended.Add(1)
			}
		})
	}
	eventually(t, 10*time.Second, "all wait", func() bool { return c.Stats().Waiting == 1000 })
	s.queued(t, "n", 2)
	require.NoError(t, held.Unlock(ctx))
	eventually(t, 30*time.Second, "some had their turn", func() bool { return c.Stats().Acquired > 20 })
	cancel()
	all.Wait()
	assert.EqualValues(t, 1000, ended.Load())
	s.queued(t, "n", 0)
}

// The engine tells those who wait behind an attempt in the process that the lock
// is held: the service has to have said so.
func TestWaiterTellsThatItIsInTheQueue(t *testing.T) {
	t.Parallel()
	s := newScene(t, 1)
	ctx := t.Context()
	var told atomic.Int32
	ask := func(b *etcd.Backend) (locker.Grant, error) {
		req := request("n", time.Minute, true)
		req.Queued = func() { told.Add(1) }
		return b.Acquire(ctx, req)
	}
	held, err := ask(backend(t, s.Addrs()))
	require.NoError(t, err)
	assert.Zero(t, told.Load(), "nobody has it")
	done := make(chan error, 1)
	b := backend(t, s.Addrs())
	go func() {
		next, err := ask(b)
		if err == nil {
			err = next.Hold.Release(ctx)
		}
		done <- err
	}()
	eventually(t, 10*time.Second, "it is told", func() bool { return told.Load() > 0 })
	require.NoError(t, held.Hold.Release(ctx))
	require.NoError(t, <-done)
}

func TestReleaseWakesOneWaiterInTheirOrder(t *testing.T) {
	t.Parallel()
	s := newScene(t, 1)
	ctx := t.Context()
	const waiters = 8
	held, err := client(t, s.Addrs(), time.Minute).Lock(ctx, "n")
	require.NoError(t, err)
	networks := make([]*cut, waiters)
	answers := make([]<-chan locked, waiters)
	for i := range waiters {
		networks[i] = newCut(t)
		answers[i] = lockLater(ctx, client(t, s.Addrs(), time.Minute, through(networks[i].dial)), "n")
		s.queued(t, "n", i+2)
	}
	s.watched(t, waiters)
	replied := func() (n []int64) {
		for _, c := range networks {
			n = append(n, c.only().Stats().Replies.Sent)
		}
		return n
	}
	lease := held
	for i := range waiters {
		before := replied()
		require.NoError(t, lease.Unlock(ctx))
		got := s.get(t, answers[i], time.Second)
		after := replied()
		woken := 0
		for j := i; j < waiters; j++ {
			if after[j] > before[j] {
				woken++
			}
		}
		assert.LessOrEqual(t, woken, 2, "one and at most one that polls: %v, %v", before, after)
		lease = got.lease
	}
	require.NoError(t, lease.Unlock(ctx))
}

func TestTokensAreCreateRevisionsAndFenceTransactions(t *testing.T) {
	s := newScene(t, 1)
	ctx := t.Context()
	c := client(t, s.Addrs(), time.Minute)
	first, err := c.Lock(ctx, "n")
	require.NoError(t, err)
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
	second, err := c.Lock(ctx, "n")
	require.NoError(t, err)
	var again etcd.Key
	require.True(t, second.As(&again))
	assert.Equal(t, k.Key, again.Key, "the key is used again, so deleted ones do not pile up")
	assert.False(t, write(held), "another has it")
	_, err = etcd.Held(first)
	require.ErrorIs(t, err, locker.ErrUnlocked)
	_, err = etcd.Held(nil)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.NoError(t, second.Unlock(ctx))
}

// A release that is made again deletes by owner: a key of the same name that is
// another's stays.
func TestReleaseMadeAgainComparesTheOwner(t *testing.T) {
	s := newScene(t, 1)
	ctx := t.Context()
	b := backend(t, s.Addrs())
	grant, err := b.Acquire(ctx, request("n", time.Minute, false))
	require.NoError(t, err)
	keys := locksIn(t, s.admin, "n")
	require.Len(t, keys, 1)
	over, cancel := context.WithCancel(ctx)
	cancel()
	require.Error(t, grant.Hold.Release(over))
	_, err = s.admin.Put(ctx, keys[0], "0000000000000000000000000000000000000000:another")
	require.NoError(t, err)
	require.ErrorIs(t, grant.Hold.Release(ctx), locker.ErrLost)
	require.Equal(t, keys, locksIn(t, s.admin, "n"))
}

// A process hands a lock on to another with the two writes that each of them
// needs anyway: its key is put and deleted.
func TestHandingOnCostsNoMoreWrites(t *testing.T) {
	s := newScene(t, 1)
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
		l, err := c.Lock(ctx, "warm")
		require.NoError(t, err)
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
}

func TestManyClientsNeverOverlap(t *testing.T) {
	s := newScene(t, 3)
	ctx := t.Context()
	var inside, last atomic.Int64
	var done sync.WaitGroup
	for range 6 {
		c := client(t, s.Addrs(), 5*time.Second)
		for range 3 {
			done.Go(func() {
				for range 15 {
					l, err := c.Lock(ctx, "n")
					if !assert.NoError(t, err) {
						return
					}
					token, _ := l.Token()
					assert.EqualValues(t, 1, inside.Add(1))
					assert.Greater(t, int64(token), last.Swap(int64(token)))
					inside.Add(-1)
					assert.NoError(t, l.Unlock(ctx))
				}
			})
		}
	}
	done.Wait()
	assert.Empty(t, all(t, s.admin))
}
