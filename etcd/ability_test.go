package etcd_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
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
		b := patientBackend(t, []string{s.Nodes[0].Addr(), road.Addr()}, onRequest(func(_ context.Context, r unary) error {
			var at peer.Peer
			err := r.send(grpc.Peer(&at))
			if sick.Load() && at.Addr != nil && at.Addr.String() == road.Addr() && strings.HasSuffix(r.method, "/Status") {
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
	s.spaceAlarm(t, etcdserverpb.AlarmRequest_ACTIVATE)
	_, err := locker.Open(t.Context(), "etcd://"+s.Nodes[0].Addr(), nil, openers)
	require.ErrorIs(t, err, driver.ErrUnavailable)
	require.ErrorContains(t, err, "etcdctl alarm disarm")
	assert.Empty(t, all(t, s.admin), "it writes nothing")
}
