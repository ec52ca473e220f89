package etcd_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
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

func TestListTellsWhoWaits(t *testing.T) {
	s := parallelScene(t, 1)
	ctx := t.Context()
	b := backend(t, s.Addrs())
	locktest.Acquire(t, b, request("b", time.Minute, false))
	answer := lockLater(ctx, client(t, s.Addrs(), time.Minute), "b")
	s.queued(t, "b", 2)
	for st, err := range b.List(ctx, "") {
		require.NoError(t, err)
		assert.Equal(t, "test", st.Label)
		assert.Equal(t, 1, st.Waiters)
		for _, other := range []string{"zookeeper 1-1", "etcd 1", st.Holder + " ", st.Holder + "0x", "etcd 0x1-1"} {
			st.Holder = other
			require.ErrorIs(t, b.Break(ctx, st), driver.ErrInvalid, other)
		}
	}
	nobody(t, answer)
	_, err := locktest.Break(ctx, b, "b")
	require.NoError(t, err)
	require.NoError(t, s.get(t, answer, 30*time.Second).lease.Unlock(ctx))
}

// A page of the service may end between the keys of one name.
func TestListGoesOverPages(t *testing.T) {
	t.Parallel()
	s := newScene(t, 1)
	ctx := t.Context()
	b := backend(t, s.Addrs())
	for _, name := range []string{"a", "m"} {
		_, err := locktest.Ask(ctx, b, request(name, time.Minute, false))
		require.NoError(t, err)
	}
	lockLater(ctx, client(t, s.Addrs(), time.Minute), "m")
	s.queued(t, "m", 2)
	pair, err := s.admin.Get(ctx, queue("m"), clientv3.WithPrefix(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	require.NoError(t, err)
	const names = 1010
	var puts []clientv3.Op
	for _, kv := range pair.Kvs { // the one who holds came first
		for i := 1; i < names; i++ {
			puts = append(puts, clientv3.OpPut(queue(fmt.Sprintf("m%04d", i))+strings.TrimPrefix(string(kv.Key), queue("m")),
				string(kv.Value)))
		}
	}
	for txn := range slices.Chunk(puts, 100) {
		_, err := s.admin.Txn(ctx).Then(txn...).Commit()
		require.NoError(t, err)
	}
	told := map[string]bool{}
	for st, err := range b.List(ctx, "m") {
		require.NoError(t, err)
		require.False(t, told[st.Name], "%s twice", st.Name)
		told[st.Name] = true
		require.True(t, st.Held)
		require.Equal(t, 1, st.Waiters, st.Name)
	}
	assert.Len(t, told, names)
	told = map[string]bool{}
	for st, err := range b.List(ctx, "") { // a key more, so that a page ends elsewhere
		require.NoError(t, err)
		told[st.Name] = true
		require.Equal(t, st.Name != "a", st.Waiters == 1, st.Name)
	}
	assert.Len(t, told, names+1)
}

// MinHold counts from the grant, is kept whatever becomes of the client, and ends when it is over: for a job that
// runs in a process of its own. With StrictExpiry it was kept until somebody asked, and for a whole MinHold from
// then on, so that an hourly job ran every second hour. It still is where the backend is closed under a holder.
func TestMinHoldEndsAlthoughItsClientIsClosed(t *testing.T) {
	t.Parallel()
	const keep = 4 * time.Second
	for _, strict := range []bool{false, true} {
		t.Run(fmt.Sprintf("strict=%v", strict), func(t *testing.T) {
			t.Parallel()
			s := newScene(t, 1, version(strict)...)
			ctx := t.Context()
			b, other := keepingBackend(t, s.Addrs(), strict), client(t, s.Addrs(), time.Minute)
			before := locktest.Lock(t, other, "n")
			ask := func(name string) driver.Grant {
				req := request(name, keep, true)
				req.MinHold = keep
				return keeping(t, b, req)
			}
			waits := make(chan driver.Grant, 1)
			go func() { waits <- ask("n") }()
			s.queued(t, "n", 2)
			time.Sleep(1500 * time.Millisecond)
			began := time.Now()
			require.NoError(t, before.Unlock(ctx))
			require.NoError(t, (<-waits).Hold.Release(ctx, keep-time.Since(began)))
			ask("held") // when it is closed
			require.NoError(t, b.Close())
			for _, name := range []string{"n", "held"} {
				l, err := other.TryLock(ctx, name)
				if time.Since(began) < keep {
					require.ErrorIs(t, err, driver.ErrHeld)
				} else if err == nil { // a slow machine
					require.NoError(t, l.Unlock(ctx))
				}
			}
			eventually(t, keep+5*time.Second, "it is over", func() bool { return len(all(t, s.admin)) == 0 })
			assert.Greater(t, time.Since(began), keep)
		})
	}
}

// Inspect counts what keeps the lock beside the session, and who takes back an attempt with MinHold takes its
// lease back, too.
func TestMinHoldIsToldAndTakenBack(t *testing.T) {
	s := parallelScene(t, 1)
	ctx := t.Context()
	for i, strict := range []bool{false, true} {
		b, err := etcd.New(dial(t, s.Addrs()), &etcd.Options{StrictExpiry: strict})
		require.NoError(t, err)
		defer func() { _ = b.Close() }()
		for n := range 6 {
			req := request("n", time.Minute, n%2 > 0)
			req.MinHold = time.Hour
			g := keeping(t, b, req)
			st, err := b.Inspect(ctx, "n")
			require.NoError(t, err)
			assert.Greater(t, st.Remaining, req.MinHold-time.Minute)
			assert.Less(t, st.Remaining, req.MinHold+2*req.TTL)
			require.NoError(t, g.Hold.Undo(ctx))
		}
		leases, err := s.admin.Leases(ctx)
		require.NoError(t, err)
		assert.Len(t, leases.Leases, 1+i, "the sessions'")
	}
}

func TestCheckFindsWhatBreaksAPromise(t *testing.T) {
	s := parallelScene(t, 3)
	ctx := t.Context()
	findings := func(addrs []string, o *etcd.Options) (text string, worst driver.Severity) {
		o.Timeout = 10 * time.Second
		b, err := etcd.New(dial(t, addrs), o)
		require.NoError(t, err)
		defer func() { _ = b.Close() }()
		claimed := b.Guarantees()
		all, err := b.Check(ctx)
		require.NoError(t, err)
		assert.Equal(t, claimed, b.Guarantees(), "they are always the same, and read while it checks")
		for _, f := range all {
			text += f.Severity.String() + " " + f.What + ": " + f.Found + "; " + f.Advice + "\n"
			worst = max(worst, f.Severity)
		}
		return text, worst
	}
	text, worst := findings(s.Addrs(), &etcd.Options{Members: 3})
	assert.Equal(t, driver.SeverityOK, worst, text)
	text, worst = findings([]string{s.Nodes[0].Addr(), s.Nodes[0].Addr()}, &etcd.Options{Members: 5})
	assert.Equal(t, driver.SeverityProblem, worst)
	assert.Contains(t, text, "5, and the cluster has 3")
	assert.Contains(t, text, "give all of them")
	s.Follower(t).Kill()
	text, worst = findings(s.Addrs(), &etcd.Options{})
	assert.Equal(t, driver.SeverityWarning, worst)
	assert.Contains(t, text, "does not answer")
}

// A member that refuses runs: to start it again does not help.
func TestCheckTellsARefusalFromSilence(t *testing.T) {
	s := parallelScene(t, 1)
	road := lab.StartProxy(t, s.Nodes[0].Addr())
	for says, answer := range map[string]error{
		"refused: ":         rpctypes.ErrGRPCPermissionDenied,
		"does not answer: ": status.Error(codes.Unavailable, "the connection broke"),
	} {
		var sick atomic.Bool
		b := patientBackend(t, []string{s.Nodes[0].Addr(), road.Addr()}, func(c *clientv3.Config) {
			c.DialOptions = append(c.DialOptions, grpc.WithChainUnaryInterceptor(
				func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
					invoker grpc.UnaryInvoker, opts ...grpc.CallOption,
				) error {
					var at peer.Peer
					err := invoker(ctx, method, req, reply, cc, append(opts, grpc.Peer(&at))...)
					if sick.Load() && at.Addr != nil && at.Addr.String() == road.Addr() && strings.HasSuffix(method, "/Status") {
						return answer
					}
					return err
				},
			))
		})
		locktest.Acquire(t, b, request(says, time.Minute, false))
		sick.Store(true)
		found, err := b.Check(t.Context())
		require.NoError(t, err)
		of := slices.IndexFunc(found, func(f driver.Finding) bool { return f.What == road.Addr() })
		require.NotEqual(t, -1, of, "%v", found)
		assert.Equal(t, driver.SeverityWarning, found[of].Severity)
		assert.True(t, strings.HasPrefix(found[of].Found, says), found[of].Found)
	}
}

func TestOpenAndCheckSayThatTheStoreIsFull(t *testing.T) {
	s := parallelScene(t, 1)
	s.spaceAlarm(t, etcdserverpb.AlarmRequest_ACTIVATE)
	_, err := locker.Open(t.Context(), "etcd://"+s.Nodes[0].Addr(), nil, openers)
	require.ErrorIs(t, err, driver.ErrUnavailable)
	require.ErrorContains(t, err, "etcdctl alarm disarm")
	assert.Empty(t, all(t, s.admin), "it writes nothing")
}

// The engine waits 1.5 seconds for a Close.
func TestCloseOfStrictLocksDoesNotWaitForASilentService(t *testing.T) {
	s := parallelScene(t, 1)
	network := lab.StartProxy(t)
	b := strictBackend(t, s, through(network))
	locktest.Acquire(t, b, request("n", time.Minute, false))
	network.Set(lab.Drop)
	began := time.Now()
	require.NoError(t, b.Close())
	assert.Less(t, time.Since(began), 1800*time.Millisecond)
}
