package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/etcd"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
)

// laggard is a network that keeps one request, and delivers it later. A proxy
// is no good for this: behind the request it would deliver that it was cancelled.
type laggard struct {
	mu   sync.Mutex
	want string // of the method and what it carries; "": nothing is kept
	skip int    // how many come before it
	kept chan struct{}
	late func() error
}

func (l *laggard) keep(skip int, want string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.want, l.skip, l.kept = want, skip, make(chan struct{})
}

func (l *laggard) config(c *clientv3.Config) {
	c.DialOptions = append(c.DialOptions, grpc.WithChainUnaryInterceptor(l.intercept))
}

func (l *laggard) intercept(
	ctx context.Context,
	method string,
	req, reply any,
	cc *grpc.ClientConn,
	invoker grpc.UnaryInvoker,
	opts ...grpc.CallOption,
) error {
	l.mu.Lock()
	is := l.want != "" && strings.Contains(method+" "+fmt.Sprint(req), l.want)
	if is {
		l.skip--
	}
	keep := is && l.skip < 0
	if keep {
		l.want = ""
		l.late = func() error {
			return invoker(
				context.Background(),
				method,
				req,
				reflect.New(reflect.TypeOf(reply).Elem()).Interface(),
				cc,
				opts...)
		}
		close(l.kept)
	}
	l.mu.Unlock()
	if keep {
		<-ctx.Done()
		return ctx.Err()
	}
	return invoker(ctx, method, req, reply, cc, opts...)
}

// waysIn are the ways to ask for a lock.
var waysIn = map[string]struct {
	wait   bool
	held   int // how many hold the lock before: a waiter asks twice then
	shared bool
}{
	"try":                       {false, 0, false},
	"first in the queue":        {true, 0, false},
	"last in the queue":         {true, 1, false},
	"sharer, try":               {false, 0, true},
	"sharer, first":             {true, 0, true},
	"sharer, last in the queue": {true, 1, true},
}

// The session lives on all the time: only the void key is in the way of the ghost.
func TestRequestThatArrivesAfterItsTakeBackDoesNothing(t *testing.T) {
	t.Parallel()
	for what, c := range waysIn {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := lab.StartEtcd(t, 1)
			admin := dial(t, s.Addrs())
			var network laggard
			b := backend(t, s.Addrs(), network.config)
			const ttl = time.Minute
			other := locktest.Acquire(t, b, request("other", ttl, false))
			holder := backend(t, s.Addrs())
			var before driver.Grant
			if c.held > 0 {
				before = locktest.Acquire(t, holder, request("ghost", ttl, false))
			}

			network.keep(c.held, queue("ghost"))
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-network.kept
				cancel()
			}()
			asks := request("ghost", ttl, c.wait)
			asks.Shared = c.shared
			grant, err := locktest.Ask(ctx, b, asks)
			require.ErrorIs(t, err, context.Canceled)
			require.NotNil(t, grant.Hold, "what may be left has to be told")
			require.NoError(t, grant.Hold.Undo(t.Context()))
			require.Len(t, locksIn(t, admin, "ghost"), c.held)
			require.Len(t, all(t, admin), 2+c.held, "the other lock and the void key")

			require.NoError(t, network.late()) // now it arrives
			assert.Len(t, locksIn(t, admin, "ghost"), c.held)
			_, err = other.Hold.Renew(t.Context())
			require.NoError(t, err, "the session has lived on")
			// With a void key beside it, the queue is as good as empty.
			if c.held > 0 {
				require.NoError(t, before.Hold.Release(t.Context(), 0))
			}
			for _, wait := range []bool{false, true} {
				next := locktest.Acquire(t, holder, request("ghost", ttl, wait))
				require.NoError(t, next.Hold.Release(t.Context(), 0))
			}
			require.NoError(t, other.Hold.Release(t.Context(), 0))
			require.NoError(t, b.Close())
			assert.Empty(t, all(t, admin), "the void key has gone with the session")
		})
	}
}

