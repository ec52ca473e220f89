// Package redisconn takes the requests of many callers to one Redis and back:
// requests of one moment share round trips and scripts, errors are classified,
// and a caller returns when its context ends, whatever the driver does.
//
// Nothing in it knows what a lock is, but for the keys of one (keys.go) and the
// two scripts that package single and package redlock have in common
// (shared.go).
package redisconn

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Conn is the way to one Redis: a server, what Sentinel says is the master, or a
// Cluster (where each name lives on one shard). All methods may be called from
// many goroutines at once.
//
// Every error of a method is an *Error and says whether the request was certainly
// not executed or may have been. The driver is told to send each request once
// (MaxRetries is for others), so that a refusal cannot hide a grant whose reply
// was lost.
type Conn struct {
	// OneSlot: all keys of each request are in one slot, so that a Cluster of one server will do without a
	// ClusterClient. It is set before the first request.
	OneSlot bool

	client  redis.UniversalClient
	timeout time.Duration
	addr    string
	publish any // the command that publishes on this kind of server
	routes  routes

	ctx        context.Context // ends with Close
	cancel     context.CancelCauseFunc
	background chan struct{} // slots for questions outside of batchers

	mu         sync.Mutex
	closed     bool
	goroutines sync.WaitGroup // started with Go; the lanes have their own
}

// New returns a Conn on a client of the caller's, which Close leaves open. It
// does no I/O. timeout is the longest that one request waits for its answer once
// it was sent, whatever the driver's own timeouts are and even where the caller's
// context has no deadline.
//
// It is a *redis.Client or a *redis.ClusterClient. A *redis.Ring is refused: it moves a name to
// another server when one stops answering, and then two would hold the same lock. So are clients
// of other kinds, which could have one inside.
func New(client redis.UniversalClient, timeout time.Duration) (*Conn, error) {
	n := &Conn{client: client, timeout: timeout, publish: "PUBLISH",
		background: make(chan struct{}, maxBackground)}
	n.ctx, n.cancel = context.WithCancelCause(context.Background())
	switch c := client.(type) {
	case nil:
		return nil, errors.New("redis: the client is nil")
	case *redis.Client:
		if n.addr = c.Options().Addr; n.addr == sentinels {
			n.addr = "master of the Sentinels"
		}
		bounded := n.within(c)
		n.routes.one = &Route{Addr: n.addr, lane: n.newLane(bounded, bounded)}
		n.routes.all = map[*redis.Client]*Route{c: n.routes.one}
	case *redis.ClusterClient:
		n.addr = "cluster " + strings.Join(c.Options().Addrs, ",")
		n.publish = "SPUBLISH" // plain PUBLISH goes to every node of a Cluster
		n.routes.n, n.routes.cluster, n.routes.all = n, c, map[*redis.Client]*Route{}
	case *redis.Ring:
		return nil, errors.New("redis: a Ring moves a lock to another server while it is held: use one " +
			"server, Sentinel, a Cluster or redlock")
	default:
		return nil, fmt.Errorf("redis: nobody knows where a %T sends to: give a *redis.Client or a "+
			"*redis.ClusterClient", client)
	}
	return n, nil
}

// Addr names the server in errors and logs; never with a password.
func (n *Conn) Addr() string { return n.addr }

// Client returns what New was given.
func (n *Conn) Client() redis.UniversalClient { return n.client }

// Bounded is the client for questions, and requests end soon after the timeout of the Conn, whatever the
// driver's own timeouts are: one that hangs keeps its place no longer. It is not for Clusters.
func (n *Conn) Bounded() *redis.Client { return n.within(n.client.(*redis.Client)) }

// within is c with timeouts that are no longer than ours, whoever made it (R22): c itself where that is so, whose
// hooks a copy has not.
func (n *Conn) within(c *redis.Client) *redis.Client {
	timeout := n.timeout + 500*time.Millisecond // so that it is ours that is told
	read, write := c.Options().ReadTimeout, c.Options().WriteTimeout
	if read > 0 && read <= timeout && write > 0 && write <= timeout {
		return c
	}
	if read > 0 {
		timeout = min(timeout, read)
	}
	return c.WithTimeout(timeout)
}

