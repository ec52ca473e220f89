package etcd_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/etcd"
	"github.com/golockers/locker/internal/locktest"
)

func TestReleaseWakesOneWaiterInTheirOrder(t *testing.T) {
	s := parallelScene(t, 1)
	ctx := t.Context()
	const waiters = 8
	held := locktest.Lock(t, client(t, s.Addrs(), time.Minute), "n")
	var woken [waiters]atomic.Int32
	answers := make([]<-chan locked, waiters)
	for i := range waiters {
		counted := onStreams(func(s grpc.ClientStream) grpc.ClientStream { return eventful{s, &woken[i]} })
		answers[i] = lockLater(ctx, client(t, s.Addrs(), time.Minute, counted), "n")
		s.queued(t, "n", i+2)
	}
	s.watched(t, waiters)
	lease := held
	for i := range waiters {
		require.NoError(t, lease.Unlock(ctx))
		lease = s.get(t, answers[i], beforeThePoll).lease
		assert.LessOrEqual(t, woken[i].Load(), int32(1))
		for j := i + 1; j < waiters; j++ {
			assert.Zero(t, woken[j].Load(), "%d is woken for %d", j, i)
		}
	}
	require.NoError(t, lease.Unlock(ctx))
}

// eventful counts the events of watches.
type eventful struct {
	grpc.ClientStream
	events *atomic.Int32
}

func (s eventful) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if resp, ok := m.(*etcdserverpb.WatchResponse); ok && err == nil && len(resp.Events) > 0 {
		s.events.Add(1)
	}
	return err
}

func TestTokensAreCreateRevisionsAndFenceTransactions(t *testing.T) {
	s := newScene(t, 1)
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
}

// A client with two places in a queue has the number of its first key free when that one leaves. A request that is
// made again, since its answer was lost, finds the key that it has: with the number that is free, the lock that it was
// granted would be in its own way, or a sharer would leave a second key behind (R11).
func TestRequestThatIsMadeAgainFindsItsKey(t *testing.T) {
	s := parallelScene(t, 1)
	ctx := t.Context()
	b := patientBackend(t, s.Addrs())
	for _, shared := range []bool{false, true} {
		name := fmt.Sprint("shared=", shared)
		t.Run(name, func(t *testing.T) {
			before, req := request(name, time.Minute, false), request(name, time.Minute, true)
			before.Shared, req.Shared = shared, shared
			leaves := locktest.Acquire(t, b, before)
			answer := make(chan driver.Grant, 1)
			go func() {
				g, err := locktest.Ask(ctx, b, req)
				assert.NoError(t, err)
				answer <- g
			}()
			s.queued(t, name, 2)
			require.NoError(t, leaves.Hold.Release(ctx, 0))
			first := <-answer
			for _, req.Wait = range []bool{false, true} {
				again, err := locktest.Ask(within(t, 20*time.Second), b, req)
				require.NoError(t, err)
				assert.Equal(t, first.Token, again.Token)
				assert.Len(t, locksIn(t, s.admin, name), 1)
			}
			req.Wait, req.Shared = false, !shared
			_, err := locktest.Ask(ctx, b, req)
			require.ErrorIs(t, err, driver.ErrHeld, "in the other kind it is another request")
			require.NoError(t, first.Hold.Release(ctx, 0))
			assert.Empty(t, locksIn(t, s.admin, name))
		})
	}
}
