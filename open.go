package locker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Opener makes a backend from a URL. It reads the parameters it knows from u,
// calls u.Check, and only then connects; it returns an error at once if the
// service cannot be reached or refuses the client. opts are the settings that
// the Client will have. The Client closes the backend.
type Opener func(ctx context.Context, u *URL, opts Options) (Backend, error)

// Openers says which backend serves which URL scheme. Every backend has a
// variable of this type with its own schemes, and package backends has all of
// them:
//
//	client, err := backends.Openers.Open(ctx, os.Getenv("LOCKER_BACKEND"), nil)
type Openers map[string]Opener

// Open makes a Client for the lock service at rawURL, whose form is
//
//	scheme://[user:password@][host:port[,host:port…]][/path][?parameter=value&…]
//
// These parameters are the same for every scheme and win over opts:
//
//	ttl         Options.TTL, as in 30s or 1m30s
//	max_hold    Options.MaxHold
//	patience    Options.Patience; 0s means none
//	prefix      Options.Prefix
//	label       Options.Label
//	token_base  Options.TokenBase
//
// The scheme's package documents the others. A parameter that is not known or
// that is given twice is an error. ctx bounds the opening, not the Client; a
// service that has not answered at its deadline is ErrUnavailable. Errors never
// contain the password.
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
		known := slices.Sorted(maps.Keys(o))
		return nil, fmt.Errorf("%w: backend URL: no backend for scheme %q: use one of %s", ErrInvalid, u.Scheme, strings.Join(known, ", "))
	}
	var merged Options
	if opts != nil {
		merged = *opts
	}
	merged.TTL = u.Duration("ttl", merged.TTL)
	merged.MaxHold = u.Duration("max_hold", merged.MaxHold)
	if u.Param("patience", "") == "0s" {
		merged.Patience = -1
	} else {
		merged.Patience = u.Duration("patience", merged.Patience)
	}
	merged.Prefix = u.Param("prefix", merged.Prefix)
	merged.Label = u.Param("label", merged.Label)
	merged.TokenBase = u.Uint("token_base", merged.TokenBase)
	if err := u.err; err != nil {
		return nil, err
	}
	if err := merged.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", u, err)
	}
	b, err := opener(ctx, u, merged)
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrUnavailable) {
			err = fmt.Errorf("%w: %w", err, ErrUnavailable) // it had the time, and did not answer
		}
		return nil, err
	}
	c := New(b, &merged)
	c.owned = true
	if err := errors.Join(u.Check(), c.checkTTL()); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return c, nil
}

// checkTTL tells of a TTL that the backend cannot do before the first Lock does.
func (c *Client) checkTTL() error {
	_, err := c.settingsFor(nil)
	return err
}

// durationHint is how durations are written, for errors.
const durationHint = "write a duration such as 500ms, 30s or 1m30s"

// Duration returns the parameter as a duration of more than zero, or def if
// it is not given.
func (u *URL) Duration(name string, def time.Duration) time.Duration {
	s := u.Param(name, "")
	if s == "" {
		return def
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		u.fail(name, s, durationHint)
		return def
	}
	if d <= 0 {
		u.fail(name, s, "it has to be more than zero")
		return def
	}
	return d
}
