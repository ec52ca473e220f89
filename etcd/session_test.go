package etcd_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
)

// What a leader says that does not know that it was replaced comes from
// another term than what a majority says.
func TestKeepAliveOfAnotherTermIsNotBelieved(t *testing.T) {
	s := parallelScene(t, 1)
	c := client(t, s.Addrs(), 2*time.Second, onReceived(
		func(_ context.Context, resp *etcdserverpb.LeaseKeepAliveResponse) error {
			resp.Header.RaftTerm--
			return nil
		}))
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
	c := client(t, s.Addrs(), 5*time.Second, onReceived(
		func(_ context.Context, resp *etcdserverpb.LeaseKeepAliveResponse) error {
			if told.Add(1) <= 2 {
				resp.TTL = 0
			}
			return nil
		}))
	l := locktest.Lock(t, c, "n")
	until := l.Until()
	eventually(t, 30*time.Second, "the lease is said to be unknown twice, and then kept alive",
		func() bool { return told.Load() > 2 && l.Until().After(until) })
	require.NoError(t, l.Unlock(t.Context()))
}

// A keep-alive counts from before it is sent, whenever its answer comes (R1).
func TestKeepAliveCountsFromBeforeItsRequest(t *testing.T) {
	s := parallelScene(t, 1)
	var sent atomic.Pointer[time.Time] // the last one
	b := backend(t, s.Addrs(), onStreams(func(s grpc.ClientStream) grpc.ClientStream { return &timed{s, &sent} }))
	g := locktest.Acquire(t, b, request("n", 8*time.Second, false))
	eventually(t, 30*time.Second, "the session is kept alive", func() bool {
		v, err := g.Hold.Renew(t.Context())
		require.NotErrorIs(t, err, driver.ErrLost)
		if !v.Since.After(g.Validity.Since) {
			return false
		}
		assert.False(t, v.Since.After(*sent.Load()), "it counts from %v after its request", v.Since.Sub(*sent.Load()))
		return true
	})
	require.NoError(t, g.Hold.Release(t.Context(), 0))
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

// A member that does not answer a keep-alive may wait for a leader that hangs, though the others have elected another.
// After a fraction of the TTL another member is asked: with one that may take as long as the lease lasts, or with the
// same one again, the lock is lost.
func TestKeepAliveThatIsNotAnsweredGoesToAnotherMember(t *testing.T) {
	s := parallelScene(t, 1)
	var silent atomic.Pointer[string]
	addr := s.Nodes[0].Addr()
	b := backend(t, []string{addr, lab.StartProxy(t, addr).Addr()},
		onReceived(func(ctx context.Context, _ *etcdserverpb.LeaseKeepAliveResponse) error {
			from, _ := peer.FromContext(ctx)
			addr := from.Addr.String() // of the member that is asked first, on any connection
			if silent.CompareAndSwap(nil, &addr) || *silent.Load() == addr {
				<-ctx.Done()
			}
			return ctx.Err()
		}))
	g := locktest.Acquire(t, b, request("n", 8*time.Second, false))
	eventually(t, 30*time.Second, "it is kept alive", func() bool {
		v, err := g.Hold.Renew(t.Context())
		require.NotErrorIs(t, err, driver.ErrLost)
		return v.Since.After(g.Validity.Since)
	})
	require.NotNil(t, silent.Load())
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
	eventually(t, 30*time.Second, "it is renewed", func() bool { // a slow machine has to keep the session alive for that
		v, err := g.Hold.Renew(ctx)
		require.NotErrorIs(t, err, driver.ErrLost)
		if err == nil {
			require.Equal(t, 3*time.Second, v.TTL)
		}
		return err == nil
	})
	require.NoError(t, g.Hold.Release(ctx, 0))
}
