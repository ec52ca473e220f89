package etcd

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
)

// These run on the etcd of the search, with a network in which only happens what they say.

// calm is a client there.
func calm(t *testing.T, s *server, id string, strict bool) *searchClient {
	s.do(func() { s.calm = true })
	c := newSearchClient(s, id, strict)
	c.sure = true
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}

// calmly runs a test there with two clients.
func calmly(t *testing.T, test func(t *testing.T, s *server, c, other *searchClient)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1, "")
		test(t, s, calm(t, s, "A", false), calm(t, s, "B", false))
		s.do(func() { assert.Empty(t, s.wrong) })
	})
}

// sent is a request of a client.
type sent struct {
	ctx   context.Context
	in    line
	args  any
	send  func() (fate, error)
	apply func() // carries a copy out
}

// onRequest has f make a client's requests, until it is undone.
func (c *searchClient) onRequest(f func(r *sent) (fate, error)) (undo func()) {
	var send sender
	c.s.do(func() {
		send, c.sends = c.sends, func(
			ctx context.Context, in line, method string, args any, reply answer, opts ...grpc.CallOption,
		) (fate, error) {
			return f(&sent{
				ctx, in, args,
				func() (fate, error) { return send(ctx, in, method, args, reply, opts...) },
				func() { _ = c.s.apply(method, args, nil) },
			})
		}
	})
	return func() { c.s.do(func() { c.sends = send }) }
}

// onSend has f see a client's transactions before they are sent; an error is their answer.
func (c *searchClient) onSend(f func(req *pb.TxnRequest) error) (undo func()) {
	return c.onRequest(func(r *sent) (fate, error) {
		if req, ok := r.args.(*pb.TxnRequest); ok {
			if err := f(req); err != nil {
				return fate{carriedOut: true, underWay: true}, err
			}
		}
		return r.send()
	})
}

// onAnswer has f see a client's answers before it does; an error is what it sees instead.
func (c *searchClient) onAnswer(f func(in line) error) {
	c.onRequest(func(r *sent) (fate, error) {
		fate, err := r.send()
		if lost := f(r.in); lost != nil {
			fate.carriedOut, err = true, lost
		}
		return fate, err
	})
}

// copied has copies of the transactions that put a client's places be under way for ever.
func (c *searchClient) copied() {
	c.onRequest(func(r *sent) (fate, error) {
		f, err := r.send()
		f.underWay = f.underWay || r.putsPlace()
		return f, err
	})
}

// asks is a request.
func asks(owner string, minHold time.Duration) driver.Request {
	return driver.Request{Name: "n", Owner: owner, TTL: searchTTL, MinHold: minHold, Lost: func() {}}
}

// ask makes a request for a name that is free, or will be.
func (c *searchClient) ask(t *testing.T, owner string, minHold time.Duration) driver.Grant {
	req := asks(owner, minHold)
	req.Wait = true
	g, err := c.Acquire(t.Context(), req)
	require.NoError(t, err, owner)
	return g
}

// askLater is ask for a name that is held: it waits.
func (c *searchClient) askLater(t *testing.T, owner string) <-chan driver.Grant {
	granted := make(chan driver.Grant, 1)
	go func() { granted <- c.ask(t, owner, 0) }()
	time.Sleep(time.Second) // it is in the queue by then
	return granted
}

// delete is what somebody does by hand.
func (s *server) delete(key string) { s.do(func() { s.change(); s.remove(key) }) }

// endUnwatched ends a lease, of which no watch tells.
func (s *server) endUnwatched(lease int64) { s.do(func() { clear(s.watches); s.endLease(lease) }) }

// has reports whether a key is there.
func (s *server) has(key string) (there bool) {
	s.do(func() { there = s.keys[key] != nil })
	return there
}

// floors returns how many there are.
func (s *server) floors() (n int) {
	s.do(func() {
		for key := range s.keys {
			if isFloor([]byte(key)) {
				n++
			}
		}
	})
	return n
}

