// Package redisnode takes requests to one Redis and back. Package single is one node, package redlock has several.
//
// Requests of one moment share round trips and scripts (lane.go, script.go), and a request whose connection is silent
// goes on another one (copies.go). What a failure means, and what follows from it, is one table (outcome.go). Of
// locks it knows what stands in their keys, and how one is released and inspected (keys.go, state.go).
package redisnode

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/golockers/locker/internal/clock"
)

// Node is one Redis: a server, what Sentinel says is the master, or a Cluster (where each name lives on one shard).
// Every error of a method is an *Error. All methods may be called from many goroutines at once.
type Node struct {
	Addr    string // in errors and logs; never with a password
	Publish any    // the command that publishes on this kind of server
	// OneSlot: all keys of each request are in one slot, so that a Cluster of one server will do without a
	// ClusterClient. It is set before the first request.
	OneSlot bool
	// Spread: what waits is spread over more and smaller round trips, so that the server works on one while the next is
	// written and the one before is read. It is for a program's only server: of several, each works while the others
	// are written to. It is set before the first request.
	Spread bool

	client                         redis.UniversalClient
	cluster                        *redis.ClusterClient // nil: it is none
	mapped                         atomic.Bool          // the client knows the Cluster: finding a master asks nobody
	timeout                        time.Duration
	release, undo, retain, inspect *Script

	ctx        context.Context // ends with Close
	cancel     context.CancelFunc
	goroutines sync.WaitGroup

	mu     sync.Mutex
	closed bool
	one    *lane                   // the only one, but for a Cluster
	lanes  map[*redis.Client]*lane // by master; those that are none any more keep theirs, which are idle
}

// New returns a Node on a client of the caller's, which Close leaves open. It does no I/O. timeout is the longest
// that a request waits for its answer once it was sent, whatever the driver's own timeouts are and even where the
// caller's context has no deadline.
//
// A *redis.Ring is refused: it moves a name to another server when one stops answering, and then two would hold
// the same lock. So are clients of other kinds, which could have one inside.
func New(client redis.UniversalClient, timeout time.Duration) (*Node, error) {
	n := &Node{client: client, timeout: timeout, Publish: "PUBLISH", lanes: map[*redis.Client]*lane{}}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	switch c := client.(type) {
	case nil:
		return nil, errors.New("redis: the client is nil")
	case *redis.Client:
		if n.Addr = c.Options().Addr; n.Addr == sentinels {
			n.Addr = "master of the Sentinels"
		}
		n.one = n.newLane(c)
		n.lanes[c] = n.one
	case *redis.ClusterClient:
		n.cluster, n.Publish = c, "SPUBLISH" // plain PUBLISH goes to every node of a Cluster
		n.Addr = "cluster " + strings.Join(c.Options().Addrs, ",")
	case *redis.Ring:
		return nil, errors.New("redis: a Ring moves a lock to another server while it is held: use one " +
			"server, Sentinel, a Cluster or redlock")
	default:
		return nil, fmt.Errorf("redis: nobody knows where a %T sends to: give a *redis.Client or a "+
			"*redis.ClusterClient", client)
	}
	n.release = NewScript(2, n.Publish, releaseText)
	n.undo = NewScript(3, n.Publish, undoText)
	n.retain = NewScript(3, n.Publish, retainText)
	n.inspect = NewScript(4, "", inspectText).ForOne().Anywhere()
	return n, nil
}

// sentinels is what the driver has for the address of a client that asks Sentinels for it.
const sentinels = "FailoverClient"

// IsCluster reports that names may be on different servers.
func (n *Node) IsCluster() bool { return n.cluster != nil }

// Client returns what New was given.
func (n *Node) Client() redis.UniversalClient { return n.client }

// Context ends when the Node is closed.
func (n *Node) Context() context.Context { return n.ctx }

// bounded is c with timeouts that are no longer than ours: c itself where that is so, whose hooks a copy has not.
func (n *Node) bounded(c *redis.Client) *redis.Client {
	timeout := n.timeout + 500*time.Millisecond // so that it is ours that is told
	read, write := c.Options().ReadTimeout, c.Options().WriteTimeout
	if read > 0 && read <= timeout && write > 0 && write <= timeout {
		return c
	}
	if read > 0 {
		timeout = min(timeout, read)
	}
	return withTimeout(c, timeout)
}

