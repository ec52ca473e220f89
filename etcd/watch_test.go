package etcd_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
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

// The watch is on a connection that hangs: the poll notices (R14), and nothing
// else is held up, since it goes the other way.
func TestWaiterWhoseWatchHangsGetsTheLockByPolling(t *testing.T) {
	s := parallelScene(t, 1)
	ctx := t.Context()
	waiter, roads, stop := twoRoads(t, s, 10*time.Second)
	defer stop()
	held := locktest.Lock(t, client(t, s.Addrs(), time.Minute), "n")
	_, names := s.queued(t, "n", 1)
	watching := make(chan *lab.Link, 2)
	for _, p := range roads {
		p.OnRequest(names[0], func(l *lab.Link) { watching <- l })
	}
	answer := lockLater(ctx, waiter, "n")
	link := <-watching
	s.queued(t, "n", 2)
	s.watched(t, 1)
	link.Replies(lab.Hold)
	began := time.Now()
	require.NoError(t, held.Unlock(ctx))
	got := s.get(t, answer, 30*time.Second)
	t.Logf("got the lock %v after the release", got.at.Sub(began))
	link.Replies(lab.Pass)
	require.NoError(t, got.lease.Unlock(ctx))
}

// Between the reading of the queue and the creation of the watch the lock is released.
func TestReleaseBeforeTheWatchIsThereIsNotMissed(t *testing.T) {
	s := parallelScene(t, 1)
	ctx := t.Context()
	holder := client(t, s.Addrs(), time.Minute)
	for range 3 {
		held := locktest.Lock(t, holder, "n")
		_, names := s.queued(t, "n", 1)
		waiter, roads, stop := twoRoads(t, s, time.Minute)
		watching := make(chan *lab.Link, 2)
		for _, p := range roads {
			p.OnRequest(names[0], func(l *lab.Link) {
				l.Requests(lab.Hold)
				watching <- l
			})
		}
		answer := lockLater(ctx, waiter, "n")
		link := <-watching
		require.NoError(t, held.Unlock(ctx))
		link.Requests(lab.Pass)
		got := s.get(t, answer, beforeThePoll)
		require.NoError(t, got.lease.Unlock(ctx))
		stop()
	}
}

// One of two ways swallows everything: what may be repeated goes the other.
func TestProveMemberThatHangsCostsAReleaseLittle(t *testing.T) {
	lab.NeedProve(t)
	s := parallelScene(t, 1)
	ctx := t.Context()
	c, roads, stop := twoRoads(t, s, time.Minute)
	defer stop()
	var leases []*locker.Lease
	for i := range 6 {
		l := locktest.Lock(t, c, string(rune('a'+i)))
		leases = append(leases, l)
	}
	roads[1].Requests(lab.Hold)
	for _, l := range leases {
		began := time.Now()
		require.NoError(t, l.Unlock(ctx))
		assert.Less(t, time.Since(began), 2*time.Second)
	}
	assert.Empty(t, all(t, s.admin))
}

// deaf never tells that something is gone.
type deaf struct{ grpc.ClientStream }

func (s deaf) RecvMsg(m any) error {
	for {
		err := s.ClientStream.RecvMsg(m)
		if resp, ok := m.(*etcdserverpb.WatchResponse); !ok || err != nil || len(resp.Events) == 0 {
			return err
		}
		m.(*etcdserverpb.WatchResponse).Reset()
	}
}

// The watch does not tell that the key before is gone, and a key of the same name is there
// again when the rare look comes: it is another one, and behind.
func TestWaiterIsNotMisledByANameThatIsUsedAgain(t *testing.T) {
	s := parallelScene(t, 1)
	ctx := t.Context()
	holder := backend(t, s.Addrs())
	held := locktest.Acquire(t, holder, request("n", time.Minute, true))
	waiter := backend(t, s.Addrs(), onStreams(func(s grpc.ClientStream) grpc.ClientStream { return deaf{s} }))
	waits := make(chan error, 1)
	var mine, again driver.Grant
	go func() {
		var err error
		mine, err = locktest.Ask(ctx, waiter, request("n", 20*time.Second, true))
		waits <- err
	}()
	_, names := s.queued(t, "n", 2)
	s.watched(t, 1)
	require.NoError(t, held.Hold.Release(ctx, 0))
	waitsAgain := make(chan error, 1)
	go func() {
		var err error
		again, err = locktest.Ask(ctx, holder, request("n", time.Minute, true))
		waitsAgain <- err
	}()
	_, now := s.queued(t, "n", 2)
	require.Equal(t, []string{names[1], names[0]}, now, "the name is used again")
	select {
	case err := <-waits:
		require.NoError(t, err)
	case <-time.After(2 * time.Minute):
		require.Fail(t, "it waits for who is behind it")
	}
	require.NoError(t, mine.Hold.Release(ctx, 0))
	require.NoError(t, <-waitsAgain)
	require.NoError(t, again.Hold.Release(ctx, 0))
}
