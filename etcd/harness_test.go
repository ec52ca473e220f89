package etcd_test

import (
	"context"
	"flag"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/golockers/locker"
	"github.com/golockers/locker/conformance"
	"github.com/golockers/locker/etcd"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
)

func TestMain(m *testing.M) {
	lab.RunRole(lab.Roles{"moved": moved, "proxied": proxied})
	flag.Parse()
	_ = flag.Set("test.parallel", "4") // most of the time they wait
	goleak.VerifyTestMain(m)
}

// dial returns a driver's client, closed with the test.
func dial(t testing.TB, addrs []string, opts ...func(*clientv3.Config)) *clientv3.Client {
	t.Helper()
	client, err := newClient(addrs, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func newClient(addrs []string, opts ...func(*clientv3.Config)) (*clientv3.Client, error) {
	config := clientv3.Config{
		Endpoints: addrs, Logger: zap.NewNop(), DialTimeout: 30 * time.Second,
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
	}
	for _, o := range opts {
		o(&config)
	}
	return clientv3.New(config)
}

// through makes a client's connections by another way.
func through(w *lab.Proxy) func(*clientv3.Config) {
	dial := func(ctx context.Context, addr string) (net.Conn, error) { return w.Dial(ctx, "tcp", addr) }
	return func(c *clientv3.Config) { c.DialOptions = append(c.DialOptions, grpc.WithContextDialer(dial)) }
}

// onStreams has wrap see a client's streams.
func onStreams(wrap func(grpc.ClientStream) grpc.ClientStream) func(*clientv3.Config) {
	return func(c *clientv3.Config) {
		c.DialOptions = append(c.DialOptions, grpc.WithChainStreamInterceptor(func(
			ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, next grpc.Streamer,
			opts ...grpc.CallOption,
		) (grpc.ClientStream, error) {
			stream, err := next(ctx, desc, cc, method, opts...)
			return wrap(stream), err
		}))
	}
}

// backend returns a Backend on a client of its own.
func backend(t testing.TB, addrs []string, opts ...func(*clientv3.Config)) *etcd.Backend {
	t.Helper()
	b, err := etcd.New(dial(t, addrs, opts...), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// patientBackend is one whose requests may take as long as a busy machine does.
func patientBackend(t testing.TB, addrs []string, opts ...func(*clientv3.Config)) *etcd.Backend {
	t.Helper()
	b, err := etcd.New(dial(t, addrs, opts...), &etcd.Options{Timeout: 10 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// client returns a Client on a Backend of its own, which sits out what a busy machine does to its connection.
func client(t testing.TB, addrs []string, ttl time.Duration, opts ...func(*clientv3.Config)) *locker.Client {
	t.Helper()
	c := locktest.Must(locker.New(backend(t, addrs, opts...), &locker.Options{TTL: ttl, OutageTimeout: 30 * time.Second}))
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// all lists every key of all queues: the locks, the waiters, the voids.
func all(t testing.TB, c *clientv3.Client) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	resp, err := c.Get(ctx, "locker/1/lock/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	require.NoError(t, err)
	var keys []string
	for _, kv := range resp.Kvs {
		keys = append(keys, string(kv.Key))
	}
	return keys
}

var escape = strings.NewReplacer("%", "%25", "/", "%2F")

func queue(name string) string { return "locker/1/lock/" + escape.Replace(name) + "/" }

func ctFail(ct conformance.T, err error) {
	if err != nil {
		ct.Errorf("%v", err)
		ct.FailNow()
	}
}
