package locker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/golockers/locker/driver"
)

// Open makes a Client for the lock service at rawURL. Each backend has Openers for its own
// URLs, and package backends opens those of all:
//
//	client, err := locker.Open(ctx, os.Getenv("LOCKER_BACKEND"), nil, single.Openers, etcd.Openers)
//
// The first of the Openers that has the scheme of the URL opens it.
//
// The form of a URL is
//
//	scheme://[user:password@][host:port[,host:port…]][/path][?parameter=value&…]
//
// These parameters are the same for every scheme, and override opts:
//
//	ttl         Options.TTL, as in 30s or 1m30s
//	max_hold    Options.MaxHold
//	patience    Options.Patience, or none
//	prefix      Options.Prefix
//	label       Options.Label
//	token_base  Options.TokenBase
//
// Packages bridge and backends also open two URLs with white space between them: one
// Client then locks on both services, during a move from one to the other.
//
// The scheme's package documents its other parameters. An unknown parameter, or one
// that is given twice, is an error. So is white space or an invisible character in or
// behind a URL, such as the line end of a file with a secret, and a + in a parameter, which
// is written %2B, or %20 if it stands for a space. ctx bounds only Open, and
// not the Client; if the service has not answered at the deadline of ctx, the error
// matches ErrUnavailable. Errors never contain the password.
//
// Open asks the service once, and has no Patience: a wrong address looks like an outage,
// and a program that starts tells it at once. A program that has to start beside a service
// that is down repeats Open while the error matches ErrUnavailable, or makes the backend
// with the New of its package and the Client with [New], which asks for nothing before the
// first Lock.
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
	switch u.Param("patience", "") {
	case "none":
		merged.Patience = NoPatience
	case "0", "0s":
		return nil, u.Invalid("parameter patience: it has to be more than zero, or none")
	default:
		merged.Patience = u.Duration("patience", merged.Patience)
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
		err = fmt.Errorf("%w: %w", err, ErrUnavailable) // it had the time, and did not answer
	}
	if err != nil {
		return nil, fromBackend(ctx, err)
	}
	c := New(b, &merged)
	c.owned = true
	_, wrong := c.settingsFor(nil) // such as a TTL outside the backend's bounds, before the first Lock
	if err := errors.Join(u.Check(), wrong); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return c, nil
}
