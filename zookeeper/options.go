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
	// lock, and the longest that can be requested. The servers have bounds of
	// their own, by default two and twenty ticks. If they shorten it, longer
	// TTLs are refused. It should be at least three of the servers' ticks
	// (tickTime). 0: driver.DefaultTTL, 30 s.
	SessionTimeout time.Duration

	// Prefix is the node under which all locks are kept, as in "/app/locks". It is
	// created if it does not exist. "": "/locker".
	Prefix string

	// Auth are credentials, given to the service on each connection. With them, only
	// clients with the same credentials have rights on the nodes; without, everybody has.
	Auth []Auth

	// TLS secures the connections; nil: they are not secured. An empty ServerName
	// stands for the host of each server.
	TLS *tls.Config

	// Dial makes connections. It should return when its context ends: Close waits for it. nil: TCP.
	Dial func(ctx context.Context, address string) (net.Conn, error)

	// Logger gets the driver's messages at debug level, and a warning when
	// heartbeats are refused. nil: nothing is logged.
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

// DefaultPrefix is the node under which locks are kept by default.
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
