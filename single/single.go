package single

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/oneline"
	"github.com/golockers/locker/internal/redisnode"
)

// Options are the settings of a [Backend]. The zero value, or nil, means the
// defaults.
type Options struct {
	// Timeout is how long one request that was sent waits for its answer,
	// whatever the driver's own timeouts are. One that has to wait for others
	// before it that hang can take up to twice as long. 0: 3 s.
	Timeout time.Duration

	_ struct{}
}

// The bounds of a TTL. Shorter than MinTTL, a lease would be spent on the
// network and the scheduler.
const (
	MinTTL = 100 * time.Millisecond
	MaxTTL = 30 * 24 * time.Hour
)

const defaultTimeout = 3 * time.Second

// Backend is one Redis as a lock service. Make it with [New] or [Open].
type Backend struct {
	node    *redisnode.Node
	scripts scripts
	wakes   *redisnode.Wakes
	me      string                // the name of this client among the waiters
	client  redis.UniversalClient // set if Open made it: Close closes it
	prefix  string                // of the names that are locked, as far as the Backend knows
}

var (
	_ driver.Backend  = (*Backend)(nil)
	_ driver.Notifier = (*Backend)(nil)
	_ driver.Prompt   = (*Backend)(nil)
	_ driver.Operator = (*Backend)(nil)
	_ driver.Checker  = (*Backend)(nil)

	_ driver.TokenRaiser = (*hold)(nil)
)

// New returns a Backend on client, which stays its caller's: Close does not
// close it. client may be a *redis.Client (also one from NewFailoverClient) or
// a *redis.ClusterClient. A *redis.Ring is refused: it moves a name to another
// server when one does not answer, and two would hold the lock. So are clients of
// other kinds, which could have one inside. New does no I/O.
//
// A client with hooks (tracing, metrics) is welcome; see "Hooks" above. A program on another driver,
// such as rueidis or redigo, makes a client for its locks alone: redis.NewClient(&redis.Options{Addr:
// addr}).
func New(client redis.UniversalClient, opts *Options) (*Backend, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	switch {
	case o.Timeout < 0 || o.Timeout > 0 && o.Timeout < time.Millisecond:
		return nil, invalid("Options.Timeout is %v: give at least 1ms, or 0 for %v", o.Timeout, defaultTimeout)
	case o.Timeout == 0:
		o.Timeout = defaultTimeout
	}
	node, err := redisnode.New(client, o.Timeout)
	if err != nil {
		return nil, invalid("%w", err)
	}
	node.Spread = true
	var random [4]byte
	_, _ = rand.Read(random[:])
	me := hex.EncodeToString(random[:])
	return &Backend{node: node, scripts: newScripts(node.Publish, me), wakes: node.Wakes(me), me: me}, nil
}

// tokens is the counter of the tokens of a name.
func (b *Backend) tokens(name string) any {
	if b.node.IsCluster() {
		return redisnode.SlotTokensKey(name)
	}
	return tokensKey
}

var tokensKey any = redisnode.TokensKey

// invalid is an error that matches driver.ErrInvalid.
func invalid(format string, args ...any) error {
	return fmt.Errorf("single: %w: %w", driver.ErrInvalid, fmt.Errorf(format, args...))
}

// Guarantees says what one Redis promises: see the package documentation.
func (b *Backend) Guarantees() driver.Guarantees { return Guarantees() }

// Guarantees says what every Backend of this package promises.
func Guarantees() driver.Guarantees {
	return driver.Guarantees{
		Backend:         "single",
		Scope:           driver.ScopeNetwork,
		Exclusion:       driver.ExclusionServer,
		Fencing:         driver.FencingWhileKept,
		Shared:          driver.SharingWithTokens,
		DeadHolder:      driver.RecoveryAfterTTL,
		DeadHolderSlack: 100 * time.Millisecond,
		SurvivesPause:   true,
		MinTTL:          MinTTL,
		MaxTTL:          MaxTTL,
		MaxMinHold:      MaxTTL,
		MinHoldSlack:    time.Second,
		RestsOn: "one Redis server: it keeps running and keeps its data (no restart without it, no fail-over, " +
			"no eviction), " +
			"and its wall clock makes no step; tokens also rise over a loss of data, unless the clock is set " +
			"back below them",
	}
}

// Prompt implements [driver.Prompt]: a request that hangs is left to the
// goroutines of the node, of which there are few.
func (b *Backend) Prompt() bool { return true }

// Notify implements [driver.Notifier].
func (b *Backend) Notify(ctx context.Context, name string, wake func()) (stop func(), err error) {
	stop, err = b.wakes.Subscribe(ctx, name, wake)
	return stop, failure(err)
}

// Close ends the backend's goroutines, and closes the Redis client if Open
// made it. A server that hangs does not hold it up then; with a client of the
// caller's, Close waits for its requests for up to a second, and says so if they
// outlast that.
func (b *Backend) Close() error {
	b.node.End()
	var err error
	if b.client != nil {
		err = b.client.Close() // what hangs in the driver ends with it
	}
	return oneline.Join(err, b.node.Close())
}
