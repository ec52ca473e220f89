package redlock

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/oneline"
	"github.com/golockers/locker/internal/redisnode"
)

// Options are the settings of a [Backend]. The zero value, or nil, means the
// defaults. Those marked so have to be equal in all clients of the same nodes.
type Options struct {
	// NodeTimeout is how long an acquire waits for one node, whatever the
	// driver's own timeouts are: short against the TTL, long against a round
	// trip. 0: a twentieth of the TTL, but no more than 50 ms.
	NodeTimeout time.Duration

	// MaxTTL is the longest TTL that any client uses, and with it how long a
	// node that was restarted without its data is kept out of votes. A lease
	// with a longer TTL is refused. Equal in all clients. 0: 30 s
	// (driver.DefaultTTL), or 30 days with NoRestartGuard.
	MaxTTL time.Duration

	// NoRestartGuard lets a node vote that was just restarted. It may have
	// forgotten a lock that is still held, and then two can hold it. It is for
	// those who delay restarts themselves. Equal in all clients.
	NoRestartGuard bool

	// Fencing gives each lease a fencing token, at the price of one more round
	// trip to the nodes. Equal in all clients. A name's counters expire a day after
	// their last use, and tokens rise after that because the nodes' clocks have.
	Fencing bool

	// Logger is told of nodes that are kept out of votes, and warned, once for each, of
	// nodes that refuse this client, and if another client seems to have a longer
	// MaxTTL. nil: nothing is logged.
	Logger *slog.Logger

	_ struct{}
}

// The bounds of a TTL. MaxTTL is the bound of Options.MaxTTL.
const (
	MinTTL = 100 * time.Millisecond
	MaxTTL = 30 * 24 * time.Hour
)

const (
	maxNodeTimeout = 50 * time.Millisecond
	minNodeTimeout = 5 * time.Millisecond
	// requestTimeout ends a request to a node that nobody waits for any more.
	requestTimeout = 2 * time.Second
)

// Backend is a quorum of independent Redis servers as a lock service. Make it
// with [New] or [Open].
type Backend struct {
	opts    Options
	nodes   []*node
	quorum  int
	rounds  chan struct{}   // see maxRounds
	owed    atomic.Int64    // holds that a node has not released: see maxOwed
	clients []*redis.Client // those that Open made: Close closes them
	prefix  string          // of the names that are locked, as far as the Backend knows
	opening atomic.Bool     // Open will say which nodes refuse

	ctx    context.Context // ends with the Backend
	end    context.CancelFunc
	once   sync.Once
	err    error
	warned atomic.Bool    // that clients differ in MaxTTL
	wg     sync.WaitGroup // every goroutine of the Backend

	mu     sync.Mutex
	runs   map[string]int // which node has which run_id
	closed bool
}

var (
	_ driver.Backend  = (*Backend)(nil)
	_ driver.Notifier = (*Backend)(nil)
	_ driver.Prompt   = (*Backend)(nil)
	_ driver.Operator = (*Backend)(nil)
	_ driver.Checker  = (*Backend)(nil)
)

// New returns a Backend on nodes, which stay their caller's: Close does not
// close them. Each is the client of one Redis server of its own (TLS, ACL
// users and unix sockets are the client's matter); there is no replication
// between the servers. An odd number of nodes is advised, and one works.
//
// New does no I/O. Two clients that lead to the same server are found out when
// they are first used. One of them never votes, since one vote would count twice;
// and from the moment that it is found out every Acquire fails, until that client
// leads elsewhere. (The others may grant a lock before that.)
func New(nodes []*redis.Client, opts *Options) (*Backend, error) {
	b := &Backend{quorum: len(nodes)/2 + 1, rounds: make(chan struct{}, maxRounds), runs: map[string]int{}}
	b.ctx, b.end = context.WithCancel(context.Background())
	if opts != nil {
		b.opts = *opts
	}
	if err := b.opts.complete(); err != nil {
		return nil, err
	}
	if len(nodes) == 0 {
		return nil, invalid("no nodes: give the clients of an odd number of independent servers")
	}
	seen := map[*redis.Client]int{}
	for i, c := range nodes {
		if c == nil {
			return nil, invalid("node %d is nil", i+1)
		}
		if j, ok := seen[c]; ok {
			return nil, invalid("nodes %d and %d are the same client: one vote would count twice", j+1, i+1)
		}
		seen[c] = i
		if c.Options().Addr == "FailoverClient" {
			return nil, invalid("node %d follows Sentinel's fail-overs, which lose votes: give the client of one "+
				"server", i+1)
		}
		n, err := redisnode.New(c, requestTimeout)
		if err != nil {
			return nil, invalid("node %d: %w", i+1, err)
		}
		n.OneSlot = true
		b.nodes = append(b.nodes, newNode(b, i, n))
	}
	return b, nil
}

