package etcd

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/golockers/locker/driver"
)

// These run on the etcd of the search, with a network in which only happens what they say.

// calm is a client there.
func calm(t *testing.T, s *server, id string, strict bool) *searchClient {
	s.calm = true
	c := newSearchClient(s, id, strict)
	c.sure = true
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}

// onSend has f see a client's transactions before they are sent; an error is their answer.
func (c *searchClient) onSend(f func(req *pb.TxnRequest) error) {
	c.pool.send = func(
		ctx context.Context, in line, method string, args any, reply answer, opts ...grpc.CallOption,
	) (fate, error) {
		if req, ok := args.(*pb.TxnRequest); ok {
			if err := f(req); err != nil {
				return fate{carriedOut: true, underWay: true}, err
			}
		}
		return c.send(ctx, in, method, args, reply, opts...)
	}
}

// ask makes a request for a name that is free, or will be.
func (c *searchClient) ask(t *testing.T, owner string, minHold time.Duration) driver.Grant {
	g, err := c.Acquire(t.Context(), driver.Request{
		Name: "n", Owner: owner, TTL: searchTTL, MinHold: minHold, Wait: true, Lost: func() {},
	})
	require.NoError(t, err, owner)
	return g
}

// floors returns how many there are.
func (s *server) floors() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.keys {
		if isFloor([]byte(key)) {
			n++
		}
	}
	return n
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

// What an attempt may have left that got no answer was never granted: a Release that is to keep it keeps nobody out.
func TestReleaseOfWhatWasNeverGrantedKeepsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1, "")
		c := calm(t, s, "A", false)
		c.onSend(func(req *pb.TxnRequest) error {
			if putOf(req) != nil {
				return &noAnswerError{"it is lost"}
			}
			return nil
		})
		g, err := c.Acquire(t.Context(), driver.Request{Name: "n", Owner: "lost", TTL: searchTTL, MinHold: time.Minute})
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
		s.mu.Lock()
		s.change()
		s.remove(string(putOf(late).Key))
		s.mu.Unlock()
		other.ask(t, "next", 0)
		require.NoError(t, s.apply("KV/Txn", late, nil))
		s.mu.Lock()
		defer s.mu.Unlock()
		require.NotNil(t, s.keys[string(putOf(late).Key)])
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
	first := other.ask(t, "first", 0)
	time.AfterFunc(time.Second, func() { assert.NoError(t, first.Hold.Release(t.Context(), 0)) })
	before := beforeFloors
	g, err := c.Acquire(t.Context(), driver.Request{
		Name: "n", Owner: "lost", TTL: searchTTL, MinHold: minHold, Wait: true, Lost: func() {},
	})
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
			assert.Empty(t, selected(s.keys, h.key, ""), "what was put again is gone")
		})
	}
}

// A request that is made again finds its key after one with another TTL, which is on another session, was refused.
func TestRequestThatIsMadeAgainAfterOneWithAnotherTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := calm(t, newServer(1, ""), "A", false)
		req := driver.Request{Name: "n", Owner: "o", TTL: searchTTL, Lost: func() {}}
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
	synctest.Test(t, func(t *testing.T) {
		c := calm(t, newServer(1, ""), "A", false)
		first, again := c.ask(t, "o", 0), driver.Grant{}
		c.pool.send = func(
			ctx context.Context, in line, method string, args any, reply answer, opts ...grpc.CallOption,
		) (fate, error) {
			f, err := c.send(ctx, in, method, args, reply, opts...)
			if in == releases && again.Hold == nil {
				again = c.ask(t, "o", 0)
			}
			return f, err
		}
		require.NoError(t, first.Hold.Release(t.Context(), 0))
		time.AfterFunc(time.Second, func() { assert.NoError(t, again.Hold.Release(t.Context(), 0)) })
		other := c.ask(t, "other", 0)
		assert.NotEqual(t, again.Hold.(*hold).key, other.Hold.(*hold).key)
		require.NoError(t, other.Hold.Release(t.Context(), 0))
		c.unused()
		assert.Empty(t, c.s.wrong)
	})
}

// A Release that is to have the floor last longer, and has not done so yet, hides that from no other: the lock is kept
// for as long as either asks.
func TestReleaseBesideOneThatHasTheFloorLastLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1, "")
		c, other := calm(t, s, "A", false), calm(t, s, "B", false)
		const keep = time.Minute
		first, beside, began := c.ask(t, "o", time.Second).Hold, true, time.Now()
		c.onSend(func(req *pb.TxnRequest) error {
			if len(req.Success) > 0 && isFloor(req.Success[0].GetRequestPut().GetKey()) && beside {
				beside = false
				require.NoError(t, first.Release(t.Context(), keep-time.Since(began)))
			}
			return nil
		})
		require.NoError(t, first.Release(t.Context(), keep))
		require.False(t, beside)
		s.mu.Lock()
		assert.Len(t, s.leases, 3, "those of the session, of the floor as it was granted, and as it is")
		s.mu.Unlock()
		next := other.ask(t, "next", 0)
		assert.GreaterOrEqual(t, time.Since(began), keep)
		require.NoError(t, next.Hold.Release(t.Context(), 0))
	})
}

// A lock that is kept is so also if a late copy of the request has put its place again, and the Release is made again.
func TestReleaseOfWhatIsKeptFindsItsPlacePutAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1, "")
		c, other := calm(t, s, "A", false), calm(t, s, "B", false)
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
		send := c.pool.send
		c.pool.send = func(
			ctx context.Context, in line, method string, args any, reply answer, opts ...grpc.CallOption,
		) (fate, error) {
			f, err := send(ctx, in, method, args, reply, opts...)
			if in == releases {
				c.pool.send = send
				return fate{carriedOut: true}, &noAnswerError{"it is lost"}
			}
			return f, err
		}
		require.ErrorIs(t, h.Release(t.Context(), 30*time.Second), driver.ErrUnavailable)
		require.NoError(t, s.apply("KV/Txn", late, nil))
		require.Len(t, selected(s.keys, h.(*hold).key, ""), 1, "it is there again")
		require.NoError(t, h.Release(t.Context(), 30*time.Second))
		assert.Equal(t, 1, s.floors())
		assert.Empty(t, selected(s.keys, h.(*hold).key, ""))
	})
}