// Context ends when the Conn is closed.
func (n *Conn) Context() context.Context { return n.ctx }

// Timeout is what New was given.
func (n *Conn) Timeout() time.Duration { return n.timeout }

// IsCluster reports that the keys of different names may be on different servers:
// then calls for several locks are not made into one.
func (n *Conn) IsCluster() bool {
	_, ok := n.client.(*redis.ClusterClient)
	return ok
}

// maxBackground bounds the questions outside of batchers that a server that hangs can hold.
const maxBackground = 4

// Ask calls question in a goroutine of its own, so that the caller returns when
// its ctx ends or the Conn's timeout has passed, whatever the driver does (R8).
// question changes nothing on the server that matters if it is still on its way
// then.
func Ask[T any](ctx context.Context, n *Conn, op string,
	question func(ctx context.Context) (T, error)) (T, error) {
	waiting, cancel := context.WithTimeout(ctx, n.timeout)
	defer cancel()
	fail := func(err error) (none T, _ error) { return none, &Error{Op: op, Addr: n.addr, Err: err} }
	type result struct {
		answer T
		err    error
	}
	done := make(chan result, 1)
	if !n.Go(func() {
		select {
		case n.background <- struct{}{}:
		case <-waiting.Done():
			return
		}
		var r result
		retry := NewRetry(n.client)
		for ok := true; ok; ok = retry.Worth(r.err) {
			r.err = Recovered(func() (err error) {
				r.answer, err = question(n.ctx)
				return err
			})
		}
		<-n.background
		done <- r
	}) {
		return fail(ErrClosed)
	}

	select {
	case r := <-done:
		if r.err == nil {
			return r.answer, nil
		}
		if n.ctx.Err() != nil {
			return fail(ErrClosed)
		}
		err := Failed(op, n.addr, r.err)
		err.Unknown = false
		return r.answer, err
	case <-n.ctx.Done():
		return fail(ErrClosed)
	case <-waiting.Done():
		if err := ctx.Err(); err != nil {
			return fail(err)
		}
		return fail(ErrTimeout)
	}
}

// Go runs f in a goroutine that Close waits for; false: the Conn is closed.
func (n *Conn) Go(f func()) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return false
	}
	n.goroutines.Go(f)
	return true
}

// closeWait is how long Close waits for calls of the driver that were under way.
const closeWait = time.Second

// End is the beginning of Close, which does not wait: it ends all requests with
// ErrClosed. A caller that closes the client as well does that between End and Close:
// callers then have ErrClosed by then and not what becomes of a closed client,
// and calls of the driver that hang end.
func (n *Conn) End() {
	n.mu.Lock()
	ended := n.closed
	n.closed = true
	n.mu.Unlock()
	if ended {
		return
	}
	n.cancel(ErrClosed)
}

// Close ends all requests with ErrClosed and waits for the goroutines of the
// Conn, but not longer than a second for calls of the driver that hang: then the
// error says so, and they end with the driver's timeouts, or at once when the
// client is closed. It leaves the client open. Closing again waits again, and
// changes nothing.
func (n *Conn) Close() error {
	n.End()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		n.goroutines.Wait()
		n.routes.wait()
	}()
	wait := time.NewTimer(closeWait)
	defer wait.Stop()
	select {
	case <-ended:
		return nil
	case <-wait.C:
		return &Error{Op: "close", Addr: n.addr, Err: errors.New("the server does not answer a request that " +
			"was under way; its goroutine ends with the driver's timeout")}
	}
}

// Unexpected is the error for a reply that a script does not give.
func (n *Conn) Unexpected(op string, reply any) *Error {
	return Failed(op, n.addr, unexpected(reply))
}