// granted returns the leases that are there.
func (s *server) granted() (ids []int64) {
	s.do(func() { ids = slices.Sorted(maps.Keys(s.leases)) })
	return ids
}

// putsPlace reports whether a request is to put one.
func (r *sent) putsPlace() bool {
	req, ok := r.args.(*pb.TxnRequest)
	return ok && putOf(req) != nil
}

// putOf returns the place that a transaction puts; nil: it puts none.
func putOf(req *pb.TxnRequest) *pb.PutRequest {
	if n := len(req.Success); n > 0 {
		if put := req.Success[n-1].GetRequestPut(); put != nil && ownerOf(put.Value) != "" && !isFloor(put.Key) {
			return put
		}
	}
	return nil
}

// The floor of a MinHold is there when Acquire returns, or the lock is given back: an answer that took too long leaves
// less of its lease than MinHold.
func TestGrantThatTakesTooLongForItsMinHold(t *testing.T) {
	calmly(t, func(t *testing.T, s *server, c, _ *searchClient) {
		undo := c.onSend(func(req *pb.TxnRequest) error {
			if isFloor(req.Success[0].GetRequestPut().GetKey()) {
				time.Sleep(keepSpare * 11 / 10)
			}
			return nil
		})
		g, err := c.Acquire(t.Context(), asks("o", time.Minute))
		require.ErrorIs(t, err, driver.ErrUnavailable)
		require.ErrorContains(t, err, "the answer took")
		require.NoError(t, g.Hold.Undo(t.Context()))
		assert.Zero(t, s.floors())
		undo()
		require.NoError(t, c.ask(t, "next", time.Minute).Hold.Release(t.Context(), 0))
	})
}

// The watch does not tell that the place before is gone, and one of the same name is there again when the rare look
// comes: it is another one, and behind.
func TestWaiterIsNotMisledByANameThatIsUsedAgain(t *testing.T) {
	calmly(t, func(t *testing.T, s *server, c, waiter *searchClient) {
		held := c.ask(t, "held", 0).Hold.(*hold)
		waits := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), 2*rareLook)
			defer cancel()
			req := asks("waits", 0)
			req.Wait = true
			g, err := waiter.Acquire(ctx, req)
			if err == nil {
				time.AfterFunc(time.Second, func() { assert.NoError(t, g.Hold.Release(t.Context(), 0)) })
			}
			waits <- err
		}()
		time.Sleep(time.Second)
		s.do(func() { clear(s.watches) }) // those that are there do not tell
		require.NoError(t, held.Release(t.Context(), 0))
		again := c.askLater(t, "again")
		require.True(t, s.has(held.key), "the name is used again")
		require.NoError(t, <-waits)
		require.NoError(t, (<-again).Hold.Release(t.Context(), 0))
	})
}

// What an attempt may have left that got no answer was never granted: a Release that is to keep it keeps nobody out.
func TestReleaseOfWhatWasNeverGrantedKeepsNothing(t *testing.T) {
	calmly(t, func(t *testing.T, s *server, c, _ *searchClient) {
		c.onSend(func(req *pb.TxnRequest) error {
			if putOf(req) != nil {
				return &noAnswerError{"it is lost"}
			}
			return nil
		})
		g, err := c.Acquire(t.Context(), asks("lost", time.Minute))
		require.ErrorIs(t, err, driver.ErrUnavailable)
		require.ErrorIs(t, g.Hold.Release(t.Context(), time.Minute), driver.ErrLost)
		assert.Zero(t, s.floors())
	})
}

