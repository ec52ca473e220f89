package etcd_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/etcd"
	"github.com/golockers/locker/internal/locktest"
)

// onTxn has f make a client's transactions.
func onTxn(f func(req *etcdserverpb.TxnRequest, send func() error) error) func(*clientv3.Config) {
	return func(c *clientv3.Config) {
		c.DialOptions = append(c.DialOptions, grpc.WithChainUnaryInterceptor(
			func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
				invoker grpc.UnaryInvoker, opts ...grpc.CallOption,
			) error {
				send := func() error { return invoker(ctx, method, req, reply, cc, opts...) }
				if txn, ok := req.(*etcdserverpb.TxnRequest); ok {
					return f(txn, send)
				}
				return send()
			},
		))
	}
}

// loseAnswer carries the first transaction out that is meant, and loses the answer.
func loseAnswer(meant func(req *etcdserverpb.TxnRequest) bool) func(*clientv3.Config) {
	var lost atomic.Bool
	return onTxn(func(req *etcdserverpb.TxnRequest, send func() error) error {
		if !meant(req) || !lost.CompareAndSwap(false, true) {
			return send()
		}
		if err := send(); err != nil {
			return err
		}
		return status.Error(codes.Unavailable, "the answer is lost")
	})
}

// floorLease returns the lease that a transaction, or one in it, puts a floor on; 0 if it does not.
func floorLease(req *etcdserverpb.TxnRequest) clientv3.LeaseID {
	if len(req.Success) != 1 {
		return 0
	}
	if in := req.Success[0].GetRequestTxn(); in != nil {
		return floorLease(in)
	}
	put := req.Success[0].GetRequestPut()
	if put == nil || !strings.Contains(string(put.Key), "/!") {
		return 0
	}
	return clientv3.LeaseID(put.Lease)
}

