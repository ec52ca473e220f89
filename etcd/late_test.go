package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker"
	"github.com/golockers/locker/etcd"
	"github.com/golockers/locker/internal/testserver"
)

// The request is on one connection, which delivers it late; its take-back is
// on another, and finds nothing. The session lives on all the time: only the void
// key is in the way of the ghost.
func TestRequestThatArrivesAfterItsTakeBackDoesNothing(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		wait bool
		held int // how many hold the lock before
	}{
		"try":                {false, 0},
		"first in the queue": {true, 0},
		"last in the queue":  {true, 1},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := testserver.StartEtcd(t, 1)
			admin := dial(t, s.Addrs())
			roads := []*testserver.Proxy{testserver.StartProxy(t, s.Nodes[0].Addr()), testserver.StartProxy(t, s.Nodes[0].Addr())}
			b := backend(t, []string{roads[0].Addr(), roads[1].Addr()})
			const ttl = 2 * time.Second
			other, err := b.Acquire(t.Context(), request("other", ttl, false))
			require.NoError(t, err)
			holder := backend(t, s.Addrs())
			var before locker.Grant
			if c.held > 0 {
				before, err = holder.Acquire(t.Context(), request("ghost", ttl, false))
				require.NoError(t, err)
			}

			// The transaction is the second one where somebody is met by the first.
			held := make(chan *testserver.Link, 2)
			var mu sync.Mutex
			skip := c.held
			for _, p := range roads {
				var count func(l *testserver.Link)
				count = func(l *testserver.Link) {
					mu.Lock()
					defer mu.Unlock()
					if skip--; skip >= 0 {
						p.OnRequest(queue("ghost"), count)
					} else if skip == -1 {
						l.SetRequests(testserver.Hold)
						held <- l
					}
				}
				p.OnRequest(queue("ghost"), count)
			}
			ctx, cancel := context.WithCancel(t.Context())
			var link *testserver.Link
			go func() {
				link = <-held
				cancel()
			}()
			grant, err := b.Acquire(ctx, request("ghost", ttl, c.wait))
			require.ErrorIs(t, err, context.Canceled)
			require.NotNil(t, grant.Hold, "what may be left has to be told")
			eventually(t, 10*time.Second, "the take-back is confirmed", func() bool {
				return grant.Hold.Release(within(t, 200*time.Millisecond)) == nil
			})
			require.Len(t, locksIn(t, admin, "ghost"), c.held)
			require.Len(t, all(t, admin), 2+c.held, "the other lock and the void key")

			link.SetRequests(testserver.Pass) // now it arrives
			time.Sleep(ttl + ttl/2)
			assert.Len(t, locksIn(t, admin, "ghost"), c.held)
			_, err = other.Hold.Renew(t.Context())
			require.NoError(t, err, "the session has lived on")
			// With a void key beside it, the queue is as good as empty.
			if c.held > 0 {
				require.NoError(t, before.Hold.Release(t.Context()))
			}
			for _, wait := range []bool{false, true} {
				next, err := holder.Acquire(within(t, 5*time.Second), request("ghost", ttl, wait))
				require.NoError(t, err)
				require.NoError(t, next.Hold.Release(t.Context()))
			}
			require.NoError(t, other.Hold.Release(t.Context()))
			require.NoError(t, b.Close())
			assert.Empty(t, all(t, admin), "the void key has gone with the session")
		})
	}
}

// The release is on one connection, which delivers it late; it is made again on
// another. Whoever has the lock then, keeps it.
func TestReleaseThatArrivesLateDoesNothing(t *testing.T) {
	t.Parallel()
	s := testserver.StartEtcd(t, 1)
	admin := dial(t, s.Addrs())
	roads := []*testserver.Proxy{testserver.StartProxy(t, s.Nodes[0].Addr()), testserver.StartProxy(t, s.Nodes[0].Addr())}
	b := backend(t, []string{roads[0].Addr(), roads[1].Addr()})
	first, err := b.Acquire(t.Context(), request("ghost", time.Minute, false))
	require.NoError(t, err)
	keys := locksIn(t, admin, "ghost")
	held := make(chan *testserver.Link, 2)
	var once sync.Once
	for _, p := range roads {
		p.OnRequest(keys[0], func(l *testserver.Link) {
			once.Do(func() {
				l.SetRequests(testserver.Hold)
				held <- l
			})
		})
	}
	require.NoError(t, first.Hold.Release(t.Context()))
	link := <-held
	var second locker.Grant
	eventually(t, 5*time.Second, "it is had again", func() bool { // half of the requests go the way that hangs
		second, err = b.Acquire(within(t, time.Second), request("ghost", time.Minute, false))
		return err == nil
	})
	link.SetRequests(testserver.Pass) // now it arrives
	eventually(t, 5*time.Second, "both ways work", func() bool {
		for range 4 {
			if _, err := second.Hold.Renew(within(t, 100*time.Millisecond)); err != nil {
				assert.NotErrorIs(t, err, locker.ErrLost)
				return false
			}
		}
		return true
	})
	again := locksIn(t, admin, "ghost")
	require.Len(t, again, 1)
	assert.NotEqual(t, keys, again, "not under the name that a request was under way for")
	require.NoError(t, second.Hold.Release(t.Context()))
}

// Void keys pile up where a network loses many requests: another session takes
// over, and the old one ends, with all that it left, when its last lock does.
func TestSessionWithManyVoidKeysIsRetired(t *testing.T) {
	t.Parallel()
	s := testserver.StartEtcd(t, 1)
	admin := dial(t, s.Addrs())
	roads := []*testserver.Proxy{testserver.StartProxy(t, s.Nodes[0].Addr()), testserver.StartProxy(t, s.Nodes[0].Addr())}
	b := backend(t, []string{roads[0].Addr(), roads[1].Addr()})
	sessionOf := func(g locker.Grant) clientv3.LeaseID {
		var k etcd.Key
		require.True(t, g.Hold.(interface{ As(any) bool }).As(&k))
		return k.Lease
	}
	const ttl = time.Minute
	held, err := b.Acquire(t.Context(), request("held", ttl, false))
	require.NoError(t, err)
	old := sessionOf(held)
	roads[0].SetRequests(testserver.Hold)
	var lost sync.WaitGroup
	for n := range 160 { // half of them go the way that hangs
		lost.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			g, err := b.Acquire(ctx, request(fmt.Sprint("lost", n), ttl, false))
			if err == nil || g.Hold != nil {
				for {
					if err := g.Hold.Release(t.Context()); err == nil || errors.Is(err, locker.ErrLost) {
						break
					}
				}
			}
		})
	}
	lost.Wait()
	roads[0].SetRequests(testserver.Pass) // what was taken back arrives, in vain
	next, err := b.Acquire(t.Context(), request("next", ttl, false))
	require.NoError(t, err)
	assert.NotEqual(t, old, sessionOf(next), "no new locks on it")
	_, err = held.Hold.Renew(t.Context())
	require.NoError(t, err, "those that it has go on")
	require.NoError(t, held.Hold.Release(t.Context()))
	eventually(t, 10*time.Second, "it is revoked, and nothing of it is left", func() bool {
		ttl, err := admin.TimeToLive(t.Context(), old)
		return err == nil && ttl.TTL <= 0
	})
	for _, k := range all(t, admin) {
		assert.True(t, strings.HasPrefix(k, queue("next")), k)
	}
	require.NoError(t, next.Hold.Release(t.Context()))
}
