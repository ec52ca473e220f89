package single

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/redisconn"
	"github.com/golockers/locker/internal/rediswake"
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
	server *server
	wakes  *rediswake.Wakes
	client redis.UniversalClient // set if Open made it: Close closes it
	prefix string                // of the names that are locked, as far as the Backend knows
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
func New(client redis.UniversalClient, opts *Options) (*Backend, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	switch {
	case client == nil:
		return nil, invalid("the Redis client is nil")
	case o.Timeout < 0 || o.Timeout > 0 && o.Timeout < time.Millisecond:
		return nil, invalid("Options.Timeout is %v: give at least 1ms, or 0 for %v", o.Timeout, defaultTimeout)
	case o.Timeout == 0:
		o.Timeout = defaultTimeout
	}
	conn, err := redisconn.New(client, o.Timeout)
	if err != nil {
		return nil, invalid("%w", err)
	}
	s := newServer(conn)
	return &Backend{server: s, wakes: rediswake.New(conn, s.me)}, nil
}

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
		RestsOn: "one Redis server: it keeps running and keeps its data (no restart without it, no fail-over, " +
			"no eviction), " +
			"and its wall clock makes no step; tokens also rise over a loss of data, unless the clock is set " +
			"back below them",
	}
}

// Acquire implements [driver.Backend].
func (b *Backend) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	h := b.newHold(req)
	since := time.Now()
	answer, err := b.server.acquire(ctx, &h.keys, request{
		ttl:     h.lasts,
		waiting: req.Wait,
		shared:  req.Shared,
		undo:    &h.undo,
	})
	if err != nil {
		if unknown(err) {
			return driver.Grant{Hold: h}, failure(err)
		}
		return driver.Grant{}, failure(err)
	}
	var g driver.Grant
	if h.inFlight = answer.repeated; h.inFlight {
		g.Hold = h // whatever the answer: a copy may still arrive
	}
	switch {
	case answer.granted:
		return driver.Grant{Hold: b.passing(h), Validity: driver.Validity{Since: since, TTL: req.TTL},
			Token: answer.token}, nil
	case answer.foreign:
		return g, b.foreign(req.Name)
	case answer.void:
		return g, fmt.Errorf("redis %s: this attempt was taken back before: %w", b.server.Addr(),
			driver.ErrUnavailable)
	}
	if g.Refused, err = h.refused(answer, req.Wait); g.Refused != nil && g.Hold != nil {
		g.Refused.Undo, g.Hold = h.Undo, nil
	}
	return g, err
}

// foreign is the error for a key that is no lock.
func (b *Backend) foreign(name string) error {
	return fmt.Errorf("redis %s: the key %q is in the way and is no lock: delete it, or use another prefix",
		b.server.Addr(), redisconn.LockKey(name))
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
	b.server.End()
	var err error
	if b.client != nil {
		err = b.client.Close() // what hangs in the driver ends with it
	}
	return errors.Join(err, b.server.Close())
}
