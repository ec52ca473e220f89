package redisnode

import (
	"context"
	"errors"
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

	_ struct{}
}

// Node is one Redis as a lock sees it: a server, what Sentinel says is the master, or a Cluster (where each lock lives on one shard).
// All methods may be called from many goroutines at once; the requests of concurrent callers share round trips.
//
// A method that returns a nil error has a definite answer of the server. Every error is an *Error and says whether the request was
// certainly not executed or may have been. Each request is sent once: the driver is told not to repeat it,
// so that a refusal cannot hide a grant whose reply was lost.
type Node struct {
	client redis.UniversalClient
}

// New returns a Node on a client of the caller's, which Close leaves open. It does no I/O.
// A *redis.Ring is refused: it moves a name to another server when one stops answering, and then two would hold the same lock.
func New(client redis.UniversalClient, opts *Options) (*Node, error) {
	return nil, errors.ErrUnsupported
}

// Addr names the server in errors and logs; never with a password.
func (n *Node) Addr() string { return "" }

// Close ends all requests and subscriptions with ErrClosed and waits for the goroutines of the Node, but not longer than a driver
// that hangs deserves (then the error says so). The client stays open.
func (n *Node) Close() error { return errors.ErrUnsupported }

// Request asks for a lock.
type Request struct {
	Name  string        // any bytes
	Value string        // the owner: unique per attempt (R10), compared whole (R9), readable by Inspect
	TTL   time.Duration // at least 1 ms; rounded up to whole milliseconds

	// Token asks for a fencing token: max(stored counter + 1, server time in µs).
	Token bool

	// Waiting says that the caller has subscribed and will wait if the lock is held: the release will then publish. Whoever waits
	// must ask again no later than Answer.Left + 1 s, for the note of its waiting ends too.
	Waiting bool

	// Replicas > 0: after a grant, wait until so many replicas have the lock, at most ReplicaTimeout (whole milliseconds, at least 1,
	// well below the driver's ReadTimeout), and report in Answer.Replicas how many do. Too few is not an error here: it is for the
	// caller to release the lock.
	Replicas       int
	ReplicaTimeout time.Duration

	_ struct{}
}

// Answer is what the server said to a Request.
type Answer struct {
	Granted bool
	Again   bool   // granted before to this very value: the same token, the TTL started anew
	Token   uint64 // if asked for and granted

	// Left is the rest of the holder's TTL where the lock was not granted; negative: the key never expires (nobody's lock, but set by hand).
	Left time.Duration

	// Foreign: the key is there but is no lock (not a string). It stays in the way until somebody deletes it.
	Foreign bool

	// Void: not granted since TakeBack had already made this value void; Left is zero.
	Void bool

	Replicas int // acknowledged, where Request.Replicas > 0 and it was granted
}

// Acquire asks once for the lock and never waits for a holder. Asking again with the same value is answered with the same grant (R11).
//
// After an error whose Unknown is set the lock may be the caller's, now or a little later: take it back with TakeBack.
func (n *Node) Acquire(ctx context.Context, r Request) (Answer, error) {
	return Answer{}, errors.ErrUnsupported
}

// State is whose a lock's key was when a request found it.
type State int

const (
	Gone   State = iota // there was no key
	Mine                // it had the caller's value, and was renewed or removed
	Theirs              // it had another value, and was left alone
)

// Renew sets the TTL anew, counted from now, if the lock has the value: Mine. Otherwise it changes nothing.
func (n *Node) Renew(ctx context.Context, name, value string, ttl time.Duration) (State, error) {
	return Gone, errors.ErrUnsupported
}

// Release removes the lock if it has the value (Mine), and wakes those who wait for it. Otherwise it changes nothing.
func (n *Node) Release(ctx context.Context, name, value string) (State, error) {
	return Gone, errors.ErrUnsupported
}

// TakeBack is Release after an Acquire whose outcome is unknown (R7). Where it finds nothing of the value's, it leaves a note
// for as long as void says, so that an Acquire with this value that is still under way is refused when it arrives.
// So once TakeBack has returned nil, the value holds nothing and (within void) never will.
func (n *Node) TakeBack(ctx context.Context, name, value string, void time.Duration) (State, error) {
	return Gone, errors.ErrUnsupported
}

// Status is what Inspect saw.
type Status struct {
	Held    bool
	Value   string        // the holder's whole owner value
	Left    time.Duration // the rest of its TTL; negative: it never expires
	Foreign bool          // the key is there but is no lock (not a string)
	Token   uint64        // the highest token handed out for this name and still remembered; 0: none
	Waited  bool          // somebody waits, and will be woken by the release
}

// Inspect reads the state of a lock from the master, in one round trip, and changes nothing.
func (n *Node) Inspect(ctx context.Context, name string) (Status, error) {
	return Status{}, errors.ErrUnsupported
}

// Subscribe has wake called whenever the lock may have become free: after its release, and after the subscription connection was lost
// and made again, since a message may have been lost meanwhile. It returns once the server has confirmed the subscription, so that
// a release from then on is certain to wake (as long as someone's Request said Waiting), or when ctx ends.
//
// wake is called from one goroutine for all names of the Node, without a lock held, perhaps when there is no reason, and once more
// while cancel runs; it must not block. cancel may be called more than once, never blocks, and after it has returned wake is not called any more,
// unless that call had begun already.
//
// A wake-up is a help, not a promise (R14): the key can expire without a message, and the connection can be broken without anybody
// having noticed yet. Poll as well.
func (n *Node) Subscribe(ctx context.Context, name string, wake func()) (cancel func(), err error) {
	return nil, errors.ErrUnsupported
}

// Server describes one master behind a Node. Fields that the server does not tell (or not to this user) are zero.
type Server struct {
	Addr      string
	Product   string // "redis", "valkey", …
	Version   string
	RunID     string
	Role      string // "master"; anything else cannot keep locks
	Uptime    time.Duration
	Replicas  int    // connected now
	MaxMemory int64  // bytes; 0: no limit
	Eviction  string // maxmemory-policy
}

// MayEvict reports that the server may throw lock keys away to make room: any policy but noeviction may, since all locks have a TTL.
func (s Server) MayEvict() bool { return false }

// Servers asks each master about itself (on a Cluster all of them, otherwise one). A user who may not run INFO gets an
// *Error with Refused set: the lock works all the same.
func (n *Node) Servers(ctx context.Context) ([]Server, error) {
	return nil, errors.ErrUnsupported
}