// lost has somebody delete a client's place by hand, another be granted the lock, and a late copy of the request put
// the place once more, behind that one. It happens before the client puts its floors, or when it has the lock.
func lost(t *testing.T, s *server, strict bool, minHold time.Duration, beforeFloors bool) (driver.Grant, error) {
	c, other := calm(t, s, "A", strict), calm(t, s, "B", false)
	var late *pb.TxnRequest
	arrive := func() {
		s.delete(string(putOf(late).Key))
		other.ask(t, "next", 0)
		require.NoError(t, s.apply("KV/Txn", late, nil))
		require.True(t, s.has(string(putOf(late).Key)))
	}
	c.onSend(func(req *pb.TxnRequest) error {
		if putOf(req) != nil {
			late = req
		}
		if beforeFloors && isFloor(req.Success[0].GetRequestPut().GetKey()) {
			beforeFloors = false
			arrive()
		}
		return nil
	})
	c.copied()
	first := other.ask(t, "first", 0)
	time.AfterFunc(time.Second, func() { assert.NoError(t, first.Hold.Release(t.Context(), 0)) })
	before := beforeFloors
	req := asks("lost", minHold)
	req.Wait = true
	g, err := c.Acquire(t.Context(), req)
	if !before {
		require.NoError(t, err)
		arrive()
	}
	return g, err
}

// A place that a late copy puts behind others is not the one that was first: no floor is put for it.
func TestPlaceThatIsPutAgainGetsNoFloor(t *testing.T) {
	for strict, minHold := range map[bool]time.Duration{true: 0, false: time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(1, "")
			g, err := lost(t, s, strict, minHold, true)
			require.ErrorIs(t, err, driver.ErrUnavailable)
			assert.Zero(t, s.floors())
			require.NoError(t, g.Hold.Undo(t.Context()))
		})
	}
}

// Nor is it the one that a Release ends: the lock was lost, and nothing keeps it.
func TestReleaseThatFindsItsPlacePutAgain(t *testing.T) {
	for _, keep := range []time.Duration{0, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(1, "")
			g, err := lost(t, s, false, keep/60, false)
			require.NoError(t, err)
			h := g.Hold.(*hold)
			keeps, covered := h.keeps, h.covered
			require.ErrorIs(t, h.Release(t.Context(), keep), driver.ErrLost)
			assert.Equal(t, keeps, h.keeps)
			assert.Equal(t, covered, h.covered)
			assert.False(t, s.has(h.key), "what was put again is gone")
		})
	}
}

// A request that is made again finds its key after one with another TTL, which is on another session, was refused.
func TestRequestThatIsMadeAgainAfterOneWithAnotherTTL(t *testing.T) {
	calmly(t, func(t *testing.T, _ *server, c, _ *searchClient) {
		req := asks("o", 0)
		first, err := c.Acquire(t.Context(), req)
		require.NoError(t, err)
		req.TTL *= 2
		other, err := c.Acquire(t.Context(), req)
		require.NoError(t, err)
		require.NotNil(t, other.Refused, "it may not take over what is on another session")
		req.TTL = searchTTL
		again, err := c.Acquire(t.Context(), req)
		require.NoError(t, err)
		require.Nil(t, again.Refused)
		assert.Equal(t, first.Token, again.Token)
	})
}

// A request that is made again, and takes the key anew when the first one has deleted it, keeps it: another of the same
// client gets another one.
func TestKeyOfARequestThatIsMadeAgainWhileItIsReleased(t *testing.T) {
	calmly(t, func(t *testing.T, _ *server, c, _ *searchClient) {
		first, again := c.ask(t, "o", 0), driver.Grant{}
		c.onAnswer(func(in line) error {
			if in == releases && again.Hold == nil {
				again = c.ask(t, "o", 0)
			}
			return nil
		})
		require.NoError(t, first.Hold.Release(t.Context(), 0))
		time.AfterFunc(time.Second, func() { assert.NoError(t, again.Hold.Release(t.Context(), 0)) })
		other := c.ask(t, "other", 0)
		assert.NotEqual(t, again.Hold.(*hold).key, other.Hold.(*hold).key)
		require.NoError(t, other.Hold.Release(t.Context(), 0))
		c.unused()
	})
}

