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
