package etcd_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/etcd"
	"github.com/golockers/locker/internal/clock"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
)

func TestProveLeaderIsLostWithAHolderAndWaiters(t *testing.T) {
	lab.NeedProve(t)
	t.Parallel()
	for _, how := range []string{"killed", "paused"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, 3)
			ctx := t.Context()
			const ttl = 6 * time.Second // an election on a busy machine takes some of it
			holder := client(t, s.Addrs(), ttl)
			held := locktest.Lock(t, holder, "n")
			var answers []<-chan locked
			for i := range 3 {
				answers = append(answers, lockLater(ctx, client(t, s.Addrs(), ttl), "n"))
				s.queued(t, "n", i+2)
			}
			s.watched(t, len(answers))
			leader := s.Leader(t)
			if how == "killed" {
				leader.Kill()
			} else {
				leader.Pause()
				defer leader.Resume()
			}
			began := time.Now()
			s.Leader(t, leader)
			for time.Since(began) < ttl+ttl/2 {
				require.NoError(t, held.Err(), "nothing was lost %v after the leader was %s", time.Since(began), how)
				nobody(t, answers...)
				time.Sleep(20 * time.Millisecond)
			}
			token, _ := held.Token()
			require.NoError(t, held.Unlock(within(t, 20*time.Second)))
			for _, answer := range answers {
				got := s.get(t, answer, 30*time.Second)
				next, _ := got.lease.Token()
				assert.Greater(t, next, token)
				token = next
				require.NoError(t, got.lease.Unlock(within(t, 20*time.Second)))
			}
		})
	}
}

func TestProveHolderIsolatedWithItsFollowerIsToldBeforeTheNextGetsIn(t *testing.T) {
	lab.NeedProve(t)
	t.Parallel()
	for _, who := range []string{"follower", "leader"} {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, 3, lab.WithPeerProxies())
			ctx := t.Context()
			const ttl = 3 * time.Second
			alone := s.Follower(t)
			if who == "leader" {
				alone = s.Leader(t)
			}
			var others []string
			for _, n := range s.Nodes {
				if n != alone {
					others = append(others, n.Addr())
				}
			}
			held := locktest.Lock(t, client(t, []string{alone.Addr()}, ttl), "n")
			// Its own keep-alives must not go through a follower: see Isolate.
			waiter := client(t, others, time.Minute)
			answer := lockLater(ctx, waiter, "n")
			s.queued(t, "n", 2)
			undo := s.Isolate(alone)
			defer undo()
			got := s.get(t, answer, 30*time.Second)
			require.ErrorIs(t, held.Err(), driver.ErrLost)
			assert.True(t, held.Until().Before(got.at), "Until %v, the next got in %v later",
				held.Until(), got.at.Sub(held.Until()))
			undo()
			require.NoError(t, got.lease.Err())
		})
	}
}

// A leader that is stopped for a while and does not know yet that it was
// replaced renews leases that its successor has counted on: what it says must
// not be believed.
func TestProveLeaderThatWasReplacedDoesNotKeepASessionAlive(t *testing.T) {
	lab.NeedProve(t)
	s := parallelScene(t, 3)
	ctx := t.Context()
	const ttl = 3 * time.Second
	old := s.Leader(t)
	var others []string
	for _, n := range s.Nodes {
		if n != old {
			others = append(others, n.Addr())
		}
	}
	network := lab.StartProxy(t)
	held := locktest.Lock(t, client(t, []string{old.Addr()}, ttl, through(network)), "n")
	answer := lockLater(ctx, client(t, others, time.Minute), "n")
	scene{s.EtcdCluster, dial(t, others)}.queued(t, "n", 2)
	old.Pause()
	defer old.Resume()
	// Just before the holder's time is over: what it has sent since is in the
	// old leader's socket.
	time.Sleep(time.Until(held.Until()) - 200*time.Millisecond)
	network.Requests(lab.Hold)
	old.Resume()
	select {
	case <-held.Done():
	case <-time.After(30 * time.Second):
		require.Fail(t, "the holder was not told")
	}
	got := s.get(t, answer, 30*time.Second)
	assert.True(t, held.Until().Before(got.at), "the next got in %v before Until", held.Until().Sub(got.at))
}