// The session is over, and the client has not noticed, when a Release has the floor last longer and puts a void key: the
// lease that is gone is the session's, so the lock is lost. If it is the floor's, the session lives on, and the Release
// can be made again. No lease is left but that of the floor.
func TestReleaseWithAVoidKeyTellsWhichLeaseIsGone(t *testing.T) {
	for _, ofSession := range []bool{true, false} {
		calmly(t, func(t *testing.T, s *server, c, _ *searchClient) {
			isOver := false
			c.copied()
			c.onRequest(func(r *sent) (fate, error) {
				f, err := r.send()
				if req, ok := r.args.(*pb.LeaseGrantRequest); ok && isOver {
					isOver = false
					s.do(func() { s.endLease(req.ID) })
				}
				return f, err
			})
			h := c.ask(t, "o", time.Minute).Hold.(*hold)
			time.Sleep(5 * time.Second)
			if isOver = !ofSession; ofSession {
				s.endUnwatched(h.l.id)
			}
			err := h.Release(t.Context(), time.Minute)
			if ofSession {
				require.ErrorIs(t, err, driver.ErrLost)
				assert.True(t, h.l.IsGone())
				assert.Len(t, s.granted(), 1)
				require.NoError(t, h.Undo(t.Context()))
				return
			}
			require.ErrorIs(t, err, driver.ErrUnavailable)
			assert.Len(t, s.granted(), 2)
			require.NoError(t, h.Release(t.Context(), time.Minute))
			assert.Equal(t, 1, s.floors())
		})
	}
}

// A copy of such a Release was carried out, and the session is over before the other arrives: the lease that is gone is
// the session's, and the lock is kept, on the lease of the floor.
func TestReleaseThatWasCarriedOutBeforeItsSessionEnds(t *testing.T) {
	calmly(t, func(t *testing.T, s *server, c, other *searchClient) {
		var h *hold
		isCopied := false
		c.copied()
		c.onRequest(func(r *sent) (fate, error) {
			first := r.in == releases && !isCopied
			if first {
				isCopied = true
				r.apply()
				s.endUnwatched(h.l.id)
			}
			f, err := r.send()
			f.carriedOut = f.carriedOut || first
			return f, err
		})
		h = c.ask(t, "o", time.Minute).Hold.(*hold)
		time.Sleep(5 * time.Second)
		told := time.Now()
		require.NoError(t, h.Release(t.Context(), time.Minute))
		next := other.ask(t, "next", 0)
		assert.GreaterOrEqual(t, time.Since(told), time.Minute)
		require.NoError(t, next.Hold.Release(t.Context(), 0))
	})
}

// The answer to a Release that left the floor as it was granted is lost, and the next one finds that too short, since the
// wall clock was set: the lock is kept already.
func TestReleaseOfWhatIsKeptFindsItsFloorTooShort(t *testing.T) {
	calmly(t, func(t *testing.T, s *server, c, _ *searchClient) {
		h, isLost := c.ask(t, "o", time.Minute).Hold.(*hold), false
		c.onAnswer(func(in line) error {
			if in == releases && !isLost {
				isLost = true
				return &noAnswerError{"it is lost"}
			}
			return nil
		})
		require.ErrorIs(t, h.Release(t.Context(), time.Minute), driver.ErrUnavailable)
		time.Sleep(5 * time.Second)
		require.NoError(t, h.Release(t.Context(), time.Minute))
		assert.Equal(t, 1, s.floors())
		assert.Len(t, s.granted(), 2, "the session's and that of the floor")
	})
}

// Several releases at one time that are to keep a lock: it is kept for all of them, and if it was lost, for none. One
// that may not wait for the others does not. The floor lasts for as long as they ask, also after a client stood still.
func TestReleasesAtOneTime(t *testing.T) {
	for _, isLost := range []bool{true, false} {
		for _, minHold := range []time.Duration{time.Minute, time.Second} {
			calmly(t, func(t *testing.T, s *server, c, other *searchClient) {
				h, began := c.ask(t, "o", minHold).Hold.(*hold), time.Now()
				if isLost {
					s.delete(h.key)
				}
				c.onAnswer(func(in line) error {
					if in == releases { // so that all of them are under way
						time.Sleep(time.Second)
					}
					return nil
				})
				const keep, many = 50 * time.Second, 3
				answers := make(chan error, many)
				for range many {
					go func() { answers <- h.Release(t.Context(), keep-time.Since(began)) }()
				}
				synctest.Wait()
				hurried, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				assert.ErrorIs(t, h.Release(hurried, keep), context.DeadlineExceeded)
				for range many {
					if err := <-answers; isLost {
						require.ErrorIs(t, err, driver.ErrLost)
					} else {
						require.NoError(t, err)
					}
				}
				assert.True(t, isLost || len(s.granted()) <= 3, "the session's, that of the floor, and the one before")
				next := other.ask(t, "next", 0)
				assert.True(t, isLost || time.Since(began) >= keep)
				require.NoError(t, next.Hold.Release(t.Context(), 0))
			})
		}
	}
}

