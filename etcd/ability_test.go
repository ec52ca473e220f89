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
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
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

// The first of two copies of a Break breaks one, and its answer is lost; or it is lost, and the holder's lease ends
// before the second, which breaks the floor.
func TestBreakThatIsSentTwice(t *testing.T) {
	s := parallelScene(t, 1)
	addr := s.Nodes[0].Addr()
	for _, arrives := range []bool{true, false} {
		name := fmt.Sprint(arrives)
		first := locktest.Acquire(t, backendWith(t, strict, s.Addrs()), request(name, time.Minute, false))
		answer := lockLater(t.Context(), client(t, s.Addrs(), time.Minute), name)
		leases, _ := s.queued(t, name, 3)
		var lost atomic.Bool
		b := backend(t, []string{addr, addr}, onCalls(func(c call) error {
			if c.txn == nil || len(c.txn.Success) == 0 || c.txn.Success[0].GetRequestTxn() == nil || !lost.CompareAndSwap(false, true) {
				return c.send()
			}
			if arrives {
				assert.NoError(t, c.send())
			} else {
				s.revoke(t, *leases[0])
			}
			return status.Error(codes.Unavailable, "no answer")
		}))
		broken, err := locktest.Break(t.Context(), b, name)
		require.NoError(t, err)
		assert.Equal(t, first.Token, broken.Token)
		next := s.get(t, answer, 30*time.Second)
		s.queued(t, name, 1)
		require.NoError(t, next.lease.Unlock(t.Context()))
	}
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

func TestCheckFindsWhatBreaksAPromise(t *testing.T) {
	s := parallelScene(t, 3)
	ctx := t.Context()
	findings := func(addrs []string, o etcd.Options) (text string, worst driver.Severity) {
		b := backendWith(t, o, addrs)
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
	text, worst := findings(s.Addrs(), etcd.Options{Members: 3})
	assert.Equal(t, driver.SeverityOK, worst, text)
	text, worst = findings([]string{s.Nodes[0].Addr(), s.Nodes[0].Addr()}, etcd.Options{Members: 5})
	assert.Equal(t, driver.SeverityProblem, worst)
	assert.Contains(t, text, "5, and the cluster has 3")
	assert.Contains(t, text, "give all of them")
	s.Follower(t).Kill()
	text, worst = findings(s.Addrs(), etcd.Options{})
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
		b := backendWith(t, patient, []string{s.Nodes[0].Addr(), road.Addr()}, onCalls(func(c call) error {
			var at peer.Peer
			err := c.send(grpc.Peer(&at))
			if sick.Load() && at.Addr != nil && at.Addr.String() == road.Addr() && c.is("Status") {
				return answer
			}
			return err
		}))
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
	s.spaceAlarm(t, pb.AlarmRequest_ACTIVATE)
	_, err := locker.Open(t.Context(), "etcd://"+s.Nodes[0].Addr(), nil, openers)
	require.ErrorIs(t, err, driver.ErrUnavailable)
	require.ErrorContains(t, err, "etcdctl alarm disarm")
	assert.Empty(t, all(t, s.admin), "it writes nothing")
}
