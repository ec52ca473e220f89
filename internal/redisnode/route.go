package redisnode

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// route is the way to the one server that has a name's keys.
type route struct {
	shard *redis.Client // on a Cluster, the master of the name's slot; nil elsewhere
	addr  string
	plain *lane // most requests
	acked *lane // those that wait for replicas, which must not hold up the others' renewals
}

// router finds the route of a name.
type router interface {
	// route may have to ask the Cluster for its map first, and then waits no longer than ctx allows.
	route(ctx context.Context, name string) (*route, *Error)
	// all returns the routes used so far.
	all() []*route
}

// oneRoute is the router where there is one server for all names.
type oneRoute struct{ the *route }

func (r oneRoute) route(context.Context, string) (*route, *Error) { return r.the, nil }
func (r oneRoute) all() []*route                                  { return []*route{r.the} }

func (n *Node) routeTo(client redis.UniversalClient) oneRoute {
	r := &route{addr: n.addr, plain: n.newLane(n.addr, client), acked: n.newLane(n.addr, client)}
	if c, ok := client.(*redis.Client); ok {
		r.plain.direct = directly(c, false)
	}
	return oneRoute{r}
}

// shardRoutes is the router of a Cluster: one route per master, so that a shard that hangs holds up no other. Masters that are
// no more keep theirs, an idle goroutine each, until the Node is closed: a Cluster does not change that often.
type shardRoutes struct {
	n       *Node
	cluster *redis.ClusterClient
	mapped  atomic.Bool // the client knows the Cluster: finding a master asks nobody

	mu     sync.Mutex
	routes map[*redis.Client]*route
}

func (s *shardRoutes) route(ctx context.Context, name string) (*route, *Error) {
	key := LockKey(name)
	if !s.mapped.Load() {
		_, err := inBackground(s.n, ctx, func() (*redis.Client, error) { return s.cluster.MasterForKey(s.n.ctx, key) })
		if err != nil {
			return nil, err
		}
		s.mapped.Store(true)
	}
	shard, err := s.cluster.MasterForKey(s.n.ctx, key)
	if err != nil {
		return nil, failed("", s.n.addr, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.routes[shard]
	if r == nil {
		addr := shard.Options().Addr
		// The Cluster's client sends the flights, since it follows a key that has moved. WAIT has no key by which it could find the
		// shard, so those go to the shard itself.
		r = &route{shard: shard, addr: addr, plain: s.n.newLane(addr, s.cluster), acked: s.n.newLane(addr, shard)}
		r.plain.direct = directly(shard, true)
		s.routes[shard] = r
		if s.n.ctx.Err() != nil { // closed meanwhile: nobody would close it any more
			r.close()
		}
	}
	return r, nil
}

func (s *shardRoutes) all() []*route {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*route, 0, len(s.routes))
	for _, r := range s.routes {
		all = append(all, r)
	}
	return all
}

func (r *route) close() {
	r.plain.close()
	r.acked.close()
}

func (n *Node) newLane(addr string, d driver) *lane {
	return &lane{ctx: n.ctx, addr: addr, timeout: n.opts.Timeout, send: sending(d), work: make(chan struct{}, 1)}
}

// addrOf names what a client talks to, without a password.
func addrOf(client redis.UniversalClient) string {
	switch c := client.(type) {
	case *redis.Client:
		if addr := c.Options().Addr; addr != "FailoverClient" {
			return addr
		}
		return "master of the Sentinels"
	case *redis.ClusterClient:
		return "cluster " + strings.Join(c.Options().Addrs, ",")
	}
	return "server"
}