// A client stands still before its caller is told. The floor that it puts then, from when MinHold counts, is not undone
// by a late copy of the request that put the first one, whenever that comes, nor ended by a leader whose clock is fast.
func TestLateFloorDoesNotShortenAMinHold(t *testing.T) {
	for _, stoodStill := range []time.Duration{15 * time.Second, 5 * time.Second} {
		calmly(t, func(t *testing.T, s *server, c, other *searchClient) {
			var late *pb.TxnRequest
			c.onSend(func(req *pb.TxnRequest) error {
				switch first := req.Success[0]; {
				case isFloor(first.GetRequestPut().GetKey()) && late == nil:
					late = req
				case first.GetRequestDeleteRange() != nil, isFloor(first.GetRequestPut().GetKey()):
					return s.apply("KV/Txn", late, nil)
				}
				return nil
			})
			const keep = 1000 * time.Second
			h := c.ask(t, "o", keep).Hold.(*hold)
			before := h.keeps
			lasts := func(lease int64) {
				s.do(func() { assert.GreaterOrEqual(t, s.leases[lease].ttl, keep*101/100) })
			}
			lasts(before)
			time.Sleep(stoodStill)
			told := time.Now()
			require.NoError(t, h.Release(t.Context(), keep+driver.Drift(keep)))
			require.NoError(t, s.apply("KV/Txn", late, nil))
			lasts(h.keeps)
			s.do(func() { assert.NotContains(t, s.leases, before, "nothing is on it") })
			next := other.ask(t, "next", 0)
			assert.GreaterOrEqual(t, time.Since(told), keep)
			require.NoError(t, next.Hold.Release(t.Context(), 0))
		})
	}
}

// An Unlock before a MinHold ends leaves the floor that is there since the grant, however long it lasts: no other lease
// has to be granted, which would last longer, and which a full store refuses.
func TestUnlockLeavesTheFloorOfAMinHold(t *testing.T) {
	for _, minHold := range []time.Duration{50 * time.Second, 10 * time.Minute, time.Hour} {
		calmly(t, func(t *testing.T, s *server, c, other *searchClient) {
			locks, err := locker.New(c.Backend, &locker.Options{TTL: searchTTL})
			require.NoError(t, err)
			l, err := locks.Lock(t.Context(), "n", locker.MinHold(minHold))
			require.NoError(t, err)
			began := time.Now()
			time.Sleep(minHold / 10)
			before := s.granted()
			require.NoError(t, l.Unlock(t.Context()))
			assert.Equal(t, before, s.granted())
			next := other.ask(t, "next", 0)
			assert.GreaterOrEqual(t, time.Since(began), minHold)
			assert.LessOrEqual(t, time.Since(began), minHold*101/100+c.Guarantees().MinHoldSlack)
			require.NoError(t, next.Hold.Release(t.Context(), 0))
			require.NoError(t, locks.Close())
		})
	}
}

