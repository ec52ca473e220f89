package etcd_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
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
	waiter := client(t, s.Addrs(), 2*time.Second)
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

// The answers to the grant of a session's lease and to the put of its own key are lost. The copy of the grant makes
// a second lease, which nobody uses, and which expires by itself. What the copy of the put finds is the session's.
func TestKeyOfASessionThatIsPutTwice(t *testing.T) {
	s := parallelScene(t, 1)
	addr := s.Nodes[0].Addr()
	ofSession := func(key []byte) bool { return strings.Contains(string(key), "/session/") }
	var granted atomic.Bool
	var looks atomic.Int32
	b := backend(t, []string{addr, addr}, loseAnswer(func(req *pb.TxnRequest) bool {
		return ofSession(req.Success[0].GetRequestPut().GetKey())
	}), onCalls(func(c call) error {
		err := c.send()
		switch {
		case err == nil && c.is("LeaseGrant") && granted.CompareAndSwap(false, true):
			return status.Error(codes.Unavailable, "the answer is lost")
		case c.txn != nil && ofSession(c.txn.Success[0].GetRequestRange().GetKey()):
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
	waiter := backend(t, s.Addrs(), silent("LeaseRevoke"))
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

// onKeepAlives has f change what etcd answers to keep-alives.
func onKeepAlives(f func(resp *pb.LeaseKeepAliveResponse)) func(*clientv3.Config) {
	return onAnswers(func(_ grpc.ClientStream, m any) error {
		if resp, ok := m.(*pb.LeaseKeepAliveResponse); ok {
			f(resp)
		}
		return nil
	})
}

// What a leader says that does not know that it was replaced comes from
// another term than what a majority says.
func TestKeepAliveOfAnotherTermIsNotBelieved(t *testing.T) {
	s := parallelScene(t, 1)
	c := client(t, s.Addrs(), 2*time.Second, onKeepAlives(func(resp *pb.LeaseKeepAliveResponse) { resp.Header.RaftTerm-- }))
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
	c := client(t, s.Addrs(), 2*time.Second, onKeepAlives(func(resp *pb.LeaseKeepAliveResponse) {
		if told.Add(1) <= 2 {
			resp.TTL = 0
		}
	}))
	l := locktest.Lock(t, c, "n")
	eventually(t, 30*time.Second, "the lease is said to be unknown, and then kept alive",
		func() bool { return told.Load() > 4 })
	require.NoError(t, l.Unlock(t.Context()))
}

// A watch tells at once that a session is gone, also while the look that came before it gets no answer.
func TestLossIsToldWhileALookHangs(t *testing.T) {
	s := parallelScene(t, 1)
	hangs, answer := make(chan struct{}, 8), make(chan struct{})
	defer close(answer)
	b := backendWith(t, patient, s.Addrs(), onCalls(func(c call) error {
		if c.txn != nil && strings.Contains(string(c.txn.Success[0].GetRequestRange().GetKey()), "/session/") {
			hangs <- struct{}{}
			<-answer
		}
		return c.send()
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
	var answered atomic.Pointer[time.Time] // the last one
	b := backend(t, s.Addrs(), onKeepAlives(func(*pb.LeaseKeepAliveResponse) {
		now := time.Now()
		answered.Store(&now)
		time.Sleep(100 * time.Millisecond)
	}))
	g := locktest.Acquire(t, b, request("n", 8*time.Second, false))
	eventually(t, 30*time.Second, "the session is kept alive", func() bool {
		v, err := g.Hold.Renew(t.Context())
		require.NoError(t, err)
		if !v.Since.After(g.Validity.Since) {
			return false
		}
		assert.True(t, v.Since.Before(*answered.Load()), "it counts from %v after its answer", v.Since.Sub(*answered.Load()))
		return true
	})
	require.NoError(t, g.Hold.Release(t.Context(), 0))
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

// The engine waits 1.5 seconds for a Close.
func TestCloseOfStrictLocksDoesNotWaitForASilentService(t *testing.T) {
	s := parallelScene(t, 1)
	network := lab.StartProxy(t)
	b, err := etcd.New(dial(t, s.Addrs(), through(network)), &etcd.Options{StrictExpiry: true})
	require.NoError(t, err)
	locktest.Acquire(t, b, request("n", time.Minute, false))
	network.Set(lab.Drop)
	began := time.Now()
	require.NoError(t, b.Close())
	assert.Less(t, time.Since(began), 1800*time.Millisecond)
}

// Somebody deletes the key of a session, whose lease lives on. Revoking it lets the next holders in: all that
// held on it have been notified before, however long that takes.
func TestHoldersKnowBeforeASessionWhoseKeyIsGoneIsRevoked(t *testing.T) {
	s := parallelScene(t, 1)
	const many = 8
	var notified atomic.Int32
	revoked := make(chan int32, 10) // how many had been notified when a revocation was sent
	b := backend(t, s.Addrs(), onCalls(func(c call) error {
		if c.is("LeaseRevoke") {
			revoked <- notified.Load()
		}
		return c.send()
	}))
	for i := range many {
		req := request(fmt.Sprint(i), time.Minute, false)
		req.Lost = func() {
			time.Sleep(5 * time.Millisecond)
			notified.Add(1)
		}
		locktest.Acquire(t, b, req)
	}
	s.delete(t, "locker/1/session/", clientv3.WithPrefix())
	assert.EqualValues(t, many, <-revoked)
}

// A session that was not heard of may be kept alive by what is still on its way,
// and its keys with it. They are strangers to the next session: it waits for
// them, and takes none of them for its own or for one that was taken back.
func TestKeyThatASilentSessionLeftIsWaitedFor(t *testing.T) {
	s := parallelScene(t, 1)
	ctx := t.Context()
	network := lab.StartProxy(t)
	b := backend(t, s.Addrs(), through(network), silent("LeaseRevoke"))
	const ttl, longer = 2 * time.Second, time.Minute
	other, err := locktest.Ask(ctx, b, request("other", longer, false)) // its session lasts
	require.NoError(t, err)
	told := make(chan struct{})
	held := request("n", ttl, false)
	held.Lost = func() { close(told) }
	locktest.Acquire(t, b, held)
	leases, _ := s.queued(t, "n", 1)
	alive, err := s.admin.KeepAlive(ctx, *leases[0])
	require.NoError(t, err)
	go func() {
		for range alive { // it logs if nobody listens
		}
	}()
	network.Set(lab.Reset)
	<-told
	network.Set(lab.Pass)

	for _, d := range []time.Duration{ttl, longer} {
		_, err = locktest.Ask(ctx, b, request("n", d, false))
		require.ErrorIs(t, err, driver.ErrHeld)
	}
	type answer struct {
		grant driver.Grant
		err   error
	}
	answers := make(chan answer, 2)
	for i, d := range []time.Duration{ttl, longer} {
		go func() {
			grant, err := locktest.Ask(ctx, b, request("n", d, true))
			answers <- answer{grant, err}
		}()
		s.queued(t, "n", i+2)
	}
	s.revoke(t, *leases[0])
	for range 2 {
		a := <-answers
		require.NoError(t, a.err)
		require.NoError(t, a.grant.Hold.Release(ctx, 0))
	}
	require.NoError(t, other.Hold.Release(ctx, 0))
}

// Its floor is left when somebody deletes the key by hand: the client does not
// stand in its own way.
func TestStrictLockThatIsDeletedCanBeTakenAgain(t *testing.T) {
	s := parallelScene(t, 1)
	ctx := t.Context()
	c := locktest.Must(locker.New(backendWith(t, strict, s.Addrs()), &locker.Options{TTL: 3 * time.Second}))
	t.Cleanup(func() { _ = c.Close() })
	held := locktest.Lock(t, c, "n")
	_, names := s.queued(t, "n", 2)
	s.delete(t, names[0])
	<-held.Done()
	next := locktest.Lock(t, c, "n")
	require.NoError(t, next.Unlock(ctx))
	eventually(t, 30*time.Second, "nothing is left", func() bool { return len(all(t, s.admin)) == 0 })
}

// Two renewals at one time: the one that is not answered does not say that the lock is there when the other has
// said that it is gone.
func TestRenewalBesideOneThatFindsItGone(t *testing.T) {
	s := parallelScene(t, 1)
	asked, pass, end := make(chan struct{}, 100), make(chan struct{}), make(chan struct{})
	defer close(end)
	looks := 0
	b := backend(t, s.Addrs(), onCalls(func(c call) error {
		if req := c.txn; req != nil && len(req.Compare) == 0 && strings.HasPrefix(string(req.Success[0].GetRequestRange().GetKey()), queue("n")) {
			looks++ // the session's poll makes one after the other
			asked <- struct{}{}
			<-pass
			if looks > 1 {
				<-end
			}
		}
		return c.send()
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

// A holder that dies while nobody waits: TryLock alone gets the lock in the end.
func TestStrictExpiryDoesNotKeepALockForEver(t *testing.T) {
	s := parallelScene(t, 1)
	ctx := t.Context()
	b, err := etcd.New(dial(t, s.Addrs()), &etcd.Options{StrictExpiry: true})
	require.NoError(t, err)
	locktest.Acquire(t, b, request("n", time.Second, false))
	t.Cleanup(func() { _ = b.Close() })
	leases, _ := s.queued(t, "n", 2)
	_, err = s.admin.Revoke(ctx, *leases[0]) // nobody releases it
	require.NoError(t, err)
	require.Len(t, all(t, s.admin), 1, "the floor")
	next := client(t, s.Addrs(), time.Minute)
	began := time.Now()
	_, err = next.TryLock(ctx, "n")
	require.ErrorIs(t, err, driver.ErrHeld)
	eventually(t, 30*time.Second, "a TTL after the first has asked", func() bool {
		l, err := next.TryLock(ctx, "n")
		return err == nil && l.Unlock(ctx) == nil
	})
	assert.Greater(t, time.Since(began), time.Second)
	assert.Empty(t, locksIn(t, s.admin, "n"))
}
