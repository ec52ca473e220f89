package etcd_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

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

// call is a request of a client on its way.
type call struct {
	ctx    context.Context
	method string
	txn    *pb.TxnRequest // nil: it is another request
	to     *grpc.ClientConn
	send   func(...grpc.CallOption) error
	late   func() error // sends it when its caller has gone
}

func (c call) is(method string) bool { return strings.HasSuffix(c.method, "/"+method) }

// onCalls has f make a client's requests.
func onCalls(f func(c call) error) func(*clientv3.Config) {
	return func(c *clientv3.Config) {
		c.DialOptions = append(c.DialOptions, grpc.WithChainUnaryInterceptor(func(
			ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker,
			opts ...grpc.CallOption,
		) error {
			txn, _ := req.(*pb.TxnRequest)
			return f(call{ctx, method, txn, cc, func(more ...grpc.CallOption) error {
				return invoke(ctx, method, req, reply, cc, append(opts, more...)...)
			}, func() error {
				return invoke(context.WithoutCancel(ctx), method, req, reply, cc, opts...)
			}})
		}))
	}
}

// silent has no request of a method arrive.
func silent(method string) func(*clientv3.Config) {
	return onCalls(func(c call) error {
		if !c.is(method) {
			return c.send()
		}
		<-c.ctx.Done()
		return c.ctx.Err()
	})
}

// loseAnswer carries the first transaction out that is meant, and loses the answer.
func loseAnswer(meant func(req *pb.TxnRequest) bool) func(*clientv3.Config) {
	var lost atomic.Bool
	return onCalls(func(c call) error {
		err := c.send()
		if c.txn != nil && meant(c.txn) && err == nil && lost.CompareAndSwap(false, true) {
			return status.Error(codes.Unavailable, "the answer is lost")
		}
		return err
	})
}

// onAnswers has f change what the streams of a client receive.
func onAnswers(f func(s grpc.ClientStream, m any) error) func(*clientv3.Config) {
	return func(c *clientv3.Config) {
		c.DialOptions = append(c.DialOptions, grpc.WithChainStreamInterceptor(func(
			ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, next grpc.Streamer,
			opts ...grpc.CallOption,
		) (grpc.ClientStream, error) {
			s, err := next(ctx, desc, cc, method, opts...)
			return answers{s, f}, err
		}))
	}
}

type answers struct {
	grpc.ClientStream
	f func(s grpc.ClientStream, m any) error
}

func (s answers) RecvMsg(m any) error {
	if err := s.ClientStream.RecvMsg(m); err != nil {
		return err
	}
	return s.f(s.ClientStream, m)
}

// backend returns a Backend on a client of its own.
func backend(t testing.TB, addrs []string, opts ...func(*clientv3.Config)) *etcd.Backend {
	t.Helper()
	return backendWith(t, etcd.Options{}, addrs, opts...)
}

