package zookeeper_test

import (
	"errors"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/conformance"
	"github.com/golockers/locker/internal/testserver"
	"github.com/golockers/locker/zookeeper"
)

const (
	suiteTTL     = time.Second
	suiteSession = 6 * time.Second
)

// service is a set of servers as the suite sees it.
type service struct {
	t     *testing.T
	addrs []string
	admin *zk.Conn

	mu      sync.Mutex
	proxies []*testserver.Proxy
}

func newService(t *testing.T, addrs []string) *service {
	return &service{t: t, addrs: addrs, admin: rawConn(t, addrs)}
}

// rawConn returns a connection of the driver, which is closed with the test.
func rawConn(t testing.TB, addrs []string) *zk.Conn {
	t.Helper()
	c, events, err := zk.Connect(addrs, 10*time.Second, zk.WithLogger(quiet{}))
	require.NoError(t, err)
	t.Cleanup(func() {
		c.Close()
		for range events {
		}
	})
	return c
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

func (s *service) harness() conformance.Harness {
	return conformance.Harness{
		TTL:   suiteTTL,
		New:   func(ct conformance.T) locker.Backend { return s.backend(ct, s.addrs) },
		Names: []string{"%beat-x", "%2E", ".", "..", "zookeeper", "x-lock-0000000001"},
		Cut: func(ct conformance.T) (locker.Backend, conformance.Fault) {
			var f fault
			var addrs []string
			for _, a := range s.addrs {
				p := testserver.StartProxy(s.t, a)
				f = append(f, p)
				addrs = append(addrs, p.Addr())
			}
			return s.backend(ct, addrs), f
		},
		Delete: func(ct conformance.T, name string) {
			children, err := s.children(name)
			if err == nil && len(children) > 0 {
				err = s.admin.Delete(children[0], -1)
			}
			if err != nil {
				ct.Errorf("%v", err)
			}
		},
		Victim: func(ct conformance.T, name string, _ time.Duration) func() {
			child := testserver.StartChild(s.t, "hold", strings.Join(s.addrs, ","), name, suiteSession.String())
			child.Expect(s.t, "holding", soon)
			return child.Kill
		},
		Left: func(_ conformance.T, name string) []string {
			children, err := s.children(name)
			if err != nil {
				return []string{err.Error()}
			}
			return children
		},
		URL:  "zookeeper://" + strings.Join(s.addrs, ",") + "/locker?ttl=" + suiteSession.String(),
		Open: locker.Openers{"zookeeper": zookeeper.Open},
	}
}

func (s *service) backend(ct conformance.T, addrs []string) locker.Backend {
	b, err := zookeeper.New(addrs, &zookeeper.Options{SessionTimeout: suiteSession})
	if err != nil {
		ct.Errorf("%v", err)
		ct.FailNow()
	}
	return b
}

// children returns the paths of the nodes in the queue of name.
func (s *service) children(name string) ([]string, error) {
	dir := "/locker/" + zookeeper.Encode(name)
	if _, err := s.admin.Sync(dir); err != nil {
		return nil, err
	}
	names, _, err := s.admin.Children(dir)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	for i := range names {
		names[i] = dir + "/" + names[i]
	}
	return names, err
}

// fault breaks the ways to all servers.
type fault []*testserver.Proxy

var modes = map[conformance.Mode]testserver.Mode{
	conformance.Pass: testserver.Pass, conformance.Hold: testserver.Hold,
	conformance.Drop: testserver.Drop, conformance.Reset: testserver.Reset,
}

func (f fault) Requests(m conformance.Mode) {
	for _, p := range f {
		p.SetRequests(modes[m])
	}
}

func (f fault) Replies(m conformance.Mode) {
	for _, p := range f {
		p.SetReplies(modes[m])
	}
}

func (f fault) Sent() (n int64) {
	for _, p := range f {
		n += p.Stats().Requests.Sent
	}
	return n
}

func splitServers(s string) []string { return strings.Split(s, ",") }

func TestConformanceOneServer(t *testing.T) {
	clock := testserver.NewZooKeeperClock(t)
	z := testserver.StartZooKeeper(t, testserver.WithZooKeeperClock(clock))
	h := newService(t, []string{z.Addr()}).harness()
	h.JumpClock = func(_ conformance.T, d time.Duration) { clock.Jump(t, d) }
	h.Restart = func(conformance.T) { z.Kill(); z.Restart(t) }
	conformance.Run(t, h)
}

func TestConformanceThreeServers(t *testing.T) {
	clock := testserver.NewZooKeeperClock(t)
	e := testserver.StartZooKeeperEnsemble(t, 3, testserver.WithZooKeeperClock(clock))
	h := newService(t, e.Addrs()).harness()
	h.JumpClock = func(_ conformance.T, d time.Duration) { clock.Jump(t, d) }
	h.Restart = func(conformance.T) {
		for _, s := range e.Servers {
			s.Kill()
		}
		e.Restart(t)
	}
	h.Failover = func(conformance.T) {
		old := e.Leader(t)
		old.Kill()
		e.Leader(t, e.Others(old)...)
		t.Cleanup(func() {})
	}
	h.Crash = func(_ conformance.T, n int) func() {
		e.Restart(t)
		for range n {
			e.Leader(t).Kill()
		}
		return func() { e.Restart(t) }
	}
	conformance.Run(t, h)
}

var _ = url.QueryEscape
