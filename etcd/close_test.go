package etcd_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
)

// A revocation lets the next one in when etcd gets it: a holder that is told
// when it is answered, or never if the answer is lost, holds beside the next.
func TestHolderKnowsBeforeCloseRevokesItsSession(t *testing.T) {
	s := parallelScene(t, 1)
	for _, lost := range []bool{false, true} {
		name := map[bool]string{false: "answered", true: "answer lost"}[lost]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var held *locker.Lease
			known := make(chan error, 10) // by the holder, when a revocation is sent
			b := backend(t, s.Addrs(), intercepted(func(ctx context.Context, method string, send func() error) error {
				if !strings.HasSuffix(method, "/LeaseRevoke") {
					return send()
				}
				known <- held.Err()
				err := send()
				if lost {
					<-ctx.Done()
					return ctx.Err()
				}
				return err
			}))
			holder := locktest.Must(locker.New(b, &locker.Options{TTL: time.Minute}))
			held = locktest.Lock(t, holder, name)
			answer := lockLater(t.Context(), client(t, s.Addrs(), time.Minute), name)
			s.queued(t, name, 2)
			require.NoError(t, b.Close())
			got := s.get(t, answer, 30*time.Second)
			require.NotEmpty(t, known, "it was revoked")
			assert.ErrorIs(t, <-known, driver.ErrLost)
			require.ErrorIs(t, held.Err(), driver.ErrLost)
			require.NoError(t, got.lease.Unlock(t.Context()))
			require.ErrorIs(t, held.Unlock(t.Context()), driver.ErrLost)
			_ = holder.Close() // it may say that not all could be released
		})
	}
}

// Somebody deletes the key of a session, whose lease lives on. Revoking it lets the next holders in: all that
// held on it have been notified before, however long that takes.
func TestHoldersKnowBeforeASessionWhoseKeyIsGoneIsRevoked(t *testing.T) {
	s := parallelScene(t, 1)
	const many = 8
	var notified atomic.Int32
	revoked := make(chan int32, 10) // how many had been notified when a revocation was sent
	b := backend(t, s.Addrs(), intercepted(func(_ context.Context, method string, send func() error) error {
		if strings.HasSuffix(method, "/LeaseRevoke") {
			revoked <- notified.Load()
		}
		return send()
	}))
	for i := range many {
		req := request(fmt.Sprint(i), time.Minute, false)
		req.Lost = func() {
			time.Sleep(5 * time.Millisecond)
			notified.Add(1)
		}
		locktest.Acquire(t, b, req)
	}
	s.delete(t, "locker/1/session/", clientv3.WithPrefix())
	assert.EqualValues(t, many, <-revoked)
}

// Close deletes the floor of a holder that it has notified, and only if it knows that the place is gone: a
// revocation that is not answered may not have been carried out.
func TestCloseDeletesTheFloorsOfSessionsThatAreGone(t *testing.T) {
	s := parallelScene(t, 1)
	for _, answered := range []bool{true, false} {
		b := strictBackend(t, s, intercepted(func(ctx context.Context, method string, send func() error) error {
			if !answered && strings.HasSuffix(method, "/LeaseRevoke") {
				<-ctx.Done()
				return ctx.Err()
			}
			return send()
		}))
		locktest.Acquire(t, b, request(fmt.Sprint(answered), 20*time.Second, false))
		require.Len(t, locksIn(t, s.admin, fmt.Sprint(answered)), 2)
		require.NoError(t, b.Close())
	}
	assert.Empty(t, locksIn(t, s.admin, "true"))
	assert.Len(t, locksIn(t, s.admin, "false"), 2, "the place and the floor")
}

// An acquire that is answered while Close revokes the session comes too late.
func TestNothingIsGrantedThatCloseHasRevoked(t *testing.T) {
	s := parallelScene(t, 1)
	for _, wait := range []bool{false, true} {
		revoked, asked := make(chan struct{}), make(chan struct{})
		var once, first sync.Once
		b := backend(t, s.Addrs(), intercepted(func(ctx context.Context, method string, send func() error) error {
			err := send()
			if strings.HasSuffix(method, "/LeaseRevoke") {
				once.Do(func() { close(revoked) })
				<-ctx.Done() // the answer is lost
				return ctx.Err()
			}
			return err
		}), onTxn(func(req *etcdserverpb.TxnRequest, send func() error) error {
			err := send()
			if strings.Contains(req.String(), queue("n")) {
				first.Do(func() { close(asked) })
				<-revoked
			}
			return err
		}))
		closed := make(chan error, 1)
		go func() {
			<-asked
			closed <- b.Close()
		}()
		_, err := locktest.Ask(t.Context(), b, request("n", time.Minute, wait))
		require.ErrorIs(t, err, driver.ErrClosed)
		require.NoError(t, <-closed)
	}
}

// intercepted makes f do a client's requests.
func intercepted(f func(ctx context.Context, method string, send func() error) error) func(*clientv3.Config) {
	return func(c *clientv3.Config) {
		c.DialOptions = append(c.DialOptions, grpc.WithChainUnaryInterceptor(
			func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
				invoker grpc.UnaryInvoker, opts ...grpc.CallOption,
			) error {
				return f(ctx, method, func() error { return invoker(ctx, method, req, reply, cc, opts...) })
			},
		))
	}
}

// After Close, what is undone is known only if etcd has confirmed that the session is gone, or it is known
// that nothing was left.
func TestUndoAfterClose(t *testing.T) {
	s := parallelScene(t, 1)
	for _, mode := range []lab.Mode{lab.Pass, lab.Drop} {
		network := lab.StartProxy(t)
		b := backend(t, s.Addrs(), through(network))
		held := locktest.Acquire(t, b, request("n", time.Minute, false))
		undone := locktest.Acquire(t, b, request("other", time.Minute, false))
		require.NoError(t, undone.Hold.Undo(t.Context()))
		network.Set(mode)
		require.NoError(t, b.Close())
		require.NoError(t, undone.Hold.Undo(t.Context()))
		if mode == lab.Pass {
			require.NoError(t, held.Hold.Undo(t.Context()))
			require.Empty(t, locksIn(t, s.admin, "n"))
		} else {
			require.ErrorIs(t, held.Hold.Undo(t.Context()), driver.ErrClosed)
			require.Len(t, locksIn(t, s.admin, "n"), 1)
		}
	}
}