func backendWith(t testing.TB, o etcd.Options, addrs []string, opts ...func(*clientv3.Config)) *etcd.Backend {
	t.Helper()
	b, err := etcd.New(dial(t, addrs, opts...), &o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

var (
	strict = etcd.Options{StrictExpiry: true}
	// patient is for requests that may take as long as a busy machine does.
	patient = etcd.Options{Timeout: 10 * time.Second}
)

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

// lockLater calls Lock on a goroutine of its own.
func lockLater(ctx context.Context, c *locker.Client, name string) <-chan locked {
	answer := make(chan locked, 1)
	go func() {
		l, err := c.Lock(ctx, name)
		answer <- locked{l, err, time.Now()}
	}()
	return answer
}

type locked struct {
	lease *locker.Lease
	err   error
	at    time.Time
}

// watched waits until there are so many watches of waiters, on all members together: who is
// in the queue may not have been told so yet, and does not watch yet.
func (s scene) watched(t testing.TB, n int) {
	t.Helper()
	s.watchedWithin(t, 30*time.Second, n)
}

func (s scene) watchedWithin(t testing.TB, d time.Duration, n int) {
	t.Helper()
	const gauge = "etcd_debugging_mvcc_watcher_total "
	web := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	eventually(t, d, "as many watches", func() bool {
		found := 0
		for _, member := range s.Nodes {
			req, err := http.NewRequestWithContext(
				t.Context(),
				http.MethodGet,
				"http://"+member.Addr()+"/metrics",
				nil,
			)
			require.NoError(t, err)
			resp, err := web.Do(req)
			if err != nil {
				return false
			}
			text, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			_, value, ok := strings.Cut(string(text), "\n"+gauge)
			count, _, _ := strings.Cut(value, "\n")
			watches, parseErr := strconv.Atoi(count)
			if err != nil || !ok || parseErr != nil {
				return false
			}
			found += watches
		}
		sessions, err := s.admin.Leases(t.Context()) // each watches its own key, too
		return err == nil && found >= n+len(sessions.Leases)
	})
}

// nobody fails the test if one of the waiters has been answered.
func nobody(t testing.TB, answers ...<-chan locked) {
	t.Helper()
	for _, answer := range answers {
		select {
		case a := <-answer:
			require.Fail(t, "nobody gets in", "lease %v, error %v", a.lease, a.err)
		default:
		}
	}
}

func (s scene) get(t testing.TB, answer <-chan locked, d time.Duration) locked {
	t.Helper()
	select {
	case a := <-answer:
		require.NoError(t, a.err)
		return a
	case <-time.After(d):
		require.Fail(t, "the waiter did not get the lock within "+d.String())
		return locked{}
	}
}

// beforeThePoll is when a waiter is told whom a watch or a keep-alive tells, on a slow machine too: the poll comes
// after 20 s or so.
const beforeThePoll = 10 * time.Second

// scene is a cluster and somebody who looks at it.
type scene struct {
	*lab.EtcdCluster
	admin *clientv3.Client
}

func newScene(t testing.TB, members int, opts ...lab.Option) scene {
	s := lab.StartEtcd(t, members, opts...)
	return scene{s, dial(t, s.Addrs())}
}

// parallelScene is newScene for a test that runs beside others.
func parallelScene(t *testing.T, members int, opts ...lab.Option) scene {
	t.Helper()
	t.Parallel()
	return newScene(t, members, opts...)
}

func (s scene) revoke(t testing.TB, lease clientv3.LeaseID) {
	t.Helper()
	_, err := s.admin.Revoke(t.Context(), lease)
	require.NoError(t, err)
}

func (s scene) delete(t testing.TB, key string, opts ...clientv3.OpOption) {
	t.Helper()
	_, err := s.admin.Delete(t.Context(), key, opts...)
	require.NoError(t, err)
}

// queued waits until n keys are in the queue, and returns them in its order.
// Those that only make a late request void are not among them.
func (s scene) queued(t testing.TB, name string, n int) (keys []*clientv3.LeaseID, names []string) {
	t.Helper()
	eventually(t, 30*time.Second, "as many in the queue", func() bool {
		resp, err := s.admin.Get(within(t, 5*time.Second), queue(name),
			clientv3.WithRange(queue(name)+"~"),
			clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
		keys, names = nil, nil
		if err == nil {
			for _, kv := range resp.Kvs {
				id := clientv3.LeaseID(kv.Lease)
				keys, names = append(keys, &id), append(names, string(kv.Key))
			}
		}
		return len(names) == n
	})
	return keys, names
}

// twoRoads is a client that takes turns between two ways to the same member.
func twoRoads(t *testing.T, s scene, ttl time.Duration) (c *locker.Client, roads []*lab.Proxy, stop func()) {
	for range 2 {
		roads = append(roads, lab.StartProxy(t, s.Nodes[0].Addr()))
	}
	b := backend(t, []string{roads[0].Addr(), roads[1].Addr()})
	c = locktest.Must(locker.New(b, &locker.Options{TTL: ttl}))
	return c, roads, func() {
		for _, p := range roads {
			p.Set(lab.Pass)
		}
		require.NoError(t, c.Close())
		require.NoError(t, b.Close())
	}
}

// withAuth turns authentication on: root, and locker with the least rights.
func withAuth(t testing.TB, admin *clientv3.Client) {
	t.Helper()
	ctx := within(t, 20*time.Second)
	for _, user := range []string{"root", "locker", "stranger"} {
		_, err := admin.UserAdd(ctx, user, "pass")
		require.NoError(t, err)
	}
	_, err := admin.UserGrantRole(ctx, "root", "root")
	require.NoError(t, err)
	_, err = admin.RoleAdd(ctx, "locker")
	require.NoError(t, err)
	_, err = admin.RoleGrantPermission(ctx, "locker", "locker/1/",
		clientv3.GetPrefixRangeEnd("locker/1/"), clientv3.PermissionType(clientv3.PermReadWrite))
	require.NoError(t, err)
	_, err = admin.UserGrantRole(ctx, "locker", "locker")
	require.NoError(t, err)
	_, err = admin.AuthEnable(ctx)
	require.NoError(t, err)
}
