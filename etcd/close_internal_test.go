package etcd

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/golockers/locker/driver"
)

// A revocation lets the next ones in when etcd gets it: a holder that is told when it is answered, or never if the answer
// is lost, holds beside the next. Close makes one, and the end of a session whose key somebody has deleted.
func TestHoldersKnowBeforeTheirSessionIsRevoked(t *testing.T) {
	for _, how := range []string{"Close", "Close, without an answer", "its key is deleted"} {
		calmly(t, func(t *testing.T, s *server, c, other *searchClient) {
			const many = 8
			var told atomic.Int32
			var known []int32 // how many holders were told when a revocation is sent
			c.onRequest(func(r *sent) (fate, error) {
				_, revokes := r.args.(*pb.LeaseRevokeRequest)
				if revokes {
					known = append(known, told.Load())
				}
				f, err := r.send()
				if revokes && how == "Close, without an answer" {
					return fate{carriedOut: true, underWay: true}, &noAnswerError{"it is lost"}
				}
				return f, err
			})
			var holds []*hold
			for i := range many {
				req := asks(fmt.Sprint(i), 0)
				req.Name = strings.Repeat("n", i+1)
				req.Lost = func() {
					time.Sleep(5 * time.Millisecond)
					told.Add(1)
				}
				g, err := c.Acquire(t.Context(), req)
				require.NoError(t, err)
				holds = append(holds, g.Hold.(*hold))
			}
			if how == "its key is deleted" {
				s.delete(holds[0].l.key)
				<-holds[0].l.Gone()
			} else {
				require.NoError(t, c.Close())
			}
			require.NotEmpty(t, known, how)
			assert.EqualValues(t, many, known[0], how)
			next := other.ask(t, "next", 0)
			require.ErrorIs(t, holds[0].Release(t.Context(), 0), driver.ErrLost)
			require.NoError(t, next.Hold.Release(t.Context(), 0))
		})
	}
}

// Close deletes the floor of a holder that it has notified, and only if it knows that the place is gone: a
// revocation that is not answered may not have been carried out. What stands at the key may be another's by now.
func TestCloseDeletesTheFloorsOfSessionsThatAreGone(t *testing.T) {
	for _, isAnswered := range []bool{true, false} {
		calmly(t, func(t *testing.T, s *server, c, other *searchClient) {
			c.opts.StrictExpiry = true
			c.onRequest(func(r *sent) (fate, error) {
				if _, revokes := r.args.(*pb.LeaseRevokeRequest); revokes && !isAnswered {
					<-r.ctx.Done()
					return fate{carriedOut: true, underWay: true}, r.ctx.Err()
				}
				return r.send()
			})
			h := c.ask(t, "o", 0).Hold.(*hold)
			req := asks("another", 0)
			req.Name = "another"
			g, err := c.Acquire(t.Context(), req)
			require.NoError(t, err)
			mine, _ := floorsOf(h.key)
			others, _ := floorsOf(g.Hold.(*hold).key)
			s.do(func() { s.keys[others] = &mvccpb.KeyValue{Key: []byte(others), Value: []byte("others/60/1:")} })
			require.NoError(t, c.Close())
			assert.True(t, s.has(others))
			assert.Equal(t, !isAnswered, s.has(mine))
			assert.Equal(t, !isAnswered, s.has(h.key), "the place")
			if isAnswered {
				began := time.Now()
				require.NoError(t, other.ask(t, "next", 0).Hold.Release(t.Context(), 0))
				assert.Less(t, time.Since(began), time.Second)
			}
		})
	}
}

// The engine waits 1.5 seconds for a Close, which sends a revocation twice if etcd is silent, and nothing after it.
func TestCloseOfStrictLocksTakesNoLongerThanTheEngineWaits(t *testing.T) {
	calmly(t, func(t *testing.T, _ *server, c, _ *searchClient) {
		c.opts.StrictExpiry = true
		c.ask(t, "o", 0)
		time.Sleep(time.Second) // until the session has been looked at, and before it is kept alive
		asked := 0
		c.onRequest(func(r *sent) (fate, error) {
			asked++
			<-r.ctx.Done()
			return fate{carriedOut: true, underWay: true}, r.ctx.Err()
		})
		began := time.Now()
		require.NoError(t, c.Close())
		assert.Less(t, time.Since(began), 1500*time.Millisecond)
		assert.Equal(t, 2, asked)
	})
}

// After Close, what is undone is known only if etcd has confirmed that the session is gone, or it is known that nothing
// was left.
func TestUndoAfterClose(t *testing.T) {
	for _, isAnswered := range []bool{true, false} {
		calmly(t, func(t *testing.T, s *server, c, _ *searchClient) {
			undone := c.ask(t, "undone", 0)
			require.NoError(t, undone.Hold.Undo(t.Context()))
			held := c.ask(t, "held", 0).Hold.(*hold)
			if !isAnswered {
				c.die()
			}
			require.NoError(t, c.Close())
			require.NoError(t, undone.Hold.Undo(t.Context()))
			err := held.Undo(t.Context())
			if isAnswered {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, driver.ErrClosed)
			}
			assert.Equal(t, !isAnswered, s.has(held.key))
		})
	}
}

// The session of a holder ends, who then releases, or whose client is closed, which deletes the floor of StrictExpiry:
// what is left keeps the lock until its MinHold ends.
func TestMinHoldOfALockWhoseSessionEnds(t *testing.T) {
	const minHold = time.Minute
	for _, strict := range []bool{false, true} {
		for how, end := range map[string]func(*testing.T, *searchClient, *hold){
			"Close": func(t *testing.T, c *searchClient, _ *hold) {
				t.Helper()
				require.NoError(t, c.Close())
				assert.Equal(t, 1, c.s.floors())
			},
			"Release": func(t *testing.T, c *searchClient, h *hold) {
				t.Helper()
				c.s.do(func() { c.s.endLease(h.l.id) })
				require.ErrorIs(t, h.Release(t.Context(), minHold), driver.ErrLost)
			},
			"Release after the loss": func(t *testing.T, c *searchClient, h *hold) {
				t.Helper()
				c.s.do(func() { c.s.endLease(h.l.id) })
				<-h.l.Gone()
				require.ErrorIs(t, h.Release(t.Context(), minHold), driver.ErrLost)
			},
		} {
			calmly(t, func(t *testing.T, _ *server, c, other *searchClient) {
				c.opts.StrictExpiry = strict
				began := time.Now()
				end(t, c, c.ask(t, "o", minHold).Hold.(*hold))
				next := other.ask(t, "next", 0)
				assert.GreaterOrEqual(t, time.Since(began), minHold, how)
				assert.LessOrEqual(t, time.Since(began), minHold*101/100+c.Guarantees().MinHoldSlack, how)
				require.NoError(t, next.Hold.Release(t.Context(), 0))
			})
		}
	}
}