func strictBackend(t *testing.T, s scene, opts ...func(*clientv3.Config)) *etcd.Backend {
	t.Helper()
	b, err := etcd.New(dial(t, s.Addrs(), opts...), &etcd.Options{StrictExpiry: true})
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// orphan leaves the floor of a lock whose place is gone.
func (s scene) orphan(t *testing.T, name string, ttl time.Duration) {
	t.Helper()
	locktest.Acquire(t, strictBackend(t, s), request(name, ttl, false))
	leases, _ := s.queued(t, name, 2)
	s.revoke(t, *leases[0])
	s.queued(t, name, 1)
}

// The lease of a floor is gone before it is used: the session has lost nothing.
func TestLeaseOfAFloorThatIsGoneEndsNoLock(t *testing.T) {
	s := parallelScene(t, 1)
	ctx := t.Context()
	s.orphan(t, "orphan", time.Minute)
	revoking := onTxn(func(req *etcdserverpb.TxnRequest, send func() error) error {
		if id := floorLease(req); id != 0 {
			if _, err := s.admin.Revoke(ctx, id); err != nil {
				return err
			}
		}
		return send()
	})
	for what, kept := range map[string]time.Duration{"orphan": 0, "free": time.Minute} {
		t.Run(what, func(t *testing.T) {
			b := backend(t, s.Addrs(), revoking)
			var lost atomic.Bool
			req := request("held with "+what, time.Minute, false)
			req.Lost = func() { lost.Store(true) }
			held := locktest.Acquire(t, b, req)
			req = request(what, time.Minute, false)
			req.MinHold = kept
			other, err := locktest.Ask(ctx, b, req)
			require.ErrorIs(t, err, driver.ErrUnavailable)
			if other.Hold != nil {
				require.NoError(t, other.Hold.Release(ctx, 0))
			}
			_, err = held.Hold.Renew(ctx)
			require.NoError(t, err)
			assert.False(t, lost.Load())
			require.NoError(t, held.Hold.Release(ctx, 0))
		})
	}
}

// A server has so much to do that the lease of a session is over before its key is put:
// that passes, and is not told as something that asking again does not mend.
func TestLeaseOfASessionThatIsOverBeforeItIsUsed(t *testing.T) {
	s := parallelScene(t, 1)
	var over atomic.Bool
	b := backend(t, s.Addrs(), onTxn(func(req *etcdserverpb.TxnRequest, send func() error) error {
		put := req.Success[0].GetRequestPut()
		if put != nil && strings.Contains(string(put.Key), "/session/") && over.CompareAndSwap(false, true) {
			if _, err := s.admin.Revoke(t.Context(), clientv3.LeaseID(put.Lease)); err != nil {
				return err
			}
		}
		return send()
	}))
	_, err := locktest.Ask(t.Context(), b, request("n", time.Minute, true))
	require.ErrorIs(t, err, driver.ErrUnavailable)
	g := locktest.Acquire(t, b, request("n", time.Minute, true))
	require.NoError(t, g.Hold.Release(t.Context(), 0))
}

func TestBreakThatIsSentTwiceBreaksOne(t *testing.T) {
	s := parallelScene(t, 1)
	first := locktest.Acquire(t, backend(t, s.Addrs()), request("n", time.Minute, false))
	answer := lockLater(t.Context(), client(t, s.Addrs(), time.Minute), "n")
	s.queued(t, "n", 2)
	addr := s.Nodes[0].Addr()
	b := backend(t, []string{addr, addr}, loseAnswer(func(req *etcdserverpb.TxnRequest) bool {
		return len(req.Success) > 0 && req.Success[0].GetRequestTxn() != nil
	}))
	broken, err := locktest.Break(t.Context(), b, "n")
	require.NoError(t, err)
	assert.Equal(t, first.Token, broken.Token)
	next := s.get(t, answer, 30*time.Second)
	s.queued(t, "n", 1)
	require.NoError(t, next.lease.Unlock(t.Context()))
}

// Its floor is left when somebody deletes the key by hand: the client does not
// stand in its own way.
func TestStrictLockThatIsDeletedCanBeTakenAgain(t *testing.T) {
	s := parallelScene(t, 1)
	ctx := t.Context()
	c := locktest.Must(locker.New(strictBackend(t, s), &locker.Options{TTL: 3 * time.Second}))
	t.Cleanup(func() { _ = c.Close() })
	held := locktest.Lock(t, c, "n")
	_, names := s.queued(t, "n", 2)
	s.delete(t, names[0])
	<-held.Done()
	next := locktest.Lock(t, c, "n")
	require.NoError(t, next.Unlock(ctx))
	eventually(t, 30*time.Second, "nothing is left", func() bool { return len(all(t, s.admin)) == 0 })
}

// What stands at the key of a floor may be another's by now.
func TestCloseLeavesTheFloorsOfOthers(t *testing.T) {
	s := parallelScene(t, 1)
	b := strictBackend(t, s)
	for _, name := range []string{"mine", "other"} {
		locktest.Acquire(t, b, request(name, time.Minute, false))
	}
	_, names := s.queued(t, "other", 2)
	floor := names[1]
	_, err := s.admin.Put(t.Context(), floor, "another/60/1:")
	require.NoError(t, err)
	require.NoError(t, b.Close())
	assert.Equal(t, []string{floor}, all(t, s.admin))
}

// A key of the same name that was put later is not the one that is held.
func TestKeyThatIsPutAgainIsNotTheLock(t *testing.T) {
	s := parallelScene(t, 1)
	g := locktest.Acquire(t, backend(t, s.Addrs()), request("n", time.Minute, false))
	_, names := s.queued(t, "n", 1)
	s.delete(t, names[0])
	_, err := s.admin.Put(t.Context(), names[0], "again:")
	require.NoError(t, err)
	_, err = g.Hold.Renew(t.Context())
	require.ErrorIs(t, err, driver.ErrLost)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = g.Hold.Renew(ctx)
	require.ErrorIs(t, err, driver.ErrLost, "that is known, also to a renewal that is not answered")
}

// The holder's lease ends between two copies of a Break, the first of which is lost: its
// floor is broken as well.
func TestBreakThatIsLostBreaksTheFloor(t *testing.T) {
	s := parallelScene(t, 1)
	ctx := t.Context()
	locktest.Acquire(t, strictBackend(t, s), request("n", time.Minute, false))
	leases, _ := s.queued(t, "n", 2)
	holder := *leases[0]
	var lost atomic.Bool
	addr := s.Nodes[0].Addr()
	b := backend(t, []string{addr, addr}, onTxn(func(req *etcdserverpb.TxnRequest, send func() error) error {
		if len(req.Success) == 0 || req.Success[0].GetRequestTxn() == nil ||
			!lost.CompareAndSwap(false, true) {
			return send()
		}
		_, err := s.admin.Revoke(ctx, holder)
		assert.NoError(t, err)
		return status.Error(codes.Unavailable, "the request is lost")
	}))
	broken, err := locktest.Break(ctx, b, "n")
	require.NoError(t, err)
	assert.True(t, broken.Held)
	assert.Empty(t, all(t, s.admin))
}

// A Break breaks nobody but the holder that its State tells of: not those who hold when it comes late, and not by
// a State of another cluster, or of before a restore, with higher revisions.
func TestBreakOfAnotherHolderBreaksNobody(t *testing.T) {
	s := parallelScene(t, 1)
	ctx := t.Context()
	b := backend(t, s.Addrs())
	share := request("n", time.Minute, false)
	share.Shared = true
	first := locktest.Acquire(t, b, share)
	late, err := b.Inspect(ctx, "n")
	require.NoError(t, err)
	require.NoError(t, first.Hold.Release(ctx, 0))
	share.Owner = "next"
	next := locktest.Acquire(t, b, share)
	require.NoError(t, b.Break(ctx, late))
	_, err = next.Hold.Renew(ctx)
	require.NoError(t, err, "it was late")

	alone := locktest.Acquire(t, b, request("alone", time.Minute, false))
	for _, name := range []string{"n", "later"} { // one before, and one after
		if name == "later" {
			locktest.Acquire(t, b, request(name, time.Minute, false))
		}
		other, err := b.Inspect(ctx, name)
		require.NoError(t, err)
		other.Name = "alone"
		require.NoError(t, b.Break(ctx, other))
		_, err = alone.Hold.Renew(ctx)
		require.NoError(t, err, name)
	}
	require.NoError(t, b.Break(ctx, driver.State{Name: "alone", Held: true, Holder: "etcd 1-9000000000"}))
	_, err = alone.Hold.Renew(ctx)
	require.NoError(t, err, "it is no sharer")
}

// Two renewals at one time: the one that is not answered does not say that the lock is there when the other has
// said that it is gone.
func TestRenewalBesideOneThatFindsItGone(t *testing.T) {
	s := parallelScene(t, 1)
	asked, pass, end := make(chan struct{}, 100), make(chan struct{}), make(chan struct{})
	defer close(end)
	looks := 0
	b := backend(t, s.Addrs(), onTxn(func(req *etcdserverpb.TxnRequest, send func() error) error {
		if len(req.Compare) == 0 && strings.HasPrefix(string(req.Success[0].GetRequestRange().GetKey()), queue("n")) {
			looks++ // the session's poll makes one after the other
			asked <- struct{}{}
			<-pass
			if looks > 1 {
				<-end
			}
		}
		return send()
	}))
	g := locktest.Acquire(t, b, request("n", 20*time.Second, false))
	s.delete(t, queue("n"), clientv3.WithPrefix())
	first, second := make(chan error, 1), make(chan error, 1)
	renew := func(ended chan error) {
		_, err := g.Hold.Renew(t.Context())
		ended <- err
	}
	go renew(first)
	<-asked
	go renew(second)
	time.Sleep(50 * time.Millisecond) // it is under way by then, or finds what the first has found
	close(pass)
	require.ErrorIs(t, <-first, driver.ErrLost)
	require.ErrorIs(t, <-second, driver.ErrLost)
}
