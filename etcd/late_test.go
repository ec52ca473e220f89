package etcd_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
)

// laggard is a network that keeps one transaction on a queue, and delivers it later. A proxy
// is no good for this: behind the request it would deliver that it was cancelled.
type laggard struct {
	queue string
	skip  int // how many come before it
	kept  chan struct{}
	late  func() error
}

func (l *laggard) take(c call) error {
	if c.txn == nil || !strings.Contains(c.txn.String(), l.queue) {
		return c.send()
	}
	if l.skip--; l.skip != -1 {
		return c.send()
	}
	l.late = c.late
	close(l.kept)
	<-c.ctx.Done()
	return c.ctx.Err()
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
			network := laggard{queue: queue("ghost"), skip: c.held, kept: make(chan struct{})}
			b := backend(t, s.Addrs(), onCalls(network.take))
			const ttl = 2 * time.Second
			other := locktest.Acquire(t, b, request("other", ttl, false))
			holder := backend(t, s.Addrs())
			var before driver.Grant
			if c.held > 0 {
				before = locktest.Acquire(t, holder, request("ghost", ttl, false))
			}

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
