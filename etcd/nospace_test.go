package etcd_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/locktest"
)

// The request that fills the store is carried out, and answered as if it was
// not. From then on etcd refuses puts, a void key's too: the take-back has to do
// without.
func TestLockThatFilledTheStoreIsTakenBackUnderTheAlarm(t *testing.T) {
	t.Parallel()
	for what, c := range waysIn {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, 1)
			ctx := t.Context()
			var before driver.Grant
			var err error
			if c.held > 0 {
				before = locktest.Acquire(t, backend(t, s.Addrs()), request("n", time.Minute, false))
			}
			var asked atomic.Int32
			b := backend(t, s.Addrs(), onTxn(func(req *etcdserverpb.TxnRequest, send func() error) error {
				err := send()
				if strings.Contains(req.String(), queue("n")) && int(asked.Add(1)) == 1+c.held && err == nil {
					assert.Len(t, locksIn(t, s.admin, "n"), 1+c.held, "it was carried out")
					s.spaceAlarm(t, etcdserverpb.AlarmRequest_ACTIVATE)
					return rpctypes.ErrGRPCNoSpace
				}
				return err
			}))
			grant, err := locktest.Ask(ctx, b, request("n", time.Minute, c.wait))
			require.ErrorIs(t, err, driver.ErrUnavailable)
			require.ErrorContains(t, err, "space")
			if grant.Hold != nil {
				require.NoError(t, grant.Hold.Undo(ctx),
					"what a take-back needs is allowed under the alarm")
			}
			assert.Len(t, locksIn(t, s.admin, "n"), c.held)
			if c.held > 0 {
				require.NoError(t, before.Hold.Release(ctx, 0), "so is a release")
			}
			s.spaceAlarm(t, etcdserverpb.AlarmRequest_DEACTIVATE)
			grant = locktest.Acquire(t, b, request("n", time.Minute, c.wait))
			require.NoError(t, grant.Hold.Release(ctx, 0))
			assert.Empty(t, all(t, s.admin))
		})
	}
}

// The alarm refuses writes. Sessions are kept alive all the same, also after a member was late once.
func TestSessionIsKeptAliveUnderTheAlarm(t *testing.T) {
	s := parallelScene(t, 1)
	ctx := t.Context()
	var hangs atomic.Bool
	b := backend(t, s.Addrs(), onStreams(func(s grpc.ClientStream) grpc.ClientStream { return &lateOnce{s, &hangs} }))
	g := locktest.Acquire(t, b, request("n", 8*time.Second, false))
	s.spaceAlarm(t, etcdserverpb.AlarmRequest_ACTIVATE)
	hangs.Store(true)
	eventually(t, 30*time.Second, "a member that was late", func() bool { return !hangs.Load() })
	late := time.Now()
	eventually(t, 30*time.Second, "the session is kept alive", func() bool {
		v, err := g.Hold.Renew(ctx)
		require.NotErrorIs(t, err, driver.ErrLost)
		return v.Since.After(late)
	})
	require.NoError(t, g.Hold.Release(ctx, 0))
}

// lateOnce gives no answer to the next keep-alive.
type lateOnce struct {
	grpc.ClientStream
	hangs *atomic.Bool
}

func (s *lateOnce) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if _, ok := m.(*etcdserverpb.LeaseKeepAliveResponse); ok && s.hangs.CompareAndSwap(true, false) {
		<-s.Context().Done()
		return s.Context().Err()
	}
	return err
}

// spaceAlarm raises or ends the alarm of a full store.
func (s scene) spaceAlarm(t testing.TB, action etcdserverpb.AlarmRequest_AlarmAction) {
	t.Helper()
	_, err := etcdserverpb.NewMaintenanceClient(s.admin.ActiveConnection()).Alarm(within(t, 5*time.Second),
		&etcdserverpb.AlarmRequest{Action: action, Alarm: etcdserverpb.AlarmType_NOSPACE})
	require.NoError(t, err)
}
