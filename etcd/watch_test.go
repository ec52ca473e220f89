package etcd_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
)

func TestWaiterOutlivesCompactionAndReconnection(t *testing.T) {
	s := parallelScene(t, 1)
	ctx := t.Context()
	network := lab.StartProxy(t)
	holder, waiter := client(t, s.Addrs(), time.Minute), client(t, s.Addrs(), time.Minute, through(network))
	held := locktest.Lock(t, holder, "n")
	answer := lockLater(ctx, waiter, "n")
	s.queued(t, "n", 2)
	s.watched(t, 1)
	network.Set(lab.Reset)
	var last int64
	for range 20 {
		put, err := s.admin.Put(ctx, "noise", "x")
		require.NoError(t, err)
		last = put.Header.Revision
	}
	_, err := s.admin.Compact(ctx, last, clientv3.WithCompactPhysical())
	require.NoError(t, err)
	network.Set(lab.Pass)
	s.watched(t, 1)
	require.NoError(t, held.Unlock(ctx))
	got := s.get(t, answer, beforeThePoll)
	require.NoError(t, got.lease.Unlock(ctx))
}
