package redisconn

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/golockers/locker/internal/batch"
	"github.com/golockers/locker/internal/clock"
)

// Route is the way to the one server that has a name's keys.
type Route struct {
	Shard *redis.Client // on a Cluster, the master of the name's slot; nil elsewhere
	Addr  string
	n     *Conn
	plain *lane // most requests

	mu    sync.Mutex
	acked map[waiting]*lane // those that wait for replicas, which must not hold up the others' renewals
}

// waiting is for how many replicas a call waits, and how long: one WAIT ends a pipeline and speaks for all
// its writes.
type waiting struct {
	replicas int
	most     time.Duration
}

// lane returns the way of a call.
func (r *Route) lane(c *Call) *lane {
	if c.Replicas == 0 {
		return r.plain
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	w := waiting{c.Replicas, c.ReplicaTimeout}
	l := r.acked[w]
	if l == nil {
		// WAIT has no key by which a Cluster's client could find the shard.
		l = r.n.newLane(r.plain.server, r.plain.server)
		l.wait = w.most
		r.acked[w] = l
	}
	return l
}

// wait returns when nothing is under way.
func (r *Route) wait() {
	r.plain.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.acked {
		l.Wait()
	}
}

// router finds the route of a name.
type router interface {
	// route may have to ask the Cluster for its map first, and then waits no longer than ctx allows.
	route(ctx context.Context, name string) (*Route, *Error)
	// all returns the routes used so far.
	all() []*Route
}

// oneRoute is the router where there is one server for all names.
type oneRoute struct{ the *Route }

func (r oneRoute) route(context.Context, string) (*Route, *Error) { return r.the, nil }
func (r oneRoute) all() []*Route                                  { return []*Route{r.the} }

func (n *Conn) routeTo(client *redis.Client) oneRoute {
	bounded := n.within(client)
	r := &Route{n: n, Addr: n.addr, plain: n.newLane(bounded, bounded), acked: map[waiting]*lane{}}
	r.plain.short = shortly(client)
	return oneRoute{r}
}

// shardRoutes is the router of a Cluster: one route per master, so that a shard
// that hangs holds up no other. Masters that are no more keep theirs, which are
// idle, until the Conn is closed: a Cluster does not change that often.
type shardRoutes struct {
	n       *Conn
	cluster *redis.ClusterClient
	mapped  atomic.Bool // the client knows the Cluster: finding a master asks nobody

	mu     sync.Mutex
	routes map[*redis.Client]*Route
}

func (s *shardRoutes) route(ctx context.Context, name string) (*Route, *Error) {
	key := LockKey(name)
	if !s.mapped.Load() {
		_, err := Ask(ctx, s.n, "", func(ctx context.Context) (*redis.Client, error) {
			return s.cluster.MasterForKey(ctx, key)
		})
		if e := new(Error); errors.As(err, &e) {
			return nil, e
		}
		s.mapped.Store(true)
	}
	shard, err := s.cluster.MasterForKey(s.n.ctx, key)
	if err != nil {
		return nil, Failed("", s.n.addr, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.routes[shard]
	if r == nil {
		// The Cluster's client sends the batches, since it follows a key that has moved.
		r = &Route{n: s.n, Shard: shard, Addr: shard.Options().Addr, plain: s.n.newLane(s.cluster, shard),
			acked: map[waiting]*lane{}}
		r.plain.short = shortly(shard)
		s.routes[shard] = r
	}
	return r, nil
}

func (s *shardRoutes) all() []*Route {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*Route, 0, len(s.routes))
	for _, r := range s.routes {
		all = append(all, r)
	}
	return all
}

// Route returns the way to the server of a name.
func (n *Conn) Route(ctx context.Context, name string) (*Route, error) {
	r, err := n.routes.route(ctx, name)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// remapTime is a pause for a Cluster's client to read the Cluster's map again. It
// does so at most every 200 ms.
const remapTime = 50 * time.Millisecond

// Do sends c and returns it once it has a reply. Where the connection goes silent, it
// sends c again, for as long as the timeout of the Conn: then it returns the copy that
// was answered. The caller recycles what Do returns, and must not after an error.
func (n *Conn) Do(ctx context.Context, c *Call) (*Call, error) {
	ctx, limit := clock.Parts(ctx)
	for began := (time.Time{}); ; {
		if limit > 0 && (c.Limit == 0 || limit < c.Limit) {
			c.Limit = limit // a batcher has one timer for all
		}
		err := n.do(ctx, c)
		if err == nil {
			return c, nil
		}
		if began.IsZero() {
			began = c.sent
		}
		if !errors.Is(err, ErrSilent) || ctx.Err() != nil || time.Since(began) >= n.timeout {
			return c, err
		}
		c = c.Again()
	}
}

func (n *Conn) do(ctx context.Context, c *Call) error {
	const attempts = 10
	for attempt := 1; ; attempt++ {
		r, err := n.routes.route(ctx, c.Name)
		if err != nil {
			return c.complete(err, n.addr)
		}
		c.sends()
		c.ended(r.lane(c).Do(ctx, c))
		cause := c.cause
		switch {
		case c.err == nil && cause == nil:
			return nil
		case c.err == nil && n.ctx.Err() != nil:
			c.err = &Error{Err: ErrClosed, Unknown: classify(cause).unknown}
		case c.err == nil && ctx.Err() != nil:
			c.err = &Error{Err: ctx.Err(), Unknown: classify(cause).unknown}
		case c.err != nil && ctx.Err() != nil && !errors.Is(c.err, ErrClosed):
			c.err.Err = ctx.Err() // and not its cause
		}
		if c.err != nil {
			return c.complete(c.err, r.Addr)
		}
		n.Remap(r, cause)
		// A batcher to a shard cannot follow a slot that has moved by itself. And a slot
		// whose keys are just being moved serves no script until they all have been.
		moves := c.Replicas > 0 && Moved(cause) || redis.HasErrorPrefix(cause, "TRYAGAIN")
		if !moves || attempt == attempts || clock.Sleep(ctx, remapTime) != nil {
			return c.complete(n.failed(c.Op, r.Addr, cause), r.Addr)
		}
		c.inFull = false // another server may know it
	}
}

// Start sends c and does not wait. answered is called once, when c is over (see
// [Conn.Result]), from one of the goroutines of the Conn; it must not block. Start
// returns false if the Conn is closed: then c is over, and answered is not called.
// It is not for Clusters.
func (n *Conn) Start(c *Call, answered func(c *Call)) (Started, bool) {
	told := func(a batch.Answer[result], err error) {
		c.ended(a, err)
		answered(c)
	}
	c.sends()
	started, err := n.routes.(oneRoute).the.plain.Start(c, told)
	if err != nil {
		c.ended(batch.Answer[result]{}, err)
	}
	return started, err == nil
}

// Started is a call that was started, for [Conn.Withdraw].
type Started = batch.Started[*Call, result]

// Withdraw takes a call back that was not sent yet, and returns true: then answered is not called.
func (n *Conn) Withdraw(s Started) bool {
	c, ok := n.routes.(oneRoute).the.plain.Withdraw(s)
	if ok {
		c.through()
	}
	return ok
}

// Remap has the Cluster's client read the map again if an error says that it may
// be out of date: the client notices by itself only what it sends itself.
func (n *Conn) Remap(r *Route, err error) {
	if cluster, ok := n.client.(*redis.ClusterClient); ok && r.Shard != nil &&
		!redis.HasErrorPrefix(err, "NOPERM") {
		cluster.ReloadState(n.ctx)
	}
}

// Moved reports that a Cluster's shard sends to another.
func Moved(err error) bool {
	_, m := redis.IsMovedError(err)
	_, a := redis.IsAskError(err)
	return m || a
}

// sentinels is what the driver has for the address of a client that asks Sentinels for it.
const sentinels = "FailoverClient"
