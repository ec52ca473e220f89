package redisnode

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Options tunes a Node. The zero value, and a nil *Options, are the defaults.
type Options struct {
	// Timeout is the longest that one request waits for its answer, whatever the driver's own time-outs are
	// and even where the caller's context has no deadline. Zero means 10 s. A context that ends earlier wins.
	Timeout time.Duration

	// KeepTokens keeps the fencing counter of a name for ever, instead of a day after its last use. Tokens then rise
	// whatever the server's clock does, for as long as the server keeps its data; each name ever locked leaves a key.
	KeepTokens bool

	// Linger is how long the subscription of a name outlives its last waiter, and the subscription connection its last
	// name, so that a busy name does not subscribe anew at every hand-over. Zero means 1 s.
	Linger time.Duration

	// Silence is how long the subscription connection may be silent before it is asked for a sign of life, and again how long it may take to
	// give one. Zero means 5 s: those who wait are to cost the server next to nothing.
	Silence time.Duration

	_ struct{}
}

// Node is one Redis as a lock sees it: a server, what Sentinel says is the master, or a Cluster (where each lock lives on one shard).
// All methods may be called from many goroutines at once; the requests of concurrent callers share round trips.
//
// A method that returns a nil error has a definite answer of the server. Every error is an *Error and says whether the request was
// certainly not executed or may have been. The driver is told to send each request once (MaxRetries is for others), so that
// a refusal cannot hide a grant whose reply was lost.
type Node struct {
	client  redis.UniversalClient
	opts    Options
	addr    string
	scripts scripts
	publish any // the command that publishes on this kind of server
	mint    any // the script's word for a token
	routes  router
	wakes   *wakes

	ctx        context.Context // ends with Close
	cancel     context.CancelFunc
	background chan struct{} // slots for questions outside of lanes

	mu         sync.Mutex
	closed     bool
	goroutines sync.WaitGroup // started with start; the lanes have their own
}

const (
	defaultTimeout = 10 * time.Second
	defaultLinger  = time.Second
	defaultSilence = 5 * time.Second
)

// New returns a Node on a client of the caller's, which Close leaves open. It does no I/O.
//
// A *redis.Ring is refused: it moves a name to another server when one stops answering, and then two would hold the same lock.
// Hooks that are added to the client later may not see all requests.
func New(client redis.UniversalClient, opts *Options) (*Node, error) {
	n := &Node{client: client, addr: addrOf(client), scripts: newScripts(), publish: "PUBLISH", mint: "expire"}
	if opts != nil {
		n.opts = *opts
	}
	if n.opts.Timeout <= 0 {
		n.opts.Timeout = defaultTimeout
	}
	if n.opts.Linger <= 0 {
		n.opts.Linger = defaultLinger
	}
	if n.opts.Silence <= 0 {
		n.opts.Silence = defaultSilence
	}
	if n.opts.KeepTokens {
		n.mint = "keep"
	}
	n.background = make(chan struct{}, maxBackground)
	n.ctx, n.cancel = context.WithCancel(context.Background())
	switch c := client.(type) {
	case nil:
		return nil, errors.New("redis: the client is nil")
	case *redis.Ring:
		return nil, errors.New("redis: a Ring moves a lock to another server while it is held: use one server, Sentinel, a Cluster or redlock")
	case *redis.ClusterClient:
		// Plain PUBLISH goes to every node of a Cluster. Before 7.0 there is nothing else, and the script falls back to it.
		n.publish = "SPUBLISH"
		n.routes = &shardRoutes{n: n, cluster: c, routes: map[*redis.Client]*route{}}
	default:
		// Not on a Cluster, where a script's keys have to be in one slot.
		n.scripts.acquire.bundle, n.scripts.acquire.plain = bundleAcquires, 3
		n.scripts.release.bundle, n.scripts.release.plain = bundleReleases, 2
		n.routes = n.routeTo(client)
	}
	n.wakes = newWakes(n)
	return n, nil
}

// Addr names the server in errors and logs; never with a password.
func (n *Node) Addr() string { return n.addr }
