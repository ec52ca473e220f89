package locker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Opener makes a backend from a URL. It reads the parameters that it knows from u,
// calls u.Check, and only then connects. It returns an error if the service is out of
// reach or refuses the client. opts are the settings of the future Client, which closes the
// backend.
type Opener func(ctx context.Context, u *URL, opts Options) (Backend, error)

// Openers maps URL schemes to backends. Every backend has a variable of this type
// with its own schemes, and package backends has one with all schemes:
//
//	client, err := backends.Openers.Open(ctx, os.Getenv("LOCKER_BACKEND"), nil)
type Openers map[string]Opener

// Open makes a Client for the lock service at rawURL, whose form is
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
// The Openers of package bridge also open two URLs with white space between them: one
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
func (o Openers) Open(ctx context.Context, rawURL string, opts *Options) (*Client, error) {
	c, err := o.open(ctx, rawURL, opts)
	if err != nil {
		return nil, &Error{Op: "open", Err: err}
	}
	return c, nil
}

func (o Openers) open(ctx context.Context, rawURL string, opts *Options) (*Client, error) {
	u, err := ParseURL(rawURL)
	if err != nil {
		return nil, err
	}
	opener := o[u.Scheme]
	if opener == nil {
		return nil, fmt.Errorf("%w: backend URL: no backend for scheme %q: use one of %s", ErrInvalid,
			u.Scheme, strings.Join(slices.Sorted(maps.Keys(o)), ", "))
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
		u.fail("patience", "it has to be more than zero, or none")
	default:
		merged.Patience = u.Duration("patience", merged.Patience)
	}
	merged.Label = u.Param("label", merged.Label)
	merged.Prefix = u.Param("prefix", merged.Prefix)
	merged.TokenBase = u.Uint("token_base", merged.TokenBase)
	if u.err != nil {
		return nil, u.err
	}
	if err := merged.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", u, err)
	}
	b, err := opener(ctx, u, merged)
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
