package locker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/oneline"
)

// Open makes a Client for the lock service at rawURL. Each backend has Openers for its own URLs, and
// package backends opens the URLs of all backends:
//
//	client, err := locker.Open(ctx, os.Getenv("LOCKER_BACKEND"), nil, single.Openers, etcd.Openers)
//
// The first of the openers that has the URL's scheme opens it.
//
// The form of a URL is
//
//	scheme://[user:password@][host:port[,host:port…]][/path][?parameter=value&…]
//
// These parameters work with every scheme, and override opts:
//
//	ttl             Options.TTL, as in 30s or 1m30s
//	max_hold        Options.MaxHold
//	outage_timeout  Options.OutageTimeout, or none
//	prefix          Options.Prefix
//	label           Options.Label
//	token_base      Options.TokenBase
//
// Packages bridge and backends also open two URLs separated by white space: one Client then locks on
// both services, for a move from one to the other.
//
// The scheme's package documents its other parameters. An unknown or repeated parameter is an error. So
// is white space or an invisible character in or after a URL, such as the line end of a secret's file,
// and a + in a parameter: write %2B for a plus, or %20 for a space. ctx bounds only Open, not the
// Client; if the service has not answered by the deadline of ctx, the error matches ErrUnavailable.
// Errors never contain the password.
//
// Open asks the service once and does not wait for an outage to end, because a wrong address looks like
// an outage and should be reported when a program starts. A program that must be able to start during
// an outage repeats Open while the error matches ErrUnavailable. Or it makes the backend with its
// package's New and the Client with [New], which sends no request before the first Lock.
func Open(ctx context.Context, rawURL string, opts *Options, openers ...driver.Openers) (*Client, error) {
	c, err := open(ctx, rawURL, opts, openers)
	if err != nil {
		return nil, &Error{Op: "open", Err: err}
	}
	return c, nil
}

func open(ctx context.Context, rawURL string, opts *Options, openers []driver.Openers) (*Client, error) {
	u, err := driver.ParseURL(rawURL)
	if err != nil {
		return nil, err
	}
	opener, known := driver.Opener(nil), []string{}
	for _, o := range openers {
		if opener == nil {
			opener = o[u.Scheme]
		}
		known = slices.AppendSeq(known, maps.Keys(o))
	}
	if opener == nil {
		slices.Sort(known)
		return nil, fmt.Errorf("%w: backend URL: no backend for scheme %q: use one of %s", ErrInvalid,
			u.Scheme, strings.Join(slices.Compact(known), ", "))
	}
	var merged Options
	if opts != nil {
		merged = *opts
	}
	merged.TTL = u.Duration("ttl", merged.TTL)
	merged.MaxHold = u.Duration("max_hold", merged.MaxHold)
	switch u.Param("outage_timeout", "") {
	case "none":
		merged.OutageTimeout = -1
	case "0", "0s":
		return nil, u.Invalid("parameter outage_timeout: it must be more than zero, or none")
	default:
		merged.OutageTimeout = u.Duration("outage_timeout", merged.OutageTimeout)
	}
	merged.Label = u.Param("label", merged.Label)
	merged.Prefix = u.Param("prefix", merged.Prefix)
	merged.TokenBase = u.Uint("token_base", merged.TokenBase)
	if err := u.Err(); err != nil {
		return nil, err
	}
	if err := merged.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", u, err)
	}
	b, err := opener(ctx, u, driver.Settings{TTL: merged.TTL, Prefix: merged.Prefix, TokenBase: merged.TokenBase,
		Logger: merged.Logger})
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrUnavailable) {
		err = fmt.Errorf("%w: %w", err, ErrUnavailable) // the service had the time and did not answer
	}
	if err != nil {
		return nil, fromBackend(ctx, err)
	}
	c, wrong := newClient(b, &merged)
	if err := oneline.Join(u.Check(), wrong); err != nil {
		return nil, oneline.Join(err, b.Close())
	}
	c.owned = true
	return c, nil
}
