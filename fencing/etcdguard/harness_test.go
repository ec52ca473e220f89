package etcdguard_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/golockers/locker/fencing/etcdguard"
	"github.com/golockers/locker/internal/lab"
)

func TestMain(m *testing.M) {
	lab.RunRole(nil)
	goleak.VerifyTestMain(m)
}

const soon = 20 * time.Second

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// dial returns a driver's client, closed with the test.
func dial(t testing.TB, addrs []string, opts ...func(*clientv3.Config)) *clientv3.Client {
	t.Helper()
	config := clientv3.Config{
		Endpoints: addrs, Logger: zap.NewNop(), DialTimeout: 5 * time.Second,
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
	}
	for _, o := range opts {
		o(&config)
	}
	client, err := clientv3.New(config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// scene is a cluster, somebody who looks at it, and a guard.
type scene struct {
	*lab.EtcdCluster
	admin *clientv3.Client
	guard *etcdguard.Guard
}

func newScene(t testing.TB, members int, opts ...lab.EtcdOption) scene {
	t.Helper()
	s := scene{EtcdCluster: lab.StartEtcd(t, members, opts...)}
	s.admin = dial(t, s.Addrs())
	s.guard = newGuard(t, s.admin, nil)
	return s
}

func newGuard(t testing.TB, kv clientv3.KV, opts *etcdguard.Options) *etcdguard.Guard {
	t.Helper()
	g, err := etcdguard.New(kv, opts)
	require.NoError(t, err)
	return g
}

// value is what is at key; "" if nothing is.
func (s scene) value(t testing.TB, key string) string {
	t.Helper()
	resp, err := s.admin.Get(within(t, soon), key)
	require.NoError(t, err)
	if len(resp.Kvs) == 0 {
		return ""
	}
	return string(resp.Kvs[0].Value)
}

// revision rises with each write, whatever it is.
func (s scene) revision(t testing.TB) int64 {
	t.Helper()
	resp, err := s.admin.Get(within(t, soon), "x")
	require.NoError(t, err)
	return resp.Header.Revision
}
