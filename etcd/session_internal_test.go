package etcd

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/golockers/locker/driver"
)

// Etcd falls silent just when a session is over, so that its lease is not revoked: whoever asked on it is told in
// time, and gets what may be left.
func TestAttemptDoesNotWaitForARevocationThatIsNotAnswered(t *testing.T) {
	calmly(t, func(t *testing.T, s *server, c, waiter *searchClient) {
		held := c.ask(t, "held", 0)
		waiter.opts.Timeout = time.Second
		waiter.onRequest(func(r *sent) (fate, error) {
			if _, revokes := r.args.(*pb.LeaseRevokeRequest); revokes {
				<-r.ctx.Done()
				return fate{carriedOut: true, underWay: true}, r.ctx.Err()
			}
			return r.send()
		})
		time.AfterFunc(3*time.Second, func() {
			s.do(func() {
				for l := range waiter.sessions {
					s.change()
					s.remove(l.key)
				}
			})
		})
		began, req := time.Now(), asks("waits", 0)
		req.Wait = true
		left, err := waiter.Acquire(t.Context(), req)
		require.ErrorIs(t, err, driver.ErrUnavailable)
		assert.Less(t, time.Since(began), 5*time.Second)
		require.NotNil(t, left.Hold, "what may be left has to be told")
		require.True(t, s.has(left.Hold.(*hold).key))
		require.NoError(t, left.Hold.Undo(t.Context()))
		assert.False(t, s.has(left.Hold.(*hold).key))
		require.NoError(t, held.Hold.Release(t.Context(), 0))
	})
}

// A watch tells at once that a session is gone, also while the look that came before it gets no answer.
func TestLossIsToldWhileALookHangs(t *testing.T) {
	calmly(t, func(t *testing.T, s *server, c, _ *searchClient) {
		var looks atomic.Int32
		c.onRequest(func(r *sent) (fate, error) {
			if req, ok := r.args.(*pb.TxnRequest); ok && strings.Contains(string(req.Success[0].GetRequestRange().GetKey()), "/session/") {
				looks.Add(1)
				<-r.ctx.Done()
			}
			return r.send()
		})
		req, lost := asks("o", 0), make(chan struct{})
		req.Lost = sync.OnceFunc(func() { close(lost) })
		g, err := c.Acquire(t.Context(), req)
		require.NoError(t, err)
		time.Sleep(time.Second)
		require.NotZero(t, looks.Load())
		began := time.Now()
		s.do(func() { s.endLease(g.Hold.(*hold).l.id) })
		<-lost
		assert.Less(t, time.Since(began), 100*time.Millisecond, "the holder is notified before the look has ended")
	})
}

// The session is gone, and its keep-alive has not found out yet.
func TestLockOnASessionThatIsGoneIsTakenOnAnother(t *testing.T) {
	for _, wait := range []bool{false, true} {
		calmly(t, func(t *testing.T, s *server, c, _ *searchClient) {
			g := c.ask(t, "first", 0)
			s.endUnwatched(g.Hold.(*hold).l.id)
			req := asks("next", 0)
			req.Wait = wait
			next, err := c.Acquire(t.Context(), req)
			require.NoError(t, err)
			require.ErrorIs(t, g.Hold.Release(t.Context(), 0), driver.ErrLost)
			require.NoError(t, next.Hold.Release(t.Context(), 0))
		})
	}
}

// A session that could not be opened leaves nothing (R25).
func TestASessionThatNeverOpenedIsForgotten(t *testing.T) {
	calmly(t, func(t *testing.T, _ *server, c, _ *searchClient) {
		c.onRequest(func(r *sent) (fate, error) {
			if _, grants := r.args.(*pb.LeaseGrantRequest); grants {
				return fate{}, errors.New("it has too much to do")
			}
			return r.send()
		})
		for seconds := range 3 {
			req := asks("o", 0)
			req.TTL = time.Duration(2+seconds) * time.Second
			_, err := c.Acquire(t.Context(), req)
			require.ErrorContains(t, err, "too much to do")
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		assert.Empty(t, c.leases)
	})
}

func TestSessionsAreSharedAndEndWithTheBackend(t *testing.T) {
	calmly(t, func(t *testing.T, s *server, c, _ *searchClient) {
		for i, ttl := range []time.Duration{1500 * time.Millisecond, 2 * time.Second, 20 * time.Second, 20 * time.Second} {
			req := asks("o", 0)
			req.Name, req.TTL, req.Wait = fmt.Sprint(i), ttl, i%2 == 0
			g, err := c.Acquire(t.Context(), req)
			require.NoError(t, err)
			require.GreaterOrEqual(t, g.Validity.TTL, ttl)
			require.NoError(t, g.Hold.Release(t.Context(), 0))
		}
		assert.Len(t, s.granted(), 2, "one for 2 s, one for 20 s")
		require.NoError(t, c.Close())
		assert.Empty(t, s.granted())
		_, err := c.Acquire(t.Context(), asks("o", 0))
		require.ErrorIs(t, err, driver.ErrClosed)
	})
}