// A Release that was to have the floor last longer has not come to etcd, and the lock is lost: the floor that is there
// ends before the one that the next Release asks for, and does not keep the lock for it.
func TestReleaseOfALostLockWhoseFloorIsTooShort(t *testing.T) {
	calmly(t, func(t *testing.T, s *server, c, _ *searchClient) {
		h := c.ask(t, "o", time.Minute).Hold.(*hold)
		time.Sleep(5 * time.Second)
		undo := c.onSend(func(*pb.TxnRequest) error { return &noAnswerError{"it is lost"} })
		require.ErrorIs(t, h.Release(t.Context(), time.Minute), driver.ErrUnavailable)
		undo()
		s.delete(h.key)
		require.ErrorIs(t, h.Release(t.Context(), time.Minute), driver.ErrLost)
	})
}

// A copy of a Release that has the floor last longer was carried out before it, and has put the floor on its lease.
func TestReleaseThatIsCarriedOutTwice(t *testing.T) {
	calmly(t, func(t *testing.T, _ *server, c, other *searchClient) {
		h := c.ask(t, "o", time.Minute).Hold
		time.Sleep(5 * time.Second)
		undo := c.onRequest(func(r *sent) (fate, error) {
			r.apply()
			_, err := r.send()
			return fate{carriedOut: true}, err
		})
		told := time.Now()
		require.NoError(t, h.Release(t.Context(), time.Minute))
		undo()
		next := other.ask(t, "next", 0)
		assert.GreaterOrEqual(t, time.Since(told), time.Minute)
		require.NoError(t, next.Hold.Release(t.Context(), 0))
	})
}

// A lock that is kept is so also if a late copy of the request has put its place again, and the Release is made again.
func TestReleaseOfWhatIsKeptFindsItsPlacePutAgain(t *testing.T) {
	calmly(t, func(t *testing.T, s *server, c, other *searchClient) {
		var late *pb.TxnRequest
		c.onSend(func(req *pb.TxnRequest) error {
			if putOf(req) != nil {
				late = req
			}
			return nil
		})
		first := other.ask(t, "first", 0)
		time.AfterFunc(time.Second, func() { assert.NoError(t, first.Hold.Release(t.Context(), 0)) })
		h := c.ask(t, "kept", time.Minute).Hold
		isLost := false
		c.onAnswer(func(in line) error {
			if in == releases && !isLost {
				isLost = true
				return &noAnswerError{"it is lost"}
			}
			return nil
		})
		require.ErrorIs(t, h.Release(t.Context(), 30*time.Second), driver.ErrUnavailable)
		require.NoError(t, s.apply("KV/Txn", late, nil))
		require.True(t, s.has(h.(*hold).key), "it is there again")
		require.NoError(t, h.Release(t.Context(), 30*time.Second))
		assert.Equal(t, 1, s.floors())
		assert.False(t, s.has(h.(*hold).key))
	})
}

// The answers to the grant of a session's lease and to the put of its own key are lost, and each is made again. The
// copy of the grant makes a second lease, which nobody uses. What the copy of the put finds is the session's: with the
// revision of the copy taken for that of the key, each lock was lost at once.
func TestKeyOfASessionThatIsPutTwice(t *testing.T) {
	calmly(t, func(t *testing.T, s *server, c, _ *searchClient) {
		c.onRequest(func(r *sent) (fate, error) {
			req, ok := r.args.(*pb.TxnRequest)
			if !ok || strings.HasPrefix(string(req.Success[0].GetRequestPut().GetKey()), c.keys.base+"session/") {
				r.apply()
			}
			return r.send()
		})
		h := c.ask(t, "o", 0).Hold
		time.Sleep(2 * searchTTL)
		_, err := h.Renew(t.Context())
		require.NoError(t, err)
		require.NoError(t, h.Release(t.Context(), 0))
		require.Len(t, s.granted(), 1, "that of the copy has expired")
	})
}