// The copy of a session's grant that went to another member is late, and so is the key of a lock that was taken
// back. The session ends, and its void keys with it: whatever comes then, its lease must not come into being anew,
// or the late key would be a lock that nobody holds.
func TestLateGrantDoesNotBringASessionBack(t *testing.T) {
	t.Parallel()
	s := lab.StartEtcd(t, 1)
	addr := s.Nodes[0].Addr()
	admin := dial(t, s.Addrs())
	var grants, puts laggard
	b := backend(t, []string{addr, addr}, grants.config, puts.config) // a copy goes to another
	grants.keep(0, "LeaseGrant")
	puts.keep(0, queue("ghost"))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-puts.kept
		cancel()
	}()
	grant, err := locktest.Ask(ctx, b, request("ghost", time.Minute, false))
	require.ErrorIs(t, err, context.Canceled)
	require.NotNil(t, grant.Hold, "what may be left has to be told")
	require.NoError(t, grant.Hold.Undo(t.Context()))
	require.Len(t, all(t, admin), 1, "the void key")
	leases, err := admin.Leases(t.Context())
	require.NoError(t, err)
	require.Len(t, leases.Leases, 1)
	_, err = admin.Revoke(t.Context(), leases.Leases[0].ID) // as it expires, or as Close does
	require.NoError(t, err)

	require.NoError(t, grants.late()) // now they arrive
	assert.ErrorContains(t, puts.late(), "lease not found")
	assert.Empty(t, all(t, admin))
}

// Void keys pile up where a network loses many requests: another session takes
// over, and the old one ends, with all that it left, when its last lock does.
func TestSessionWithManyVoidKeysIsRetired(t *testing.T) {
	t.Parallel()
	s := lab.StartEtcd(t, 1)
	admin := dial(t, s.Addrs())
	roads := []*lab.Proxy{lab.StartProxy(t, s.Nodes[0].Addr()), lab.StartProxy(t, s.Nodes[0].Addr())}
	b := backend(t, []string{roads[0].Addr(), roads[1].Addr()})
	sessionOf := func(g driver.Grant) clientv3.LeaseID {
		var k etcd.Key
		require.True(t, g.Hold.(interface{ As(any) bool }).As(&k))
		return k.Lease
	}
	const ttl = time.Minute
	held := locktest.Acquire(t, b, request("held", ttl, false))
	old := sessionOf(held)
	// lose makes requests of which about a half go the way that hangs; 64 void keys
	// are enough. How many there are depends on how soon the other way is taken.
	lose := func(road *lab.Proxy) {
		road.Requests(lab.Hold)
		defer road.Requests(lab.Pass) // what was taken back arrives, in vain
		var lost sync.WaitGroup
		defer lost.Wait()
		for n := range 320 {
			lost.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				g, err := locktest.Ask(ctx, b, request(fmt.Sprint("lost", n), ttl, false))
				if err == nil || g.Hold != nil {
					for {
						if err := g.Hold.Release(t.Context(), 0); err == nil || errors.Is(err, driver.ErrLost) {
							break
						}
					}
				}
			})
		}
	}
	var next driver.Grant
	rounds := 0
	eventually(t, 40*time.Second, "no new locks on it", func() bool {
		lose(roads[rounds%2])
		rounds++
		next = locktest.Acquire(t, b, request("next", ttl, false))
		if sessionOf(next) != old {
			return true
		}
		require.NoError(t, next.Hold.Release(t.Context(), 0))
		return false
	})
	_, err := held.Hold.Renew(t.Context())
	require.NoError(t, err, "those that it has go on")
	require.NoError(t, held.Hold.Release(t.Context(), 0))
	eventually(t, 30*time.Second, "it is revoked, and nothing of it is left", func() bool {
		ttl, err := admin.TimeToLive(t.Context(), old)
		return err == nil && ttl.TTL <= 0
	})
	for _, k := range all(t, admin) {
		assert.True(t, strings.HasPrefix(k, queue("next")), k)
	}
	require.NoError(t, next.Hold.Release(t.Context(), 0))
}

// A request that was taken back before it arrived finds nobody: that is not "held".
func TestRequestThatWasTakenBackBefore(t *testing.T) {
	s := parallelScene(t, 1)
	b := backend(t, s.Addrs())
	for _, wait := range []bool{false, true} {
		req := request("n", time.Minute, wait)
		_, err := s.admin.Put(t.Context(), queue("n")+"~"+req.Owner, "")
		require.NoError(t, err)
		_, err = locktest.Ask(t.Context(), b, req)
		require.ErrorIs(t, err, driver.ErrUnavailable)
		require.NotErrorIs(t, err, driver.ErrHeld)
	}
}
