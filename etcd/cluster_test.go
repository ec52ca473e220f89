package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/etcd"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
)

// leading makes each connection to where the function says at that moment; "": to nowhere.
func leading(to func(addr string) string) func(*clientv3.Config) {
	return func(c *clientv3.Config) {
		c.DialOptions = append(c.DialOptions, grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			if addr = to(addr); addr == "" {
				return nil, errors.New("nobody is there")
			}
			return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		}))
	}
}

// Two clusters that one client asks as if they were one let two clients hold a lock, one in each. The second is
// refused before anything is asked of it that writes, whenever it is found.
func TestEndpointsOfTwoClustersAreRefused(t *testing.T) {
	t.Parallel()
	one, two := newScene(t, 1), newScene(t, 1)
	a, b := one.Nodes[0].Addr(), two.Nodes[0].Addr()
	ctx := t.Context()
	refused := func(t *testing.T, err error, endpoints ...string) {
		t.Helper()
		require.Error(t, err)
		require.NotErrorIs(t, err, driver.ErrUnavailable, "trying again does not help")
		require.ErrorContains(t, err, "belongs to cluster")
		for _, e := range endpoints {
			require.ErrorContains(t, err, e)
		}
	}
	wrote := func(t *testing.T, s scene) bool {
		t.Helper()
		leases, err := s.admin.Leases(ctx)
		require.NoError(t, err)
		return len(leases.Leases) > 0 || len(all(t, s.admin)) > 0
	}

	t.Run("when it is opened", func(t *testing.T) {
		refused(t, refusal(t, "etcd://"+a+","+b+"?timeout=30s"), a, b) // a fifteenth of that is between their answers
	})
	both := backendWith(t, []string{a, b}, &etcd.Options{Timeout: 30 * time.Second})
	t.Run("before the first grant", func(t *testing.T) {
		for range 3 { // and it is not forgotten
			_, err := locktest.Ask(ctx, both, request("n", time.Minute, false))
			refused(t, err, a, b)
		}
		assert.False(t, wrote(t, one) || wrote(t, two))
	})
	t.Run("check", func(t *testing.T) {
		var turn atomic.Int64
		for what, c := range map[string]driver.Checker{
			"two endpoints": patientBackend(t, []string{a, b}),
			"one endpoint of a balancer": patientBackend(t, []string{a}, leading(func(string) string {
				return []string{a, b}[turn.Add(1)%2]
			})),
		} {
			found, err := c.Check(ctx)
			require.NoError(t, err, what)
			worst, text := driver.SeverityOK, ""
			for _, f := range found {
				if f.Severity > worst {
					worst, text = f.Severity, f.Found
				}
			}
			assert.Equal(t, driver.SeverityProblem, worst, what)
			assert.Contains(t, text, "belongs to cluster", what)
		}
	})
	t.Run("at a fail-over, and after a restore", func(t *testing.T) {
		var late, moved atomic.Bool
		failsOver := patientBackend(t, []string{a, b}, leading(func(addr string) string {
			if addr == b && !late.Load() {
				return ""
			}
			return addr
		}))
		restored := patientBackend(t, []string{a}, leading(func(string) string {
			if moved.Load() {
				return b
			}
			return a
		}))
		clients := []driver.Backend{failsOver, restored}
		var held []driver.Grant
		for i, c := range clients {
			held = append(held, locktest.Acquire(t, c, request(fmt.Sprint("held", i), 6*time.Second, false)))
		}
		late.Store(true)
		moved.Store(true)
		one.Nodes[0].Kill()
		for i, c := range clients {
			eventually(t, 30*time.Second, "it is refused", func() bool {
				_, err := locktest.Ask(ctx, c, request("n", 6*time.Second, false))
				require.Error(t, err)
				if errors.Is(err, driver.ErrUnavailable) { // it may still look for the one that is gone
					return false
				}
				refused(t, err, a, []string{b, a}[i])
				return true
			})
			eventually(t, 30*time.Second, "nobody keeps it alive", func() bool {
				_, err := held[i].Hold.Renew(ctx)
				return err != nil
			})
		}
		assert.False(t, wrote(t, two))
		// One of the two is gone: the client that was refused finds the other one alone.
		g := locktest.Acquire(t, both, request("n", 6*time.Second, false))
		require.NoError(t, g.Hold.Release(ctx, 0))
	})
}

// A foreign endpoint makes no refusal of an outage, which passes: only where nobody else is there it is told as one.
func TestAForeignEndpointDoesNotHideAnOutage(t *testing.T) {
	t.Parallel()
	one, two := newScene(t, 1), newScene(t, 1)
	proxy := lab.StartProxy(t, one.Nodes[0].Addr())
	var late atomic.Bool
	addrs := []string{proxy.Addr(), two.Nodes[0].Addr()}
	b := backendWith(t, addrs, &etcd.Options{Timeout: 2 * time.Second}, leading(func(addr string) string {
		if addr != proxy.Addr() && !late.Load() {
			return ""
		}
		return addr
	}))
	eventually(t, 30*time.Second, "it works", func() bool {
		g, err := locktest.Ask(t.Context(), b, request("n", time.Minute, false))
		return err == nil && g.Hold.Release(t.Context(), 0) == nil
	})
	proxy.Set(lab.Hold)
	late.Store(true)
	eventually(t, 30*time.Second, "the foreign one has answered in time, and is told", func() bool {
		_, err := locktest.Ask(t.Context(), b, request("n", time.Minute, false))
		require.ErrorIs(t, err, driver.ErrUnavailable)
		require.NotErrorIs(t, err, driver.ErrRefused)
		return strings.Contains(err.Error(), "belongs to cluster")
	})
}

// One endpoint that is silent costs neither Open nor the first grant the time in which it could answer.
func TestASilentEndpointIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	s := newScene(t, 1)
	silent := lab.StartProxy(t, s.Nodes[0].Addr())
	silent.Set(lab.Hold)
	const limit = 15 * time.Second // of which each pool waited a third
	b := backendWith(t, []string{s.Nodes[0].Addr(), silent.Addr()}, &etcd.Options{Timeout: limit})
	began := time.Now()
	locktest.Acquire(t, b, request("n", time.Minute, false))
	assert.Less(t, time.Since(began), limit/3)
}

// A proxy that lets nobody ask for the status does not keep requests from the member behind it. Where it may be
// asked, the many requests that are under way on a new connection ask once.
func TestTheStatusOfAMember(t *testing.T) {
	t.Parallel()
	s := newScene(t, 1)
	for _, code := range []codes.Code{codes.OK, codes.Unimplemented, codes.PermissionDenied} {
		t.Run(code.String(), func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int64
			b := patientBackend(t, s.Addrs(), intercepted(func(_ context.Context, method string, send func() error) error {
				if method == "/etcdserverpb.Maintenance/Status" {
					asked.Add(1)
					time.Sleep(100 * time.Millisecond)
					if code != codes.OK {
						return status.Error(code, "not by way of this proxy")
					}
				}
				return send()
			}))
			var all sync.WaitGroup
			for range 100 {
				all.Go(func() {
					_, err := b.Inspect(t.Context(), "n")
					assert.NoError(t, err)
				})
			}
			all.Wait()
			assert.LessOrEqual(t, asked.Load(), int64(5), "the connection may have changed meanwhile")
			g := locktest.Acquire(t, b, request(code.String(), time.Minute, false))
			require.NoError(t, g.Hold.Release(t.Context(), 0))
		})
	}
}
