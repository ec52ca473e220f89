package etcd_test

import (
	"context"
	"flag"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/golockers/locker"
	"github.com/golockers/locker/conformance"
	"github.com/golockers/locker/driver"
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

// onRequest has f make a client's requests.
func onRequest(f func(ctx context.Context, r unary) error) func(*clientv3.Config) {
	return func(c *clientv3.Config) {
		c.DialOptions = append(c.DialOptions, grpc.WithChainUnaryInterceptor(
			func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
				invoker grpc.UnaryInvoker, opts ...grpc.CallOption,
			) error {
				return f(ctx, unary{method, req, cc, func(more ...grpc.CallOption) error {
					return invoker(ctx, method, req, reply, cc, append(opts, more...)...)
				}})
			},
		))
	}
}

// unary is a request that is answered once.
type unary struct {
	method string
	req    any
	conn   *grpc.ClientConn
	send   func(...grpc.CallOption) error
}

// intercepted is onRequest for those who do not look at what is sent.
func intercepted(f func(ctx context.Context, method string, send func() error) error) func(*clientv3.Config) {
	return onRequest(func(ctx context.Context, r unary) error {
		return f(ctx, r.method, func() error { return r.send() })
	})
}

// onStreams wraps a client's streams.
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

// onReceived has f see the messages of one type that a client's streams receive; an error is received instead.
func onReceived[M any](f func(ctx context.Context, m *M) error) func(*clientv3.Config) {
	return onStreams(func(s grpc.ClientStream) grpc.ClientStream { return receiver[M]{s, f} })
}

type receiver[M any] struct {
	grpc.ClientStream
	f func(context.Context, *M) error
}

func (s receiver[M]) RecvMsg(received any) error {
	err := s.ClientStream.RecvMsg(received)
	if m, ok := received.(*M); ok && err == nil {
		return s.f(s.Context(), m)
	}
	return err
}

// backend returns a Backend on a client of its own.
func backend(t testing.TB, addrs []string, opts ...func(*clientv3.Config)) *etcd.Backend {
	t.Helper()
	return backendWith(t, addrs, nil, opts...)
}

func backendWith(t testing.TB, addrs []string, o *etcd.Options, opts ...func(*clientv3.Config)) *etcd.Backend {
	t.Helper()
	b, err := etcd.New(dial(t, addrs, opts...), o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func strictBackend(t testing.TB, s scene, opts ...func(*clientv3.Config)) *etcd.Backend {
	t.Helper()
	return backendWith(t, s.Addrs(), &etcd.Options{StrictExpiry: true}, opts...)
}

// patientBackend is one whose requests may take as long as a busy machine does.
func patientBackend(t testing.TB, addrs []string, opts ...func(*clientv3.Config)) *etcd.Backend {
	t.Helper()
	return backendWith(t, addrs, &etcd.Options{Timeout: 10 * time.Second}, opts...)
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

// request is what the engine would ask.
func request(name string, ttl time.Duration, wait bool) driver.Request {
	requests.Lock()
	defer requests.Unlock()
	requests.n++
	return driver.Request{
		Name:  name,
		Owner: fmt.Sprintf("%040x", requests.n),
		Label: "test",
		TTL:   ttl,
		Wait:  wait,
		Lost:  func() {},
	}
}

var requests struct {
	sync.Mutex
	n int
}

var within, eventually = locktest.Within, locktest.Eventually

func locksIn(t testing.TB, c *clientv3.Client, name string) (keys []string) {
	t.Helper()
	for _, k := range all(t, c) {
		if strings.HasPrefix(k, queue(name)) && !strings.HasPrefix(k, queue(name)+"~") {
			keys = append(keys, k)
		}
	}
	return keys
}
