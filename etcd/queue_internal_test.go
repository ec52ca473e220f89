package etcd

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/golockers/locker/driver"
)

// A sharer with nobody but sharers before it makes one transaction to get in and one to leave, and so does who
// asks for a free name alone, also beside a void key, which lives as long as a session of somebody's.
func TestFreeNamesTakeOneTransaction(t *testing.T) {
	calmly(t, func(t *testing.T, s *server, c, _ *searchClient) {
		made := 0
		c.onSend(func(req *pb.TxnRequest) error {
			if strings.Contains(req.String(), c.keys.queue("n")) {
				made++
			}
			return nil
		})
		take := func(shared, wait bool) *hold {
			req := asks("o", 0)
			req.Owner, req.Shared, req.Wait = fmt.Sprint(made), shared, wait
			before := made
			h, token := c.acquire(t, req)
			assert.Equal(t, before+1, made)
			assert.Equal(t, shared, token == 0)
			return h
		}
		release := func(h *hold) {
			before := made
			require.NoError(t, h.Release(t.Context(), 0))
			assert.Equal(t, before+1, made)
		}
		for _, wait := range []bool{false, true} {
			one, two := take(true, wait), take(true, !wait)
			release(one)
			release(two)
			release(take(false, wait))
			s.do(func() { s.keys[void(c.keys.queue("n"), "another")] = &mvccpb.KeyValue{CreateRevision: 1} })
		}
	})
}

// A waiter watches the place before its own alone, so that a release wakes nobody else.
func TestReleaseWakesOneWaiterInTheirOrder(t *testing.T) {
	calmly(t, func(t *testing.T, s *server, c, _ *searchClient) {
		const waiters = 8
		last := c.ask(t, "holds", 0)
		var answers []<-chan driver.Grant
		for i := range waiters {
			answers = append(answers, calm(t, s, fmt.Sprint(i), false).askLater(t, fmt.Sprint(i)))
		}
		watched := map[string]bool{}
		s.do(func() {
			for w := range s.watches {
				watched[w.key] = strings.Contains(w.key, locksPart)
			}
			for key := range watched {
				if !watched[key] { // that of a session
					delete(watched, key)
				}
			}
		})
		assert.Len(t, watched, waiters, "each another one")
		for _, answer := range answers {
			require.NoError(t, last.Hold.Release(t.Context(), 0))
			last = <-answer
		}
		require.NoError(t, last.Hold.Release(t.Context(), 0))
	})
}

// Between the reading of the queue and the creation of the watch the lock is released.
func TestReleaseBeforeTheWatchIsThereIsNotMissed(t *testing.T) {
	calmly(t, func(t *testing.T, _ *server, c, waiter *searchClient) {
		held, asked := c.ask(t, "held", 0), 0
		waiter.onRequest(func(r *sent) (fate, error) {
			f, err := r.send()
			if r.putsPlace() {
				if asked++; asked == 2 { // for the last place, having found that the name is held
					assert.NoError(t, held.Hold.Release(t.Context(), 0))
				}
			}
			return f, err
		})
		began := time.Now()
		require.NoError(t, waiter.ask(t, "waits", 0).Hold.Release(t.Context(), 0))
		assert.Less(t, time.Since(began), time.Second)
	})
}

// The time of a sharer that died begins when a writer tries or waits, also if others, released before their MinHold
// was over, keep the name for longer.
func TestADeadSharerIsFoundAmongThoseThatAreKept(t *testing.T) {
	for _, wait := range []bool{false, true} {
		calmly(t, func(t *testing.T, s *server, keeps, writer *searchClient) {
			req := asks("kept", time.Minute)
			req.Shared = true
			h, _ := keeps.acquire(t, req)
			require.NoError(t, h.Release(t.Context(), time.Minute))
			req = asks("dies", 0)
			req.Shared = true
			h, _ = calm(t, s, "C", true).acquire(t, req) // its floor stands behind the other
			s.do(func() { s.endLease(h.l.id) })
			ctx, cancel := context.WithTimeout(t.Context(), searchTTL+time.Second)
			defer cancel()
			req = asks("writer", 0)
			req.Wait = wait
			g, err := writer.Acquire(ctx, req)
			require.NotNil(t, g.Refused)
			assert.Equal(t, wait, err != nil)
			<-ctx.Done()
			assert.Equal(t, 1, s.floors(), "its floor is gone, after its TTL")
		})
	}
}

// Places of the dead that were never the first are not waited out: eight of them, one after the other, cost far more
// than is declared. With StrictExpiry, the one that held is.
func TestDeadWaitersAreNotWaitedOutOneAfterTheOther(t *testing.T) {
	for _, c := range []struct {
		strict  bool
		minHold time.Duration
	}{{true, 0}, {false, time.Second}, {true, time.Second}} {
		for _, asked := range []string{"waits", "comes after", "tries"} {
			calmly(t, func(t *testing.T, _ *server, dying, next *searchClient) {
				dying.opts.StrictExpiry, dying.opts.MaxTTL = c.strict, searchTTL
				declared := searchTTL + dying.Guarantees().DeadHolderSlack + c.minHold
				first := dying.ask(t, "0", c.minHold)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				for i := range 7 {
					req := asks(fmt.Sprint(1+i), c.minHold)
					req.Wait = true
					go func() { _, _ = dying.Acquire(ctx, req) }()
				}
				time.Sleep(time.Second)
				var answer <-chan driver.Grant
				if asked == "waits" {
					answer = next.askLater(t, "next")
				}
				proven, err := first.Hold.Renew(t.Context())
				require.NoError(t, err)
				dying.die()
				began := time.Now()
				switch asked {
				case "comes after":
					time.Sleep(searchTTL + time.Second)
					answer = next.askLater(t, "next")
				case "tries":
					g, err := next.Acquire(t.Context(), asks("next", 0))
					for ; g.Refused != nil; g, err = next.Acquire(t.Context(), asks("next", 0)) {
						time.Sleep(100 * time.Millisecond)
					}
					require.NoError(t, err)
					require.NoError(t, g.Hold.Release(t.Context(), 0))
				}
				if answer != nil {
					require.NoError(t, (<-answer).Hold.Release(t.Context(), 0))
				}
				took := time.Since(began)
				assert.Less(t, took, declared, "%+v, next %s", c, asked)
				if c.strict {
					assert.Greater(t, took+began.Sub(proven.Since), 2*searchTTL, "%+v, next %s", c, asked)
				}
			})
		}
	}
}