// Void keys pile up where a network loses many requests: another session takes over, and the old one ends, with all
// that it left, when its last lock does.
func TestSessionWithManyVoidKeysIsRetired(t *testing.T) {
	calmly(t, func(t *testing.T, s *server, c, _ *searchClient) {
		held := c.ask(t, "held", 0).Hold.(*hold)
		undo := c.onSend(func(req *pb.TxnRequest) error {
			if putOf(req) != nil {
				return &noAnswerError{"it is lost"}
			}
			return nil
		})
		for i := range maxVoids {
			g, err := c.Acquire(t.Context(), driver.Request{Name: "m", Owner: fmt.Sprint("lost", i), TTL: searchTTL})
			require.ErrorIs(t, err, driver.ErrUnavailable)
			require.NoError(t, g.Hold.Undo(t.Context()))
		}
		undo()
		g, err := c.Acquire(t.Context(), driver.Request{Name: "m", Owner: "next", TTL: searchTTL, Lost: func() {}})
		require.NoError(t, err)
		assert.NotEqual(t, held.l.id, g.Hold.(*hold).l.id, "no new locks on it")
		_, err = held.Renew(t.Context())
		require.NoError(t, err, "those that it has go on")
		require.Len(t, s.granted(), 2)
		require.NoError(t, held.Release(t.Context(), 0))
		time.Sleep(time.Second)
		assert.Len(t, s.granted(), 1, "it is revoked")
		s.do(func() {
			assert.Len(t, s.keys, 2, "and nothing of it is left: the key of the other session and its lock are there")
		})
		require.NoError(t, g.Hold.Release(t.Context(), 0))
	})
}

// A request that was taken back before it arrived finds nobody: that is not "held".
func TestRequestThatWasTakenBackBefore(t *testing.T) {
	calmly(t, func(t *testing.T, s *server, c, _ *searchClient) {
		s.keys[void(c.keys.queue("n"), "o")] = &mvccpb.KeyValue{CreateRevision: 1}
		for _, wait := range []bool{false, true} {
			g, err := c.Acquire(t.Context(), driver.Request{Name: "n", Owner: "o", TTL: searchTTL, Wait: wait})
			require.ErrorIs(t, err, driver.ErrUnavailable)
			require.NotErrorIs(t, err, driver.ErrHeld)
			assert.Nil(t, g.Refused)
		}
	})
}

// The time of dead sharers begins while another one lives, all at once, when a writer waits behind them or tries. Where
// none ever asks, what they leave does not pile up: one who shares the name with more dead than living ones has their
// time begin, and needs not wait.
func TestDeadSharersAreFoundBesideOneThatLives(t *testing.T) {
	for _, next := range []string{"waits", "tries", "joins"} {
		calmly(t, func(t *testing.T, s *server, dying, living *searchClient) {
			dying.opts.StrictExpiry, living.opts.StrictExpiry = true, true
			share := func(c *searchClient, owner string) *hold {
				req := asks(owner, 0)
				req.Shared = true
				h, _ := c.acquire(t, req)
				return h
			}
			stays := share(living, "stays")
			var dies *hold
			for i := range 3 {
				dies = share(dying, fmt.Sprint("dies", i))
			}
			var writer <-chan driver.Grant
			if next == "waits" {
				writer = living.askLater(t, "writer")
			}
			dying.die()
			s.do(func() { s.endLease(dies.l.id) })
			if next == "joins" {
				time.Sleep(3 * searchTTL)
				require.Equal(t, 4, s.floors(), "nobody has found them")
			}
			began := time.Now()
			switch next {
			case "joins":
				joins := share(living, "joins")
				assert.Less(t, time.Since(began), time.Second)
				time.Sleep(searchTTL + time.Second)
				assert.Equal(t, 2, s.floors(), "after one TTL")
				require.NoError(t, joins.Release(t.Context(), 0))
			case "tries":
				g, err := living.Acquire(t.Context(), asks("tries", 0))
				require.NoError(t, err)
				require.NotNil(t, g.Refused)
			}
			time.Sleep(searchTTL / 4)
			require.NoError(t, stays.Release(t.Context(), 0))
			if writer == nil {
				writer = living.askLater(t, "writer")
			}
			require.NoError(t, (<-writer).Hold.Release(t.Context(), 0))
			took := time.Since(began)
			assert.True(t, next == "joins" || took > searchTTL && took < searchTTL+time.Second, "%s: %v", next, took)
			assert.Zero(t, s.floors())
		})
	}
}
