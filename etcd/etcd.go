package etcd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker/driver"
)

// Options are the settings of a [Backend]. The zero value, or nil, means the defaults.
type Options struct {
	// Prefix is what all keys begin with: without slashes at its ends, and without /1/lock, which follows it in the
	// keys. Clients contend if, and only if, their prefixes are equal. "": locker.
	Prefix string

	// Timeout is how long one request waits for its answer, to a twentieth of a second. 0: 3 s.
	Timeout time.Duration

	// Members is the number of voting members. It decides only what Guarantees claims about crashes and fail-overs.
	// 0: not known, and nothing is claimed.
	Members int

	// StrictExpiry keeps a lock for one more TTL if its holder's etcd lease ends without a release. Without it, a leader
	// that was paused for longer than a TTL lets the next holder in while the earlier one still believes: until its watch
	// notifies it, or for up to a TTL if it is cut off. With it, two never hold at once, each lock takes one more write,
	// and a dead holder's lock is free up to two TTLs later, or one TTL after somebody first asks for it
	// (RecoveryWatched). Each client decides for its own locks.
	StrictExpiry bool

	// MaxTTL is the longest TTL that may be asked for, and with StrictExpiry how much later a dead holder's lock can be
	// free. 0: 30 s with StrictExpiry, and no bound without.
	MaxTTL time.Duration

	_ struct{}
}

// MinTTL is the shortest TTL that can be asked for: etcd counts in seconds.
const MinTTL = time.Second

const (
	defaultPrefix  = "locker"
	defaultTimeout = 3 * time.Second
	maxPrefixLen   = 256
)

// Backend is an etcd cluster as a lock service. Make it with [New] or [Open].
type Backend struct {
	client  *clientv3.Client
	opts    Options
	keys    keys
	owned   bool   // Open made the client: Close closes it
	id      string // what this backend's keys are known by
	pool    *pool
	watches watcher
	beat    func(*lease) (since time.Time, err error) // (*lease).beat; the search has a service of its own

	ctx     context.Context // ends with Close
	stop    context.CancelFunc
	work    sync.WaitGroup // all sessions
	closing sync.Once

	mu     sync.Mutex
	closed bool
	leases map[int64]*lease // by TTL in seconds: those that new locks are taken on
	inUse  map[string]*hold // by key, and by what was asked
}

var (
	_ driver.Backend     = (*Backend)(nil)
	_ driver.Prompt      = (*Backend)(nil)
	_ driver.Operator    = (*Backend)(nil)
	_ driver.Checker     = (*Backend)(nil)
	_ driver.TokenRaiser = (*hold)(nil)
)

// New returns a Backend on client, which Close does not close. The Backend makes connections of its own with the
// client's settings, one to each of its present endpoints. Give the client DialKeepAliveTime and DialKeepAliveTimeout
// (10 s and 3 s): otherwise only the kernel notices, after minutes, that the network has forgotten a connection. New
// does no I/O.
func New(client *clientv3.Client, opts *Options) (*Backend, error) {
	b := &Backend{
		client: client, leases: map[int64]*lease{}, inUse: map[string]*hold{},
	}
	if opts != nil {
		b.opts = *opts
	}
	switch {
	case client == nil:
		return nil, fmt.Errorf("%w: etcd: the client is nil", driver.ErrInvalid)
	case client.ActiveConnection() == nil:
		return nil, fmt.Errorf("%w: etcd: the client has no connection: make it with clientv3.New",
			driver.ErrInvalid)
	}
	o := &b.opts
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("%w: etcd: %w", driver.ErrInvalid, err)
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if o.Prefix == "" {
		o.Prefix = defaultPrefix
	}
	b.keys = keys{base: o.Prefix + "/1/"}
	b.id = rand.Text() // of A-Z and 2-7, all before the void mark
	var err error
	if b.pool, err = newPool(client, o.Timeout); err != nil {
		return nil, fmt.Errorf("%w: etcd: %w", driver.ErrInvalid, err)
	}
	b.watches, b.beat = &watches{pool: b.pool}, (*lease).beat
	b.ctx, b.stop = context.WithCancel(context.Background())
	return b, nil
}

