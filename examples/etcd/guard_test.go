package main

import (
	"context"
	"errors"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/golockers/locker"
	"github.com/golockers/locker/etcd"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/internal/guardtest"
	"github.com/golockers/locker/internal/lab"
)

func TestMain(m *testing.M) {
	lab.RunRole(nil)
	os.Exit(m.Run())
}

func dial(t *testing.T, addrs ...string) *clientv3.Client {
	client, err := clientv3.New(clientv3.Config{Endpoints: addrs, Logger: zap.NewNop(),
		DialTimeout: 5 * time.Second, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// store is a guard on client, and what is there by another.
func store(client, admin *clientv3.Client) guardtest.Store {
	get := func(ctx context.Context, key string) (string, error) {
		resp, err := admin.Get(ctx, key)
		if err != nil || len(resp.Kvs) == 0 {
			return "", err
		}
		return string(resp.Kvs[0].Value), nil
	}
	g := Guard{client}
	return guardtest.Store{
		Write: func(ctx context.Context, r string, token fencing.Token, value string) error {
			return g.Commit(ctx, r, token, nil, clientv3.OpPut("value/"+r, value))
		},
		Raise: g.Raise,
		Read:  func(ctx context.Context, r string) (string, error) { return get(ctx, "value/"+r) },
		Mark: func(ctx context.Context, r string) (fencing.Token, error) {
			digits, err := get(ctx, "fencing/"+url.PathEscape(r))
			if err = errors.Join(err, fencing.CheckName(r)); err != nil || digits == "" {
				return 0, err
			}
			return fencing.Parse(strings.TrimLeft(digits, "0"))
		},
		AnyName: true,
		State: func() any {
			resp, _ := admin.Get(context.Background(), "x")
			return resp.Header.Revision
		},
	}
}

func TestSuite(t *testing.T) {
	t.Parallel()
	s := lab.StartEtcd(t, 1)
	admin := dial(t, s.Addrs()...)
	guardtest.Run(t, func(t *testing.T) guardtest.Store { return store(dial(t, s.Addrs()...), admin) })
	guardtest.Faults(t, func(t *testing.T) guardtest.Proxied {
		s := lab.StartEtcd(t, 1)
		admin := dial(t, s.Addrs()...)
		p := lab.StartProxy(t, s.Nodes[0].Addr())
		return guardtest.Proxied{Store: store(dial(t, p.Addr()), admin), Proxy: p, Later: store(admin, admin).Write}
	})
}

func TestNoLowerTokenWritesAfterAHigherOneWhileALeaderIsKilled(t *testing.T) {
	t.Parallel()
	s := lab.StartEtcd(t, 3)
	admin := dial(t, s.Addrs()...)
	var writers []guardtest.Store
	for range 6 {
		writers = append(writers, store(dial(t, s.Addrs()...), admin))
	}
	guardtest.During(t, store(admin, admin), writers, func() {
		leader := s.Leader(t)
		leader.Kill()
		s.Leader(t, leader)
	})
}

// What the server has answered is no outage, and nothing was written.
func TestARefusalIsNeitherUnknownNorAnOutage(t *testing.T) {
	t.Parallel()
	s := lab.StartEtcd(t, 1)
	admin := dial(t, s.Addrs()...)
	refused := func(client *clientv3.Client, want error, ops ...clientv3.Op) {
		t.Helper()
		err := Guard{client}.Commit(t.Context(), "n", 1, nil, ops...)
		require.ErrorIs(t, err, want)
		assert.NotErrorIs(t, err, fencing.ErrUnknown)
		assert.NotErrorIs(t, err, locker.ErrUnavailable)
	}
	refused(admin, rpctypes.ErrTooManyOps, slices.Repeat([]clientv3.Op{clientv3.OpGet("k")}, 200)...)
	refused(admin, rpctypes.ErrLeaseNotFound, clientv3.OpPut("k", "", clientv3.WithLease(1)))
	there, err := admin.Get(t.Context(), "fencing/n")
	require.NoError(t, err)
	assert.Empty(t, there.Kvs)
	_, noRole := admin.RoleAdd(t.Context(), "root")
	_, noRoot := admin.UserAdd(t.Context(), "root", "secret")
	_, noGrant := admin.UserGrantRole(t.Context(), "root", "root")
	_, noUser := admin.UserAdd(t.Context(), "user", "secret")
	_, noAuth := admin.AuthEnable(t.Context())
	require.NoError(t, errors.Join(noRole, noRoot, noGrant, noUser, noAuth))
	user, err := clientv3.New(clientv3.Config{Endpoints: s.Addrs(), Logger: zap.NewNop(),
		Username: "user", Password: "secret"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = user.Close() })
	refused(user, rpctypes.ErrPermissionDenied)
}

// With the comparison of the lock itself, a holder whose lock is gone is refused before anybody came.
func TestHeldRefusesAHolderWhoseLockIsGone(t *testing.T) {
	t.Parallel()
	client := dial(t, lab.StartEtcd(t, 1).Addrs()...)
	backend, err := etcd.New(client, nil)
	require.NoError(t, err)
	locks, err := locker.New(backend, &locker.Options{TTL: 8 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, locks.Close()); assert.NoError(t, backend.Close()) })
	lease, err := locks.Lock(t.Context(), "n")
	require.NoError(t, err)
	token, err := fencing.Of(lease)
	require.NoError(t, err)
	held, err := etcd.Held(lease)
	require.NoError(t, err)
	write := func(value string) error {
		return Guard{client}.Commit(t.Context(), "n", token, []clientv3.Cmp{held}, clientv3.OpPut("data", value))
	}
	require.NoError(t, write("mine"))
	var key etcd.Key
	require.True(t, lease.As(&key))
	_, err = client.Revoke(t.Context(), key.Lease)
	require.NoError(t, err)
	require.ErrorIs(t, write("late"), locker.ErrLost)
	got, err := client.Get(t.Context(), "data")
	require.NoError(t, err)
	assert.Equal(t, "mine", string(got.Kvs[0].Value))
	_ = lease.Unlock(t.Context())
}