// withTimeout is a copy of c, on the same connections, with other timeouts. What the driver learns of a server with its
// first connection it writes to what all copies share, each under a lock of its own: not for this one.
func withTimeout(c *redis.Client, timeout time.Duration) *redis.Client {
	c = c.WithTimeout(timeout)
	c.Options().MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return c
}

// freshOptions are those of a client that makes a connection for each request. It is for what a connection is to
// blame for: those of a pool may all have been closed, which over TLS the driver notices only by a request (R26); an
// address may lead elsewhere by now; a function for credentials is asked anew.
func (n *Node) freshOptions(c *redis.Client, most int) *redis.Options {
	o := *c.Options()
	o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled = -1, 1, true
	if o.DialTimeout <= 0 || o.DialTimeout > n.timeout {
		o.DialTimeout = n.timeout
	}
	o.ReadTimeout, o.WriteTimeout = n.timeout, n.timeout
	o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns, o.PipelinePoolSize = most, 0, -1, 0, -1
	// What is the caller's client's own: a second client that registers there fails.
	o.PushNotificationProcessor, o.ClientSideCacheConfig, o.ClientSideCache = nil, nil, nil
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return &o
}

// laneOf is the lane to a master.
func (n *Node) laneOf(master *redis.Client) *lane {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.lanes[master]
	if l == nil {
		l = n.newLane(master)
		l.closed = n.closed
		n.lanes[master] = l
	}
	return l
}

// lane finds the way to the server of a name. It may have to ask a Cluster for its map first, and then waits no
// longer than ctx allows.
func (n *Node) lane(ctx context.Context, name string) (*lane, *Error) {
	if n.one != nil {
		return n.one, nil
	}
	key := LockKey(name)
	if !n.mapped.Load() {
		if _, err := n.masters(ctx, ""); err != nil {
			return nil, err
		}
		n.mapped.Store(true)
	}
	master, err := n.cluster.MasterForKey(n.ctx, key)
	if err != nil {
		return nil, Failed("", n.Addr, err)
	}
	return n.laneOf(master), nil
}

// Do has a sent and returns when it is over, or when ctx ends. Then a must not be used again.
func (n *Node) Do(ctx context.Context, a *Attempt) Outcome {
	var limit time.Duration
	if ctx, limit = clock.Parts(ctx); limit > 0 && (a.Limit == 0 || limit < a.Limit) {
		a.Limit = limit // a flight has one timer for all
	}
	l, err := n.lane(ctx, a.Name)
	if err == nil && ctx.Err() != nil {
		err = &Error{Addr: l.addr, Err: ctx.Err()}
	}
	if err != nil {
		err.Op = a.Op
		return Outcome{Err: err}
	}
	if n.cluster != nil {
		a.slot = slotOf(a.Name)
	}
	a.sends()
	deadline, limited := ctx.Deadline()
	if limited && time.Until(deadline) <= shortTime || !l.alone(a) {
		l.start(a)
	}
	select {
	case <-a.done:
	case <-ctx.Done():
		if sent, ok := l.leave(a); ok {
			return Outcome{Err: &Error{Op: a.Op, Addr: l.addr, Err: ctx.Err(), Unknown: sent}}
		}
		<-a.done // the answer came at the same moment
	}
	if a.Err != nil && n.ctx.Err() != nil {
		a.Err.Err = ErrClosed
	}
	o := a.Outcome
	a.recycle()
	return o
}

// Start has a sent. told is called once, when it is over, and must not block. It is not for Clusters.
func (n *Node) Start(a *Attempt, told func(*Attempt)) {
	a.told = told
	a.sends()
	n.one.start(a)
}

// Withdraw takes an attempt back that was not sent yet, and returns true: then nobody is told.
func (n *Node) Withdraw(a *Attempt) bool {
	n.one.mu.Lock()
	defer n.one.mu.Unlock()
	if a.stage != queued {
		return false
	}
	n.one.drop(a)
	return true
}

