package redisconn

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/golockers/locker/internal/batch"
	"github.com/golockers/locker/internal/clock"
)

// Route is the way to the one server that has a name's keys.
type Route struct {
	Addr string
	lane *lane
}

// routes finds the route of a name.
//
// On a Cluster there is one for each master, so that a shard that hangs holds up no other. Masters that are no
// more keep theirs, which are idle, until the Conn is closed: a Cluster does not change that often.
type routes struct {
	n       *Conn
	one     *Route // the only one, where there is one server for all names
	cluster *redis.ClusterClient
	mapped  atomic.Bool // the client knows the Cluster: finding a master asks nobody

	mu  sync.Mutex
	all map[*redis.Client]*Route // by master
}

// of may have to ask the Cluster for its map first, and then waits no longer than ctx allows.
func (s *routes) of(ctx context.Context, name string) (*Route, *Error) {
	if s.one != nil {
		return s.one, nil
	}
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
	r := s.all[shard]
	if r == nil {
		// The Cluster's client sends the batches, since it follows a key that has moved.
		r = &Route{Addr: shard.Options().Addr, lane: s.n.newLane(s.cluster, shard)}
		s.all[shard] = r
	}
	return r, nil
}

// wait returns when nothing is under way.
func (s *routes) wait() {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.all))
	s.mu.Unlock()
	for _, r := range all {
		r.lane.Wait()
	}
}

// Route returns the way to the server of a name.
func (n *Conn) Route(ctx context.Context, name string) (*Route, error) {
	r, err := n.routes.of(ctx, name)
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
		r, err := n.routes.of(ctx, c.Name)
		if err != nil {
			return c.complete(err, n.addr)
		}
		c.sends()
		c.ended(r.lane.Do(ctx, c))
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
		n.Remap(cause)
		// A slot whose keys are just being moved serves no script until they all have been.
		if !redis.HasErrorPrefix(cause, "TRYAGAIN") || attempt == attempts || clock.Sleep(ctx, remapTime) != nil {
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
	started, err := n.routes.one.lane.Start(c, told)
	if err != nil {
		c.ended(batch.Answer[result]{}, err)
	}
	return started, err == nil
}

// Started is a call that was started, for [Conn.Withdraw].
type Started = batch.Started[*Call, result]

// Withdraw takes a call back that was not sent yet, and returns true: then answered is not called.
func (n *Conn) Withdraw(s Started) bool {
	c, ok := n.routes.one.lane.Withdraw(s)
	if ok {
		c.through()
	}
	return ok
}

// Remap has the Cluster's client read the map again if an error says that it may
// be out of date: the client notices by itself only what it sends itself.
func (n *Conn) Remap(err error) {
	if cluster, ok := n.client.(*redis.ClusterClient); ok && !redis.HasErrorPrefix(err, "NOPERM") {
		cluster.ReloadState(n.ctx)
	}
}

// moved reports that a Cluster's shard sends to another.
func moved(err error) bool {
	_, m := redis.IsMovedError(err)
	_, a := redis.IsAskError(err)
	return m || a
}

// sentinels is what the driver has for the address of a client that asks Sentinels for it.
const sentinels = "FailoverClient"
