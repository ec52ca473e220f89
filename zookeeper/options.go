package zookeeper

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/golockers/locker/driver"
)

// Options are the settings of a [Backend]. The zero value, or nil, means the
// defaults.
type Options struct {
	// SessionTimeout is the timeout of the session, and so the TTL of every
	// lock, and the longest that can be asked for. The servers have bounds of
	// their own: two and twenty ticks if they are not told otherwise. What
	// they shorten is refused when it is asked for. It is to be at least three
	// of the servers' ticks (tickTime). 0: driver.DefaultTTL, 30 s.
	SessionTimeout time.Duration

	// Prefix is the node under which all locks are, as in "/app/locks". It is
	// created where it is missing. "": "/locker".
	Prefix string

	// Auth are credentials, given to the service on each connection. With them, only
	// clients with the same credentials have rights on the nodes; without, everybody has.
	Auth []Auth

	// TLS, if it is not nil, is how connections are secured. A ServerName that
	// is empty stands for the host of each server.
	TLS *tls.Config

	// Dial makes connections. nil: TCP.
	Dial func(ctx context.Context, address string) (net.Conn, error)

	// Logger is told, at debug level, what the driver says, and warned of
	// heartbeats that are refused and of what cannot be cleaned up. nil: nothing
	// is logged.
	Logger *slog.Logger

	_ struct{}
}

// Auth is a credential.
type Auth struct {
	Scheme      string // "digest", mostly
	Credentials string // for digest: "user:password"
}

// String returns the scheme: credentials are not for messages.
func (a Auth) String() string { return a.Scheme + ":***" }

// GoString is String.
func (a Auth) GoString() string { return a.String() }

// DefaultPrefix is the node under which locks are if nothing else is said.
const DefaultPrefix = "/locker"

// The bounds of Options.SessionTimeout. ZooKeeper counts milliseconds in 31 bits.
const (
	MinSessionTimeout = 100 * time.Millisecond
	MaxSessionTimeout = 24 * 24 * time.Hour
)

func (o *Options) check() error {
	if o.SessionTimeout == 0 {
		o.SessionTimeout = driver.DefaultTTL
	}
	if o.Prefix == "" {
		o.Prefix = DefaultPrefix
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Auth = slices.Clone(o.Auth)
	switch {
	case o.SessionTimeout < MinSessionTimeout || o.SessionTimeout > MaxSessionTimeout:
		return invalid("a session timeout (TTL) of %v is not between %v and %v",
			o.SessionTimeout, MinSessionTimeout, MaxSessionTimeout)
	case o.SessionTimeout%time.Millisecond != 0:
		return invalid("a session timeout (TTL) of %v: give whole milliseconds", o.SessionTimeout)
	}
	for i, a := range o.Auth {
		if a.Scheme == "" || a.Credentials == "" || a.Scheme == "digest" && !strings.Contains(a.Credentials, ":") {
			return invalid("credential %d is not complete: for digest, give user:password (in a URL "+
				"auth=digest:user:password, with what is special in it escaped)", i+1)
		}
	}
	if err := checkPrefix(o.Prefix); err != nil {
		return invalid("prefix %q: %w", o.Prefix, err)
	}
	return nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: zookeeper: %w", driver.ErrInvalid, fmt.Errorf(format, args...))
}

// driverLog passes on what the driver says. It never says credentials.
type driverLog struct{ logger *slog.Logger }

func (l driverLog) Printf(format string, args ...any) {
	l.logger.Debug("zookeeper: driver: " + fmt.Sprintf(format, args...))
}
