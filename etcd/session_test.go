package etcd_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/etcd"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
)

func TestWaiterWhoseSessionExpiresQueuesAgain(t *testing.T) {
	s := parallelScene(t, 1)
	ctx := t.Context()
	holder, third := client(t, s.Addrs(), time.Minute), client(t, s.Addrs(), time.Minute)
	waiter := client(t, s.Addrs(), 8*time.Second)
	held := locktest.Lock(t, holder, "n")
	first := lockLater(ctx, waiter, "n")
	leases, _ := s.queued(t, "n", 2)
	second := lockLater(ctx, third, "n")
	s.queued(t, "n", 3)
	s.revoke(t, *leases[1])
	began := time.Now()
	s.queued(t, "n", 3)
	assert.Less(t, time.Since(began), beforeThePoll, "by the next keep-alive")
	require.NoError(t, held.Unlock(ctx))
	next := s.get(t, second, beforeThePoll)
	require.NoError(t, next.lease.Unlock(ctx))
	last := s.get(t, first, beforeThePoll)
	require.NoError(t, last.lease.Unlock(ctx))
	s.queued(t, "n", 0)
}

func TestWaiterWhoseKeyIsDeletedNeverHoldsALockThatItDoesNotHave(t *testing.T) {
	s := parallelScene(t, 1)
	ctx := t.Context()
	holder := client(t, s.Addrs(), time.Minute)
	waiter := locktest.Must(locker.New(backend(t, s.Addrs()), &locker.Options{TTL: time.Minute}))
	t.Cleanup(func() { _ = waiter.Close() })
	for range 5 {
		held := locktest.Lock(t, holder, "n")
		answer := lockLater(ctx, waiter, "n")
		_, names := s.queued(t, "n", 2)
		s.delete(t, names[1])
		require.NoError(t, held.Unlock(ctx))
		got := s.get(t, answer, 30*time.Second)
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

// A session is given up when its own key is deleted, while its lease and the keys of its waiters live on: what
// is granted on the next session must not be one of those.
func TestPlaceOfASessionThatWasGivenUpIsNotTakenOver(t *testing.T) {
	s := parallelScene(t, 1)
	ctx := t.Context()
	held := locktest.Lock(t, client(t, s.Addrs(), time.Minute), "n")
	answer := lockLater(ctx, client(t, s.Addrs(), 6*time.Second), "n")
	leases, _ := s.queued(t, "n", 2)
	s.delete(t, fmt.Sprintf("locker/1/session/%x", int64(*leases[1])))
	eventually(t, 30*time.Second, "it waits on another session", func() bool {
		now, _ := s.queued(t, "n", 2)
		return *now[1] != *leases[1]
	})
	require.NoError(t, held.Unlock(ctx))
	got := s.get(t, answer, 30*time.Second)
	var k etcd.Key
	require.True(t, got.lease.As(&k))
	assert.NotEqual(t, *leases[1], k.Lease)
	require.NoError(t, got.lease.Unlock(ctx))
}

// The answers to the grant of a session's lease and to the put of its own key are lost. The copy of the grant makes
// a second lease, which nobody uses, and which expires by itself. What the copy of the put finds is the session's. With the revision of the copy taken for that of the key, each lock was lost at once.
func TestKeyOfASessionThatIsPutTwice(t *testing.T) {
	s := parallelScene(t, 1)
	addr := s.Nodes[0].Addr()
	ofSession := func(key []byte) bool { return strings.Contains(string(key), "/session/") }
	losing := loseAnswer(func(req *etcdserverpb.TxnRequest) bool {
		return ofSession(req.Success[0].GetRequestPut().GetKey())
	})
	var granted atomic.Bool
	losingGrant := intercepted(func(_ context.Context, method string, send func() error) error {
		err := send()
		if err == nil && strings.HasSuffix(method, "/LeaseGrant") && granted.CompareAndSwap(false, true) {
			err = status.Error(codes.Unavailable, "the answer is lost")
		}
		return err
	})
	var looks atomic.Int32
	b := backend(t, []string{addr, addr}, losingGrant, losing, onTxn(func(req *etcdserverpb.TxnRequest, send func() error) error {
		err := send()
		if len(req.Success) > 0 && ofSession(req.Success[0].GetRequestRange().GetKey()) {
			looks.Add(1)
		}
		return err
	}))
	var lost atomic.Bool
	req := request("n", time.Minute, false)
	req.Lost = func() { lost.Store(true) }
	g := locktest.Acquire(t, b, req)
	eventually(t, 30*time.Second, "the session has looked for its key", func() bool { return looks.Load() > 0 })
	for range 2 { // the second asks after what that look said was told
		_, err := g.Hold.Renew(t.Context())
		require.NoError(t, err)
	}
	assert.False(t, lost.Load())
	require.NoError(t, g.Hold.Release(t.Context(), 0))
}

// Etcd falls silent just when a session is over, so that its lease is not revoked: whoever asked on it is told in
// time, and gets what may be left.
func TestAttemptDoesNotWaitForARevocationThatIsNotAnswered(t *testing.T) {
	s := parallelScene(t, 1)
	ctx := within(t, 30*time.Second)
	locktest.Acquire(t, backend(t, s.Addrs()), request("n", time.Minute, false))
	waiter := backend(t, s.Addrs(), intercepted(func(ctx context.Context, method string, send func() error) error {
		if strings.HasSuffix(method, "/LeaseRevoke") {
			<-ctx.Done()
			return ctx.Err()
		}
		return send()
	}))
	var left driver.Grant
	answer := make(chan error, 1)
	go func() {
		var err error
		left, err = locktest.Ask(ctx, waiter, request("n", time.Minute, true))
		answer <- err
	}()
	leases, _ := s.queued(t, "n", 2)
	s.delete(t, fmt.Sprintf("locker/1/session/%x", int64(*leases[1])))
	require.ErrorIs(t, <-answer, driver.ErrUnavailable)
	require.NoError(t, ctx.Err())
	require.NotNil(t, left.Hold, "what may be left has to be told")
	require.NoError(t, left.Hold.Undo(ctx))
	s.queued(t, "n", 1)
}

// The session is over when its own key is deleted, and its lease, which lives on, blocks nobody for a TTL.
func TestSessionWhoseKeyIsDeletedIsRevoked(t *testing.T) {
	s := parallelScene(t, 1)
	ctx := t.Context()
	held := locktest.Lock(t, client(t, s.Addrs(), time.Minute), "n")
	s.delete(t, "locker/1/session/", clientv3.WithPrefix())
	next := locktest.Lock(t, client(t, s.Addrs(), time.Minute), "n")
	require.ErrorIs(t, held.Err(), driver.ErrLost)
	require.NoError(t, next.Unlock(ctx))
}

// What a leader says that does not know that it was replaced comes from
// another term than what a majority says.
func TestKeepAliveOfAnotherTermIsNotBelieved(t *testing.T) {
	s := parallelScene(t, 1)
	c := client(t, s.Addrs(), 2*time.Second,
		onStreams(func(s grpc.ClientStream) grpc.ClientStream { return oldTerm{s} }))
	l := locktest.Lock(t, c, "n")
	select {
	case <-l.Done():
		require.ErrorIs(t, l.Err(), driver.ErrLost)
	case <-time.After(30 * time.Second):
		require.Fail(t, "the session was kept alive by a leader of the past")
	}
}

// A leader that does not know yet that it was replaced has never heard of a lease
// that its successor has granted: a majority knows better.
func TestLeaseThatAStaleLeaderDoesNotKnowIsNotLost(t *testing.T) {
	s := parallelScene(t, 1)
	var told atomic.Int32
	c := client(t, s.Addrs(), 8*time.Second,
		onStreams(func(s grpc.ClientStream) grpc.ClientStream { return unknownLease{s, &told} }))
	l := locktest.Lock(t, c, "n")
	until := l.Until()
	eventually(t, 30*time.Second, "the lease is said to be unknown twice, and then kept alive",
		func() bool { return told.Load() > 2 && l.Until().After(until) })
	require.NoError(t, l.Unlock(t.Context()))
}

// A watch tells at once that a session is gone, also while the look that came before it gets no answer.
func TestLossIsToldWhileALookHangs(t *testing.T) {
	s := parallelScene(t, 1)
	hangs, answer := make(chan struct{}, 8), make(chan struct{})
	defer close(answer)
	b := patientBackend(t, s.Addrs(), onTxn(func(req *etcdserverpb.TxnRequest, send func() error) error {
		if strings.Contains(string(req.Success[0].GetRequestRange().GetKey()), "/session/") {
			hangs <- struct{}{}
			<-answer
		}
		return send()
	}))
	req, lost := request("n", time.Minute, false), make(chan struct{})
	req.Lost = sync.OnceFunc(func() { close(lost) })
	var k etcd.Key
	require.True(t, locktest.Acquire(t, b, req).Hold.(driver.Aser).As(&k))
	<-hangs
	s.revoke(t, k.Lease)
	select {
	case <-lost:
	case <-time.After(5 * time.Second):
		assert.Fail(t, "the holder is not notified before the look has ended")
	}
}

// A keep-alive counts from before it is sent, whenever its answer comes (R1).
func TestKeepAliveCountsFromBeforeItsRequest(t *testing.T) {
	s := parallelScene(t, 1)
	var sent atomic.Pointer[time.Time] // the last one
	b := backend(t, s.Addrs(), onStreams(func(s grpc.ClientStream) grpc.ClientStream { return &timed{s, &sent} }))
	g := locktest.Acquire(t, b, request("n", 8*time.Second, false))
	eventually(t, 30*time.Second, "the session is kept alive", func() bool {
		v, err := g.Hold.Renew(t.Context())
		require.NoError(t, err)
		if !v.Since.After(g.Validity.Since) {
			return false
		}
		assert.False(t, v.Since.After(*sent.Load()), "it counts from %v after its request", v.Since.Sub(*sent.Load()))
		return true
	})
	require.NoError(t, g.Hold.Release(t.Context(), 0))
}

// A member that does not answer a keep-alive may wait for a leader that hangs, though the others have elected another.
// After a fraction of the TTL another member is asked: with one that may take as long as the lease lasts, or with the
// same one again, the lock is lost.
func TestKeepAliveThatIsNotAnsweredGoesToAnotherMember(t *testing.T) {
	s := parallelScene(t, 1)
	var silent atomic.Pointer[string]
	addr := s.Nodes[0].Addr()
	b := backend(t, []string{addr, lab.StartProxy(t, addr).Addr()},
		onStreams(func(s grpc.ClientStream) grpc.ClientStream { return &muted{s, &silent} }))
	g := locktest.Acquire(t, b, request("n", 8*time.Second, false))
	eventually(t, 30*time.Second, "it is kept alive", func() bool {
		v, err := g.Hold.Renew(t.Context())
		require.NotErrorIs(t, err, driver.ErrLost)
		return v.Since.After(g.Validity.Since)
	})
	require.NotNil(t, silent.Load())
	require.NoError(t, g.Hold.Release(t.Context(), 0))
}

// muted gives no answers to keep-alives of the member that is asked first, on any connection.
type muted struct {
	grpc.ClientStream
	silent *atomic.Pointer[string]
}

func (s *muted) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if _, ok := m.(*etcdserverpb.LeaseKeepAliveResponse); !ok || err != nil {
		return err
	}
	from, _ := peer.FromContext(s.Context())
	addr := from.Addr.String()
	if s.silent.CompareAndSwap(nil, &addr) || *s.silent.Load() == addr {
		<-s.Context().Done()
		return s.Context().Err()
	}
	return nil
}

// timed notes when a keep-alive is sent.
type timed struct {
	grpc.ClientStream
	sent *atomic.Pointer[time.Time]
}

func (s *timed) SendMsg(m any) error {
	if _, ok := m.(*etcdserverpb.LeaseKeepAliveRequest); ok {
		now := time.Now()
		s.sent.Store(&now)
	}
	return s.ClientStream.SendMsg(m)
}

// unknownLease makes the first two keep-alives be for a lease that is not known.
type unknownLease struct {
	grpc.ClientStream
	told *atomic.Int32
}

func (s unknownLease) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if resp, ok := m.(*etcdserverpb.LeaseKeepAliveResponse); ok && err == nil && s.told.Add(1) <= 2 {
		resp.TTL = 0
	}
	return err
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

// Etcd's own minimum is one and a half election timeouts: what it granted counts.
func TestTTLThatEtcdRaisesIsTheOneThatCounts(t *testing.T) {
	s := parallelScene(t, 1, lab.WithConfig("election-timeout", "1500"))
	ctx := t.Context()
	b := backend(t, s.Addrs())
	before := time.Now()
	g := locktest.Acquire(t, b, request("n", time.Second, false))
	assert.Equal(t, 3*time.Second, g.Validity.TTL)
	assert.False(t, g.Validity.Since.Before(before))
	v, err := g.Hold.Renew(ctx)
	require.NoError(t, err)
	assert.Equal(t, 3*time.Second, v.TTL)
	require.NoError(t, g.Hold.Release(ctx, 0))
}

// The session is gone, and its keep-alive has not found out yet.
func TestLockOnASessionThatIsGoneIsTakenOnAnother(t *testing.T) {
	s := parallelScene(t, 1)
	ctx := t.Context()
	b := backend(t, s.Addrs())
	for i, wait := range []bool{false, true} {
		g := locktest.Acquire(t, b, request("first", time.Minute, wait))
		leases, _ := s.queued(t, "first", 1)
		s.revoke(t, *leases[0])
		next := locktest.Acquire(t, b, request(fmt.Sprint("next", i), time.Minute, wait))
		require.ErrorIs(t, g.Hold.Release(ctx, 0), driver.ErrLost)
		require.NoError(t, next.Hold.Release(ctx, 0))
	}
}

func TestSessionsAreSharedAndEndWithTheBackend(t *testing.T) {
	s := newScene(t, 1)
	ctx := t.Context()
	b := backend(t, s.Addrs())
	var grants []driver.Grant
	ttls := []time.Duration{1500 * time.Millisecond, 2 * time.Second, 20 * time.Second, 20 * time.Second}
	for i, ttl := range ttls {
		g := locktest.Acquire(t, b, request(string(rune('a'+i)), ttl, i%2 == 0))
		require.GreaterOrEqual(t, g.Validity.TTL, ttl)
		grants = append(grants, g)
	}
	leases, err := s.admin.Leases(ctx)
	require.NoError(t, err)
	assert.Len(t, leases.Leases, 2, "one for 2 s, one for 20 s")
	for _, g := range grants {
		require.NoError(t, g.Hold.Release(ctx, 0))
	}
	require.NoError(t, b.Close())
	leases, err = s.admin.Leases(ctx)
	require.NoError(t, err)
	assert.Empty(t, leases.Leases)
	_, err = locktest.Ask(ctx, b, request("a", time.Second, false))
	require.ErrorIs(t, err, driver.ErrClosed)
}