// Sent returns from before when an attempt that was started was given to the driver, and for how long its answer is
// to be waited for, which is limit or more: where there is much to do all answers take long, and none is missing
// (R21). The time is zero for one that still waits for its turn. Where all places are taken by flights that get no
// answer it waits for a server that hangs, which is no work of ours: it counts as sent when the last of them was.
func (n *Node) Sent(a *Attempt, limit time.Duration) (time.Time, time.Duration) {
	l := n.one
	l.mu.Lock()
	defer l.mu.Unlock()
	sent := a.sentAt
	if a.stage == queued {
		sent = l.stuckSince()
	}
	return sent, l.patience(limit)
}

// Ask puts a question to the server, or to one master of a Cluster, which changes nothing there that matters: on a
// connection of the pool and, if that is to blame, on a fresh one.
func Ask[T any](ctx context.Context, n *Node, op string, c *redis.Client,
	question func(context.Context, *redis.Client) (T, error),
) (T, error) {
	l := n.laneOf(c)
	answer, err := patiently(ctx, n, op, l.addr, func(ctx context.Context) (answer T, err error) {
		ask := func(c *redis.Client) error {
			return Recovered(func() (err error) {
				answer, err = question(ctx, c)
				return err
			})
		}
		err = ask(l.server)
		for range maxFresh {
			class := Classify(err)
			if ctx.Err() != nil || class != HungUp && (class != Outdated || isBadCredentials(err) && !l.provided) {
				break
			}
			err = ask(l.fresh)
		}
		return answer, err
	})
	if err != nil {
		return answer, err
	}
	return answer, nil
}

// patiently returns what f does, or an error when ctx ends, the Node, or the time for an answer, whatever the driver
// does (R8).
func patiently[T any](
	ctx context.Context, n *Node, op, addr string, f func(context.Context) (T, error),
) (none T, _ *Error) {
	limited, cancel := context.WithTimeout(ctx, n.timeout)
	defer cancel()
	defer context.AfterFunc(n.ctx, cancel)()
	type result struct {
		answer T
		err    error
	}
	done := make(chan result, 1)
	var r result
	if !n.Go(func() {
		answer, err := f(limited)
		done <- result{answer, err}
	}) {
		return none, &Error{Op: op, Addr: addr, Err: ErrClosed}
	}
	select {
	case r = <-done:
	case <-limited.Done():
		select {
		case r = <-done: // the answer came at the same moment
		default:
			r.err = ErrTimeout
		}
	}
	switch {
	case r.err == nil:
		return r.answer, nil
	case n.ctx.Err() != nil:
		r.err = ErrClosed
	case ctx.Err() != nil:
		r.err = ctx.Err()
	default:
		err := Failed(op, addr, r.err)
		err.Unknown = false
		return none, err
	}
	return none, &Error{Op: op, Addr: addr, Err: r.err}
}

// Go runs f in a goroutine that Close waits for; false: the Node is closed.
func (n *Node) Go(f func()) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return false
	}
	n.goroutines.Go(f)
	return true
}

// End is the beginning of Close, which does not wait: it ends all requests with ErrClosed. A caller that closes the
// client as well does that between End and Close: what hangs in the driver ends then.
func (n *Node) End() {
	n.mu.Lock()
	ended := n.closed
	n.closed = true
	lanes := slices.Collect(maps.Values(n.lanes))
	n.mu.Unlock()
	if ended {
		return
	}
	n.cancel()
	for _, l := range lanes {
		l.close()
	}
}

// Close ends all requests with ErrClosed and waits for the goroutines of the Node, but not longer than a second for
// calls of the driver that hang: then the error says so, and they end with the driver's timeouts, or at once when the
// client is closed. Closing again waits again, and changes nothing.
func (n *Node) Close() error {
	n.End()
	ended := make(chan struct{})
	go func() {
		n.goroutines.Wait()
		close(ended)
	}()
	wait := time.NewTimer(time.Second)
	defer wait.Stop()
	select {
	case <-ended:
		return nil
	case <-wait.C:
		return &Error{Op: "close", Addr: n.Addr, Err: errors.New("the server does not answer a request that " +
			"was under way; its goroutine ends with the driver's timeout")}
	}
}