// complete checks the options and fills in the defaults.
func (o *Options) complete() error {
	switch {
	case o.NodeTimeout < 0 || o.NodeTimeout > 0 && o.NodeTimeout < time.Millisecond:
		return invalid("Options.NodeTimeout is %v: give at least 1ms, or 0 for the default", o.NodeTimeout)
	case o.MaxTTL < 0 || o.MaxTTL > 0 && o.MaxTTL < MinTTL || o.MaxTTL > MaxTTL:
		return invalid("Options.MaxTTL is %v: give one from %v to %v, or 0 for the default", o.MaxTTL, MinTTL,
			MaxTTL)
	}
	if o.MaxTTL == 0 {
		o.MaxTTL = driver.DefaultTTL
		if o.NoRestartGuard {
			o.MaxTTL = MaxTTL
		}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// nodeTimeout is how long one node may take to answer.
func (b *Backend) nodeTimeout(ttl time.Duration) time.Duration {
	if b.opts.NodeTimeout > 0 {
		return b.opts.NodeTimeout
	}
	return min(max(ttl/20, minNodeTimeout), maxNodeTimeout)
}

// patience is how long renewals and releases wait for a quorum: nothing is
// gained by giving up early on what has to be done anyway.
func (b *Backend) patience(ttl time.Duration) time.Duration {
	return max(4*b.nodeTimeout(ttl), time.Second)
}

// Guarantees says what this quorum promises: see the package documentation.
func (b *Backend) Guarantees() driver.Guarantees { return Guarantees(len(b.nodes), &b.opts) }

// Prompt implements [driver.Prompt]: nodes are asked without waiting, and the caller that waits for the
// answers looks at its ctx.
func (b *Backend) Prompt() bool { return true }

// Guarantees says what a Backend on so many nodes, with these options,
// promises. Options that New would refuse promise nothing in particular.
func Guarantees(nodes int, opts *Options) driver.Guarantees {
	var o Options
	if opts != nil {
		o = *opts
	}
	_ = o.complete()
	g := driver.Guarantees{
		Backend:         "redlock",
		Scope:           driver.ScopeNetwork,
		Exclusion:       driver.ExclusionQuorum,
		DeadHolder:      driver.RecoveryAfterTTL,
		DeadHolderSlack: 100 * time.Millisecond,
		ServerCrashes:   nodes - (nodes/2 + 1),
		SurvivesPause:   true,
		MaxMinHold:      o.MaxTTL,
		MinHoldSlack:    time.Second,
		MinTTL:          MinTTL,
		MaxTTL:          o.MaxTTL,
		RestsOn: fmt.Sprintf("a majority of %d independent Redis servers; clocks that differ in speed by less "+
			"than 1 %% and are not stepped on more servers than the lock has to spare; "+
			"no eviction and no FLUSHALL", nodes),
	}
	if o.NoRestartGuard {
		g.RestsOn += "; no server that lost its data is restarted sooner than the longest TTL: the restart " +
			"guard is off"
	} else {
		g.RestsOn += fmt.Sprintf("; servers restarted without their data are kept out for %v, where all "+
			"clients have this MaxTTL", o.MaxTTL)
	}
	if o.Fencing {
		g.Fencing = driver.FencingWhileKept
		g.RestsOn += "; tokens rise whatever the clocks do while counters survive on a majority"
	} else {
		g.RestsOn += "; there are no tokens, which cost one more round trip, unless all clients set Options.Fencing " +
			"(fencing=on in the URL)"
	}
	return g
}

// Close ends the backend's goroutines, and closes the Redis clients if Open
// made them: nodes that hang do not hold it up then, beyond the moment that
// releases under way are given. With clients of the caller's, Close waits for
// requests that hang for up to a second, and says so if they outlast that. Keys
// that could not be released yet end with their TTL.
func (b *Backend) Close() error {
	b.once.Do(func() {
		b.mu.Lock()
		b.closed = true
		b.mu.Unlock()
		b.settle()
		b.end()
		for _, n := range b.nodes {
			n.End()
		}
		ended := make([]error, len(b.nodes))
		for _, c := range b.clients {
			ended = append(ended, c.Close()) // what hangs in the driver ends with it
		}
		for i, n := range b.nodes {
			b.wg.Go(func() { ended[i] = n.Close() })
		}
		b.wg.Wait()
		b.err = oneline.Join(ended...)
	})
	return b.err
}

// settle waits a moment for the releases that are under way.
func (b *Backend) settle() {
	for deadline := time.Now().Add(settleTime); time.Now().Before(deadline); time.Sleep(settlePause) {
		if !slices.ContainsFunc(b.nodes, func(n *node) bool { return n.inFlight.Load() > 0 }) {
			return
		}
	}
}

const (
	settlePause = 5 * time.Millisecond
	settleTime  = 300 * time.Millisecond
)

// start runs f in a goroutine that Close waits for.
func (b *Backend) start(f func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.wg.Go(f)
	return true
}

func (b *Backend) isClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

// invalid is fmt.Errorf for errors that match driver.ErrInvalid.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: redlock: %w", driver.ErrInvalid, fmt.Errorf(format, args...))
}