// check reports what is wrong with the options.
func (o *Options) check() error {
	switch {
	case o.Timeout < 0 || o.Timeout > 0 && o.Timeout < time.Millisecond:
		return fmt.Errorf("Options.Timeout is %v: give at least 1ms, or 0 for %v", o.Timeout, defaultTimeout)
	case o.MaxTTL != 0 && o.MaxTTL < MinTTL:
		return fmt.Errorf("Options.MaxTTL is %v: give at least %v, or 0 for the default", o.MaxTTL, MinTTL)
	case o.Members < 0:
		return fmt.Errorf("Options.Members is %d: give the number of voting members, or 0 if it is not known",
			o.Members)
	case strings.Trim(o.Prefix, "/") != o.Prefix || strings.Contains(o.Prefix, "//"):
		return fmt.Errorf("Options.Prefix is %q: write it without slashes at its ends, and not two in a row",
			o.Prefix)
	case len(o.Prefix) > maxPrefixLen:
		return fmt.Errorf("Options.Prefix has %d bytes: the limit is %d", len(o.Prefix), maxPrefixLen)
	case strings.Contains(o.Prefix+"/", locksPart):
		return fmt.Errorf("Options.Prefix is %q: its keys would stand among the locks of the prefix before %s: "+
			"write it without that", o.Prefix, strings.TrimSuffix(locksPart, "/"))
	}
	return nil
}

// Queue implements [driver.Queue].
func (b *Backend) Queue() bool { return true }

// Guarantees says what this cluster promises: see the package documentation.
func (b *Backend) Guarantees() driver.Guarantees { return Guarantees(&b.opts) }

// Guarantees says what a Backend with these options promises; nil stands for the defaults. Only Members, StrictExpiry
// and MaxTTL matter.
func Guarantees(opts *Options) driver.Guarantees {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.MaxTTL == 0 && o.StrictExpiry {
		o.MaxTTL = driver.DefaultTTL
	}
	g := driver.Guarantees{
		Backend:         "etcd",
		Scope:           driver.ScopeNetwork,
		Exclusion:       driver.ExclusionConsensus,
		Fencing:         driver.FencingUnlessRewind,
		Order:           driver.OrderFIFO,
		MaxMinHold:      366 * 24 * time.Hour,
		Shared:          driver.SharingTokenless,
		DeadHolder:      driver.RecoveryAfterTTL,
		DeadHolderSlack: leaseSlack,
		MinHoldSlack:    leaseSlack,
		SurvivesRestart: true,
		// The members count leases by their monotonic clocks.
		SurvivesClockJump: true,
		MinTTL:            MinTTL,
		MaxTTL:            o.MaxTTL,
		RestsOn: "Raft and members that keep what they have confirmed (fsync); " +
			"clocks of leader and holder that run at the same speed; " +
			"no leader stands still for longer than a TTL and goes on, or StrictExpiry; " +
			"tokens: nobody restores a backup, unless with --bump-revision; TTLs are rounded up to whole seconds " +
			"and to etcd's minimum of 1.5 election timeouts, and start again when the leader changes",
	}
	if o.Members > 0 {
		g.ServerCrashes = (o.Members - 1) / 2
		g.SurvivesFailover = g.ServerCrashes > 0
	}
	if o.StrictExpiry {
		g.SurvivesPause = true
		g.DeadHolder = driver.RecoveryWatched
		g.DeadHolderSlack += time.Duration(wholeSeconds(g.MaxTTL)) * time.Second
		g.RestsOn += "; StrictExpiry keeps the lock of a holder that died for one more TTL from when somebody " +
			"asks for it; DeadHolderSlack has room for the TTL before (MaxTTL)"
	}
	return g
}

// Prompt implements [driver.Prompt]: the driver's requests end with their contexts, and so does the making of a watch.
// On goroutines of their own, each would have to grow a stack: 10 to 14 % of the locks per second.
func (b *Backend) Prompt() bool { return true }

// leaseSlack: up to a second for whole seconds, as much for etcd's own minimum at its default election timeout, half of
// one until the leader looks, and some for the revocation.
const leaseSlack = 3 * time.Second

// Close notifies the holders, revokes the sessions, and with them everything that is still held or waited for. It
// returns within a few seconds even if etcd does not answer: the sessions then end with their TTLs.
func (b *Backend) Close() error {
	b.closing.Do(func() {
		b.mu.Lock()
		b.closed = true
		b.mu.Unlock()
		b.stop()
		b.work.Wait()
		b.uncover()
		_ = b.pool.close()
		if b.owned {
			_ = b.client.Close()
		}
	})
	return nil
}

// failure says in the engine's words why there is no answer. ctx is the caller's.
func (b *Backend) failure(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case b.ctx.Err() != nil, errors.Is(err, driver.ErrClosed):
		return fmt.Errorf("etcd: %w", driver.ErrClosed)
	case errors.Is(err, driver.ErrHeld), errors.Is(err, driver.ErrUnavailable),
		errors.Is(err, driver.ErrRefused):
		return err // all is said
	case ctx.Err() != nil:
		return fmt.Errorf("etcd %s: %w", b.addr(), ctx.Err())
	}
	return explain("etcd "+b.addr(), b.keys.base, err)
}

// addr is where the cluster is, for messages.
func (b *Backend) addr() string { return strings.Join(b.client.Endpoints(), ",") }
