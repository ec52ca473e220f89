package etcdguard_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/internal/lab"
)

func TestSilentServerIsToldWithinTheDeadline(t *testing.T) {
	s := newScene(t, 1)
	client := dial(t, s.Addrs())
	g := newGuard(t, client, nil)
	_, err := g.Mark(within(t, soon), "r")
	require.NoError(t, err)
	s.Nodes[0].Pause()
	defer s.Nodes[0].Resume()
	for what, call := range map[string]func(context.Context) error{
		"commit": func(ctx context.Context) error { _, err := g.Commit(ctx, "r", 1); return err },
		"mark":   func(ctx context.Context) error { _, err := g.Mark(ctx, "r"); return err },
		"forget": func(ctx context.Context) error { return g.Forget(ctx, "r") },
	} {
		began := time.Now()
		err := call(within(t, 200*time.Millisecond))
		require.ErrorIs(t, err, locker.ErrUnavailable, what)
		require.ErrorIs(t, err, context.DeadlineExceeded, what)
		assert.Less(t, time.Since(began), 1700*time.Millisecond, what)
		if what == "commit" {
			require.ErrorIs(t, err, fencing.ErrUnknown)
		} else {
			require.NotErrorIs(t, err, fencing.ErrUnknown, what)
		}
	}
}

func TestMissingRightsAreNotAnOutage(t *testing.T) {
	lab.NeedEtcd(t, 5) // 3.4 commits a write that its user has no right to
	s := newScene(t, 1)
	ctx := within(t, soon)
	for _, user := range []string{"root", "guarded", "stranger"} {
		_, err := s.admin.UserAdd(ctx, user, "s3cret")
		require.NoError(t, err)
	}
	_, err := s.admin.UserGrantRole(ctx, "root", "root")
	require.NoError(t, err)
	_, err = s.admin.RoleAdd(ctx, "guarded")
	require.NoError(t, err)
	for _, key := range []string{"fencing/1/", "data/"} {
		_, err = s.admin.RoleGrantPermission(
			ctx,
			"guarded",
			key,
			clientv3.GetPrefixRangeEnd(key),
			clientv3.PermissionType(clientv3.PermReadWrite),
		)
		require.NoError(t, err)
	}
	_, err = s.admin.UserGrantRole(ctx, "guarded", "guarded")
	require.NoError(t, err)
	_, err = s.admin.AuthEnable(ctx)
	require.NoError(t, err)
	as := func(user string) func(*clientv3.Config) {
		return func(c *clientv3.Config) { c.Username, c.Password = user, "s3cret" }
	}
	guarded := newGuard(t, dial(t, s.Addrs(), as("guarded")), nil)
	_, err = guarded.Commit(ctx, "r", 1, clientv3.OpPut("data/x", "1"))
	require.NoError(t, err, "the role of the documentation is enough")
	for what, call := range map[string]func() error{
		"not of the caller's": func() error {
			_, err := guarded.Commit(ctx, "r", 2, clientv3.OpPut("other", "1"))
			return err
		},
		"none": func() error {
			_, err := newGuard(t, dial(t, s.Addrs(), as("stranger")), nil).Commit(ctx, "r", 2)
			return err
		},
		"no user": func() error {
			_, err := newGuard(t, dial(t, s.Addrs()), nil).Commit(ctx, "r", 2)
			return err
		},
	} {
		err := call()
		require.Error(t, err, what)
		require.NotErrorIs(t, err, locker.ErrUnavailable, what)
		require.NotErrorIs(t, err, fencing.ErrUnknown, what)
		assert.NotContains(t, err.Error(), "s3cret", what)
		mark, err := guarded.Mark(ctx, "r")
		require.NoError(t, err)
		assert.EqualValues(t, 1, mark, what)
	}
}

// A member that runs out of space may say so of what it has written.
func TestNoSpaceIsNotARefusal(t *testing.T) {
	lab.NeedEtcd(t, 5) // 3.4 sees too late that its quota is used up
	s := newScene(t, 1, lab.WithEtcdFlag("quota-backend-bytes", "2000000"))
	data := strings.Repeat("x", 100<<10)
	for i := 0; ; i++ {
		require.Less(t, i, 100, "there is always space")
		_, err := s.guard.Commit(within(t, soon), "r", 1, clientv3.OpPut(fmt.Sprint("data", i), data))
		if err == nil {
			continue
		}
		require.ErrorContains(t, err, "space")
		require.ErrorIs(t, err, fencing.ErrUnknown)
		require.ErrorIs(t, err, locker.ErrUnavailable)
		return
	}
}
