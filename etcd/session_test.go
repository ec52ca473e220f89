package etcd_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker"
	"github.com/golockers/locker/etcd"
	"github.com/golockers/locker/internal/testserver"
)

// lockLater calls Lock on a goroutine of its own.
func lockLater(ctx context.Context, c *locker.Client, name string) <-chan locked {
	answer := make(chan locked, 1)
	go func() {
		l, err := c.Lock(ctx, name)
		answer <- locked{l, err, time.Now()}
	}()
	return answer
}

type locked struct {
	lease *locker.Lease
	err   error
	at    time.Time
}

func (s scene) get(t testing.TB, answer <-chan locked, d time.Duration) locked {
	t.Helper()
	select {
	case a := <-answer:
		require.NoError(t, a.err)
		return a
	case <-time.After(d):
		require.Fail(t, "the waiter did not get the lock within "+d.String())
		return locked{}
	}
}

// scene is a cluster and somebody who looks at it.
type scene struct {
	*testserver.EtcdCluster
	admin *clientv3.Client
}

func newScene(t testing.TB, members int, opts ...testserver.EtcdOption) scene {
	s := testserver.StartEtcd(t, members, opts...)
	return scene{s, dial(t, s.Addrs())}
}

// queued waits until n keys are in the queue, and returns them in its order.
func (s scene) queued(t testing.TB, name string, n int) (keys []*clientv3.LeaseID, names []string) {
	t.Helper()
	eventually(t, 10*time.Second, "as many in the queue", func() bool {
		resp, err := s.admin.Get(within(t, 5*time.Second), queue(name), clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
		keys, names = nil, nil
		if err == nil {
			for _, kv := range resp.Kvs {
				id := clientv3.LeaseID(kv.Lease)
				keys, names = append(keys, &id), append(names, string(kv.Key))
			}
		}
		return len(names) == n
	})
	return keys, names
}

func TestWaiterWhoseSessionExpiresQueuesAgain(t *testing.T) {
	s := newScene(t, 1)
	ctx := t.Context()
	holder, waiter, third := client(t, s.Addrs(), time.Minute), client(t, s.Addrs(), 2*time.Second), client(t, s.Addrs(), time.Minute)
	held, err := holder.Lock(ctx, "n")
	require.NoError(t, err)
	first := lockLater(ctx, waiter, "n")
	leases, _ := s.queued(t, "n", 2)
	second := lockLater(ctx, third, "n")
	s.queued(t, "n", 3)
	_, err = s.admin.Revoke(ctx, *leases[1])
	require.NoError(t, err)
	s.queued(t, "n", 3)
	require.NoError(t, held.Unlock(ctx))
	next := s.get(t, second, time.Second)
	require.NoError(t, next.lease.Unlock(ctx))
	last := s.get(t, first, time.Second)
	require.NoError(t, last.lease.Unlock(ctx))
	s.queued(t, "n", 0)
}

func TestWaiterWhoseKeyIsDeletedNeverHoldsALockThatItDoesNotHave(t *testing.T) {
	s := newScene(t, 1)
	ctx := t.Context()
	holder, waiter := client(t, s.Addrs(), time.Minute), client(t, s.Addrs(), time.Minute)
	for range 5 {
		held, err := holder.Lock(ctx, "n")
		require.NoError(t, err)
		answer := lockLater(ctx, waiter, "n")
		_, names := s.queued(t, "n", 2)
		_, err = s.admin.Delete(ctx, names[1])
		require.NoError(t, err)
		require.NoError(t, held.Unlock(ctx))
		got := s.get(t, answer, 5*time.Second)
		cmp, err := etcd.Held(got.lease)
		require.NoError(t, err)
		resp, err := s.admin.Txn(ctx).If(cmp).Commit()
		require.NoError(t, err)
		require.True(t, resp.Succeeded, "it has the lock that it was given")
		require.NoError(t, got.lease.Unlock(ctx))
		// The session was not what was lost.
		require.NoError(t, got.lease.Unlock(ctx))
	}
}

func TestHolderWhoseSessionExpiresIsTold(t *testing.T) {
	s := newScene(t, 1)
	ctx := t.Context()
	c := client(t, s.Addrs(), 2*time.Second)
	l, err := c.Lock(ctx, "n")
	require.NoError(t, err)
	leases, _ := s.queued(t, "n", 1)
	_, err = s.admin.Revoke(ctx, *leases[0])
	require.NoError(t, err)
	began := time.Now()
	select {
	case <-l.Done():
		require.ErrorIs(t, l.Err(), locker.ErrLost)
		assert.Less(t, time.Since(began), time.Second, "by the next keep-alive")
	case <-time.After(5 * time.Second):
		require.Fail(t, "not told")
	}
	// And another session takes its place.
	l, err = c.Lock(ctx, "n")
	require.NoError(t, err)
	require.NoError(t, l.Unlock(ctx))
}

func TestWaiterOutlivesCompactionAndReconnection(t *testing.T) {
	s := newScene(t, 1)
	ctx := t.Context()
	network := newCut(t)
	holder, waiter := client(t, s.Addrs(), time.Minute), client(t, s.Addrs(), time.Minute, through(network.dial))
	held, err := holder.Lock(ctx, "n")
	require.NoError(t, err)
	answer := lockLater(ctx, waiter, "n")
	s.queued(t, "n", 2)
	time.Sleep(50 * time.Millisecond) // the watch
	network.set(testserver.Reset, testserver.Reset)
	var last int64
	for range 20 {
		put, err := s.admin.Put(ctx, "noise", "x")
		require.NoError(t, err)
		last = put.Header.Revision
	}
	_, err = s.admin.Compact(ctx, last, clientv3.WithCompactPhysical())
	require.NoError(t, err)
	network.set(testserver.Pass, testserver.Pass)
	time.Sleep(1500 * time.Millisecond)
	require.NoError(t, held.Unlock(ctx))
	got := s.get(t, answer, 2*time.Second)
	require.NoError(t, got.lease.Unlock(ctx))
}

// The watch is on a stream that hangs: the poll notices (R14).
func TestWaiterWhoseWatchHangsGetsTheLockByPolling(t *testing.T) {
	s := newScene(t, 1)
	ctx := t.Context()
	roads := []*testserver.Proxy{testserver.StartProxy(t, s.Nodes[0].Addr()), testserver.StartProxy(t, s.Nodes[0].Addr())}
	b := backend(t, []string{roads[0].Addr(), roads[1].Addr()})
	waiter := locker.New(b, &locker.Options{TTL: 10 * time.Second})
	holder := client(t, s.Addrs(), time.Minute)
	held, err := holder.Lock(ctx, "n")
	require.NoError(t, err)
	answer := lockLater(ctx, waiter, "n")
	_, names := s.queued(t, "n", 2)
	time.Sleep(100 * time.Millisecond)
	// The one that carries the watch is the one that tells of the holder's key.
	// It is not known which: both hang, one after the other, and never at once.
	_ = names
	roads[0].SetReplies(testserver.Hold)
	require.NoError(t, held.Unlock(ctx))
	got := s.get(t, answer, 9*time.Second)
	roads[0].SetReplies(testserver.Pass)
	require.NoError(t, got.lease.Unlock(ctx))
	require.NoError(t, waiter.Close())
	require.NoError(t, b.Close())
}

func TestCredentialsThatExpireAreRenewed(t *testing.T) {
	s := newScene(t, 1, testserver.WithEtcdFlag("auth-token-ttl", "1"))
	ctx := t.Context()
	withAuth(t, s.admin)
	login := func(c *clientv3.Config) { c.Username, c.Password = "locker", "pass" }
	root := dial(t, s.Addrs(), func(c *clientv3.Config) { c.Username, c.Password = "root", "pass" })
	s.admin = root
	holder, waiter := client(t, s.Addrs(), 2*time.Second, login), client(t, s.Addrs(), 2*time.Second, login)
	for range 2 {
		held, err := holder.Lock(ctx, "n")
		require.NoError(t, err)
		answer := lockLater(ctx, waiter, "n")
		s.queued(t, "n", 2)
		time.Sleep(4 * time.Second)
		require.NoError(t, held.Err())
		require.NoError(t, held.Unlock(ctx))
		got := s.get(t, answer, time.Second)
		time.Sleep(4 * time.Second)
		require.NoError(t, got.lease.Unlock(ctx))
	}
}

// withAuth turns authentication on: root, and locker with the least rights.
func withAuth(t testing.TB, admin *clientv3.Client) {
	t.Helper()
	ctx := within(t, 20*time.Second)
	for _, user := range []string{"root", "locker", "stranger"} {
		_, err := admin.UserAdd(ctx, user, "pass")
		require.NoError(t, err)
	}
	_, err := admin.UserGrantRole(ctx, "root", "root")
	require.NoError(t, err)
	_, err = admin.RoleAdd(ctx, "locker")
	require.NoError(t, err)
	_, err = admin.RoleGrantPermission(ctx, "locker", "locker/1/", clientv3.GetPrefixRangeEnd("locker/1/"), clientv3.PermissionType(clientv3.PermReadWrite))
	require.NoError(t, err)
	_, err = admin.UserGrantRole(ctx, "locker", "locker")
	require.NoError(t, err)
	_, err = admin.AuthEnable(ctx)
	require.NoError(t, err)
}

func TestSessionsAreSharedAndEndWhenIdleOrClosed(t *testing.T) {
	s := newScene(t, 1)
	ctx := t.Context()
	b := backend(t, s.Addrs())
	var grants []locker.Grant
	for i, ttl := range []time.Duration{1500 * time.Millisecond, 2 * time.Second, 20 * time.Second, 20 * time.Second} {
		g, err := b.Acquire(ctx, request(string(rune('a'+i)), ttl, i%2 == 0))
		require.NoError(t, err)
		require.GreaterOrEqual(t, g.Validity.TTL, ttl)
		grants = append(grants, g)
	}
	leases, err := s.admin.Leases(ctx)
	require.NoError(t, err)
	assert.Len(t, leases.Leases, 2, "one for 2 s, one for 20 s")
	for _, g := range grants {
		require.NoError(t, g.Hold.Release(ctx))
	}
	require.NoError(t, b.Close())
	leases, err = s.admin.Leases(ctx)
	require.NoError(t, err)
	assert.Empty(t, leases.Leases)
	_, err = b.Acquire(ctx, request("a", time.Second, false))
	require.ErrorIs(t, err, locker.ErrClosed)
}
