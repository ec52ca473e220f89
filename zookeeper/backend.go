package zookeeper

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/golockers/locker/driver"
)

// Backend is a ZooKeeper service as a lock service. Make it with [New] or [Open].
type Backend struct {
	servers []string
	prefix  string // begins with a slash and does not end with one
	acl     []zk.ACL
	opts    Options
	slots   chan struct{} // bounds the requests in flight

	running sync.WaitGroup // the sessions' goroutines; added to with mu held

	mu     sync.Mutex
	closed bool
	live   []*session // the oldest first; some may be over

	hanging sync.Map // by server: an *atomic.Int32 of calls of Options.Dial that go on although their time is over
}

// maxRequests bounds the requests in flight of all sessions together: at the servers,
// heartbeats wait behind no more than that (R21).
const maxRequests = 512

var (
	_ driver.Backend  = (*Backend)(nil)
	_ driver.Operator = (*Backend)(nil)
	_ driver.Checker  = (*Backend)(nil)
)

// New returns a Backend on the servers, each a host or host:port; nil opts
// mean the defaults. It does no I/O: the first request connects. The backend has
// a connection and a session of its own, since its leases live and end with the
// session: several of them for many locks, and none after it has been idle for a
// session's timeout.
func New(servers []string, opts *Options) (*Backend, error) {
	b := &Backend{slots: make(chan struct{}, maxRequests)}
	if opts != nil {
		b.opts = *opts
	}
	if err := b.opts.check(); err != nil {
		return nil, err
	}
	var err error
	if b.servers, err = checkServers(servers); err != nil {
		return nil, invalid("%w", err)
	}
	b.prefix = b.opts.Prefix
	b.acl = zk.WorldACL(zk.PermAll)
	if len(b.opts.Auth) > 0 {
		b.acl = zk.AuthACL(zk.PermAll)
	}
	return b, nil
}

// Close ends the sessions, and with them everything that the backend still has in
// the service. If the service cannot be reached, the sessions end there by their
// timeout. Close returns within a second, unless Options.Dial goes on when its
// context has ended.
func (b *Backend) Close() error {
	b.mu.Lock()
	b.closed = true
	live := slices.Clone(b.live)
	b.mu.Unlock()
	for _, s := range live {
		s.End(driver.ErrClosed)
	}
	b.running.Wait()
	return nil
}

// String returns the addresses of the servers, for messages.
func (b *Backend) String() string { return strings.Join(b.servers, ",") }

// Queue implements [driver.Queue].
func (b *Backend) Queue() bool { return true }

// Guarantees implements [driver.Backend].
func (b *Backend) Guarantees() driver.Guarantees { return Guarantees(len(b.servers), &b.opts) }

// Guarantees returns what a Backend on so many servers promises with these options;
// nil opts mean the defaults. For options that New refuses, the result means nothing.
func Guarantees(servers int, opts *Options) driver.Guarantees {
	var o Options
	if opts != nil {
		o = *opts
	}
	_ = o.check()
	timeout := o.SessionTimeout
	return driver.Guarantees{
		Backend:           "zookeeper",
		Scope:             driver.ScopeNetwork,
		Exclusion:         driver.ExclusionConsensus,
		Fencing:           driver.FencingUnlessRewind,
		Order:             driver.OrderFIFO,
		Shared:            driver.SharingTokenless,
		DeadHolder:        driver.RecoveryAfterTTL,
		DeadHolderSlack:   deadHolderSlack + timeout, // whatever the TTL, the session lasts for its timeout
		ServerCrashes:     max(servers-1, 0) / 2,
		SurvivesRestart:   true,
		SurvivesFailover:  servers > 2,
		SurvivesClockJump: true,
		SurvivesPause:     true,
		MaxTTL:            timeout,
		RestsOn: fmt.Sprintf("the servers named being all those that vote; "+
			"their transaction logs, synced to disk as is the default; "+
			"a session timeout of at least three ticks of the servers; a tick of at most 2 s for DeadHolderSlack, "+
			"which is %v for a TTL of %v and greater for shorter ones, "+
			"since each lock lasts as long as the session of %[2]v; "+
			"clocks that run at the same speed to within 1 %%", deadHolderSlack, timeout),
	}
}

// Prompt implements [driver.Prompt]: see ask.
func (b *Backend) Prompt() bool { return true }

// deadHolderSlack is how much longer than its timeout a leader may keep a session: it
// looks for expired sessions once a tick, and hears of a follower's clients every half.
const deadHolderSlack = 4 * time.Second

// dir returns the node of a lock.
func (b *Backend) dir(name string) string { return b.prefix + "/" + encode(name) }

// patience is how long a server gets to answer a greeting or a heartbeat
// before another one is tried.
func (b *Backend) patience() time.Duration {
	return min(max(b.opts.SessionTimeout/4, 100*time.Millisecond), 5*time.Second)
}