func TestProveOutageIsToldInTimeAndHeals(t *testing.T) {
	lab.NeedProve(t)
	s := parallelScene(t, 3)
	c := locktest.Client(t, backend(t, s.Addrs()), &locker.Options{TTL: 3 * time.Second, OutageTimeout: -1})
	l := locktest.Lock(t, c, "n")
	leader := s.Leader(t)
	follower := s.Follower(t)
	leader.Kill()
	follower.Kill()
	for _, d := range []time.Duration{300 * time.Millisecond, time.Second, 20 * time.Second} {
		type lock = func(context.Context, string, ...locker.Option) (*locker.Lease, error)
		for _, what := range []lock{c.TryLock, c.Lock} {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			began := time.Now()
			_, err := what(ctx, fmt.Sprint("m", d))
			cancel()
			require.ErrorIs(t, err, driver.ErrUnavailable, "no majority is left")
			require.NotErrorIs(t, err, driver.ErrHeld)
			require.Less(t, time.Since(began), min(d, 5*time.Second)+4*time.Second)
		}
	}
	<-l.Done()
	leader.Restart(t)
	eventually(t, time.Minute, "it works again", func() bool {
		l, err := c.TryLock(within(t, 5*time.Second), "n")
		return err == nil && l.Unlock(within(t, 5*time.Second)) == nil
	})
}

// A request carries what the caller's context does, but not when that ends: the member
// would set timers for it.
func TestRequestCarriesWhatTheCallerSends(t *testing.T) {
	s := parallelScene(t, 1)
	type key struct{}
	sent := make(chan context.Context, 10)
	b := backend(t, s.Addrs(), intercepted(func(ctx context.Context, method string, send func() error) error {
		if strings.HasSuffix(method, "/Txn") && ctx.Value(key{}) == "value" { // and none of the session's own
			sent <- ctx
		}
		return send()
	}))
	ctx := context.WithValue(within(t, time.Minute), key{}, "value")
	for _, theirs := range [][]string{nil, {"their", "header"}} {
		ctx := ctx
		if theirs != nil {
			ctx = metadata.AppendToOutgoingContext(ctx, theirs...)
		}
		g, err := locktest.Ask(ctx, b, request("n", time.Minute, false))
		require.NoError(t, err)
		release := clock.Within(ctx, time.Minute) // as the engine does
		require.NoError(t, g.Hold.Release(release, 0))
		release.Cancel()
		for range 2 {
			got := <-sent
			md, _ := metadata.FromOutgoingContext(got)
			assert.Equal(t, []string{"true"}, md.Get("hasleader"), "a member that is cut off refuses it")
			if theirs != nil {
				assert.Equal(t, theirs[1:], md.Get(theirs[0]))
			}
			_, ends := got.Deadline()
			assert.False(t, ends)
		}
	}
}

// The time that a request spent in line may have left it none: that is no fault of the
// member's (R21).
func TestRequestWhoseCallerHasNoTimeLeftBlamesNobody(t *testing.T) {
	s := parallelScene(t, 1)
	var hangs atomic.Bool
	asked := make(chan *grpc.ClientConn, 100)
	addr := s.Nodes[0].Addr()
	// A member is to blame that keeps a request waiting for a tenth of that, the session's own, too: they do not hang.
	slow := &etcd.Options{Timeout: 30 * time.Second}
	b := backendWith(t, []string{addr, addr}, slow, onRequest(func(ctx context.Context, r unary) error {
		if strings.Contains(fmt.Sprint(r.req), queue("n")) {
			asked <- r.conn
			if hangs.Load() {
				<-ctx.Done()
				return status.FromContextError(ctx.Err()).Err()
			}
		}
		return r.send()
	}))
	g := locktest.Acquire(t, b, request("n", time.Minute, false))
	hangs.Store(true)
	soon := clock.Within(t.Context(), 20*time.Millisecond)
	defer soon.Cancel()
	require.ErrorIs(t, g.Hold.Release(soon, 0), context.DeadlineExceeded)
	hangs.Store(false)
	var before *grpc.ClientConn
	for len(asked) > 0 {
		before = <-asked
	}
	require.NoError(t, g.Hold.Release(t.Context(), 0))
	assert.True(t, before == <-asked, "another member is asked")
}
