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
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/locktest"
)

// The request that fills the store is carried out, and answered as if it was
// not. From then on etcd refuses puts, a void key's too: the take-back has to do
// without.
func TestLockThatFilledTheStoreIsTakenBackUnderTheAlarm(t *testing.T) {
	s := parallelScene(t, 1)
	ctx := t.Context()
	for what, c := range map[string]struct {
		wait bool
		held int // how many hold the lock before: a waiter asks twice then
	}{"try": {}, "first in the queue": {wait: true}, "last in the queue": {true, 1}} {
		t.Run(what, func(t *testing.T) {
			var before driver.Grant
			var err error
			if c.held > 0 {
				before = locktest.Acquire(t, backend(t, s.Addrs()), request("n", time.Minute, false))
			}
			var asked atomic.Int32
			b := backend(t, s.Addrs(), onRequest(func(_ context.Context, r unary) error {
				err := r.send()
				if strings.Contains(fmt.Sprint(r.req), queue("n")) && int(asked.Add(1)) == 1+c.held && err == nil {
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

// The alarm refuses writes. Sessions are kept alive all the same, also after a member was late once, and a lock with a
// MinHold is released: the floor that keeps it is there.
func TestSessionIsKeptAliveUnderTheAlarm(t *testing.T) {
	s := parallelScene(t, 1)
	ctx := t.Context()
	var hangs atomic.Bool
	b := backend(t, s.Addrs(), onReceived(func(ctx context.Context, _ *etcdserverpb.LeaseKeepAliveResponse) error {
		if hangs.CompareAndSwap(true, false) {
			<-ctx.Done()
		}
		return ctx.Err()
	}))
	req := request("n", 6*time.Second, false)
	req.MinHold = 10 * time.Minute
	g := keeping(t, b, req)
	began := time.Now()
	s.spaceAlarm(t, etcdserverpb.AlarmRequest_ACTIVATE)
	hangs.Store(true)
	eventually(t, 30*time.Second, "a member that was late", func() bool { return !hangs.Load() })
	late := time.Now()
	eventually(t, 30*time.Second, "the session is kept alive", func() bool {
		v, err := g.Hold.Renew(ctx)
		require.NotErrorIs(t, err, driver.ErrLost)
		return v.Since.After(late)
	})
	keep := req.MinHold - time.Since(began)
	require.NoError(t, g.Hold.Release(ctx, keep+driver.Drift(keep)))
	assert.Len(t, locksIn(t, s.admin, "n"), 1)
}

// spaceAlarm raises or ends the alarm of a full store.
func (s scene) spaceAlarm(t testing.TB, action etcdserverpb.AlarmRequest_AlarmAction) {
	t.Helper()
	_, err := etcdserverpb.NewMaintenanceClient(s.admin.ActiveConnection()).Alarm(within(t, 5*time.Second),
		&etcdserverpb.AlarmRequest{Action: action, Alarm: etcdserverpb.AlarmType_NOSPACE})
	require.NoError(t, err)
}
