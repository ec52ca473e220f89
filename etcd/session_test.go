package etcd_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

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
	began := time.Now()
	s.queued(t, "n", 3)
	assert.Less(t, time.Since(began), 2*time.Second, "by the next keep-alive, not by a poll")
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

// The watch is on a connection that hangs: the poll notices (R14), and nothing
// else is held up, since it goes the other way.
func TestWaiterWhoseWatchHangsGetsTheLockByPolling(t *testing.T) {
	s := newScene(t, 1)
	ctx := t.Context()
	waiter, roads, stop := twoRoads(t, s, 10*time.Second)
	defer stop()
	held, err := client(t, s.Addrs(), time.Minute).Lock(ctx, "n")
	require.NoError(t, err)
	_, names := s.queued(t, "n", 1)
	watching := make(chan *testserver.Link, 2)
	for _, p := range roads {
		p.OnRequest(names[0], func(l *testserver.Link) { watching <- l })
	}
	answer := lockLater(ctx, waiter, "n")
	link := <-watching
	s.queued(t, "n", 2)
	time.Sleep(200 * time.Millisecond)
	link.SetReplies(testserver.Hold)
	began := time.Now()
	require.NoError(t, held.Unlock(ctx))
	got := s.get(t, answer, 9*time.Second)
	t.Logf("got the lock %v after the release", got.at.Sub(began))
	link.SetReplies(testserver.Pass)
	require.NoError(t, got.lease.Unlock(ctx))
}

// twoRoads is a client that takes turns between two ways to the same member.
func twoRoads(t *testing.T, s scene, ttl time.Duration) (c *locker.Client, roads []*testserver.Proxy, stop func()) {
	for range 2 {
		roads = append(roads, testserver.StartProxy(t, s.Nodes[0].Addr()))
	}
	b := backend(t, []string{roads[0].Addr(), roads[1].Addr()})
	c = locker.New(b, &locker.Options{TTL: ttl})
	return c, roads, func() {
		for _, p := range roads {
			p.Set(testserver.Pass)
		}
		require.NoError(t, c.Close())
		require.NoError(t, b.Close())
	}
}

// Between the reading of the queue and the creation of the watch the lock is released.
func TestReleaseBeforeTheWatchIsThereIsNotMissed(t *testing.T) {
	s := newScene(t, 1)
	ctx := t.Context()
	holder := client(t, s.Addrs(), time.Minute)
	for range 3 {
		held, err := holder.Lock(ctx, "n")
		require.NoError(t, err)
		_, names := s.queued(t, "n", 1)
		waiter, roads, stop := twoRoads(t, s, time.Minute)
		watching := make(chan *testserver.Link, 2)
		for _, p := range roads {
			p.OnRequest(names[0], func(l *testserver.Link) {
				l.SetRequests(testserver.Hold)
				watching <- l
			})
		}
		answer := lockLater(ctx, waiter, "n")
		link := <-watching
		require.NoError(t, held.Unlock(ctx))
		link.SetRequests(testserver.Pass)
		began := time.Now()
		got := s.get(t, answer, 5*time.Second)
		assert.Less(t, got.at.Sub(began), time.Second, "not by the poll")
		require.NoError(t, got.lease.Unlock(ctx))
		stop()
	}
}

// One of two ways swallows everything: what may be repeated goes the other.
func TestMemberThatHangsCostsAReleaseLittle(t *testing.T) {
	s := newScene(t, 1)
	ctx := t.Context()
	c, roads, stop := twoRoads(t, s, time.Minute)
	defer stop()
	var leases []*locker.Lease
	for i := range 6 {
		l, err := c.Lock(ctx, string(rune('a'+i)))
		require.NoError(t, err)
		leases = append(leases, l)
	}
	roads[1].SetRequests(testserver.Hold)
	for _, l := range leases {
		began := time.Now()
		require.NoError(t, l.Unlock(ctx))
		assert.Less(t, time.Since(began), 2*time.Second)
	}
	assert.Empty(t, all(t, s.admin))
}

// What a leader says that does not know that it was replaced comes from
// another term than what a majority says.
func TestKeepAliveOfAnotherTermIsNotBelieved(t *testing.T) {
	s := newScene(t, 1)
	c := client(t, s.Addrs(), 2*time.Second, func(c *clientv3.Config) {
		c.DialOptions = append(c.DialOptions, grpc.WithChainStreamInterceptor(
			func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
				stream, err := streamer(ctx, desc, cc, method, opts...)
				return oldTerm{stream}, err
			}))
	})
	began := time.Now()
	l, err := c.Lock(t.Context(), "n")
	require.NoError(t, err)
	select {
	case <-l.Done():
		require.ErrorIs(t, l.Err(), locker.ErrLost)
		assert.Less(t, time.Since(began), 3*time.Second, "a TTL, and what it took to connect")
	case <-time.After(4 * time.Second):
		require.Fail(t, "the session was kept alive by a leader of the past")
	}
}

// oldTerm makes keep-alives come from the term before.
type oldTerm struct{ grpc.ClientStream }

func (s oldTerm) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if resp, ok := m.(*etcdserverpb.LeaseKeepAliveResponse); ok && err == nil {
		resp.Header.RaftTerm--
	}
	return err
}

func TestEndOfASessionIsToldUnasked(t *testing.T) {
	s := newScene(t, 1)
	b := backend(t, s.Addrs())
	told := make(chan struct{}, 10)
	req := request("n", 2*time.Second, true)
	req.Lost = func() { told <- struct{}{} }
	_, err := b.Acquire(t.Context(), req)
	require.NoError(t, err)
	leases, _ := s.queued(t, "n", 1)
	_, err = s.admin.Revoke(t.Context(), *leases[0])
	require.NoError(t, err)
	select {
	case <-told:
	case <-time.After(2 * time.Second):
		require.Fail(t, "not told")
	}
}

func TestCredentialsThatExpireAreRenewed(t *testing.T) {
	s := newScene(t, 1, testserver.WithEtcdFlag("auth-token-ttl", "1"), testserver.WithEtcdFlag("bcrypt-cost", "4"))
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
