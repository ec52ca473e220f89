package etcd

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"github.com/golockers/locker/driver"
)

// The store was full for the request that makes the lock's copies void, and not any more for what only deletes.
func TestReleaseThatIsKeptWhileItsAnswerIsThatTheStoreIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := calm(t, newServer(1, ""), "A", false)
		send, once, full := c.pool.send, sync.Once{}, false
		c.pool.send = func(ctx context.Context, in line, method string, args any, reply answer, opts ...grpc.CallOption) (f fate, err error) {
			if in == releases && full {
				full = false
				return fate{carriedOut: true}, rpctypes.ErrNoSpace
			}
			f, err = send(ctx, in, method, args, reply, opts...)
			if req, ok := args.(*pb.TxnRequest); ok && putOf(req) != nil {
				once.Do(func() { f.underWay = true })
			}
			return f, err
		}
		h := c.ask(t, "o", time.Minute).Hold
		time.Sleep(5 * time.Second) // the floor is too short, and gets a longer one
		full = true
		require.ErrorIs(t, h.Release(t.Context(), time.Minute), driver.ErrUnavailable)
		assert.NoError(t, h.Release(t.Context(), time.Minute), "it is kept")
	})
}

// A release that is refused is made again for as long as its MinHold lasts, each time with a lease for its floor.
func TestReleasesThatAreRefusedLeaveNoLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(1, "")
		c := calm(t, s, "A", false)
		h := c.ask(t, "o", time.Minute).Hold
		time.Sleep(5 * time.Second)
		s.mu.Lock()
		before := len(s.leases)
		s.mu.Unlock()
		send := c.pool.send
		c.pool.send = func(ctx context.Context, in line, method string, args any, reply answer, opts ...grpc.CallOption) (fate, error) {
			if in == releases {
				return fate{}, rpctypes.ErrPermissionDenied
			}
			return send(ctx, in, method, args, reply, opts...)
		}
		for range 10 {
			require.Error(t, h.Release(t.Context(), time.Minute))
		}
		s.mu.Lock()
		assert.Len(t, s.leases, before)
		s.mu.Unlock()
		c.pool.send = send
		require.NoError(t, h.Release(t.Context(), time.Minute))
	})
}
