package bridge

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/golockers/locker"
)

// Openers open one URL, as those of package locker do, or two with white space between
// them. Package backends has all of this repository's; with others it is
//
//	bridge.Openers{"redis": single.Open, "etcd": etcd.Open}
type Openers map[string]locker.Opener

// Open is [locker.Openers.Open]. Two URLs make one Client that locks on both services,
// first on the first one. Then prefix and token_base belong to their own URL; ttl,
// max_hold, patience and label apply to both, in whichever URL they stand.
func (o Openers) Open(ctx context.Context, rawURL string, opts *locker.Options) (*locker.Client, error) {
	rawURLs := split(rawURL)
	if len(rawURLs) == 1 {
		return locker.Openers(o).Open(ctx, rawURL, opts)
	}
	urls, err := ParseURLs(rawURL)
	var both string
	if err == nil {
		both, err = urls.common()
	}
	if err != nil {
		return nil, &locker.Error{Op: "open", Err: err}
	}
	var own locker.Options
	if opts != nil {
		own = *opts
	}
	shared := own
	shared.Prefix, shared.TokenBase = "", 0
	pair := func(ctx context.Context, _ *locker.URL, opts locker.Options) (locker.Backend, error) {
		opts.Prefix, opts.TokenBase = own.Prefix, own.TokenBase
		return o.pair(ctx, rawURLs, opts)
	}
	return locker.Openers{"bridge": pair}.Open(ctx, "bridge://?"+both, &shared)
}

// pair opens both.
func (o Openers) pair(ctx context.Context, rawURLs []string, opts locker.Options) (locker.Backend, error) {
	first, err := o.side(ctx, rawURLs[0], opts)
	if err != nil {
		return nil, err
	}
	second, err := o.side(ctx, rawURLs[1], opts)
	if err != nil {
		return nil, errors.Join(err, first.Close())
	}
	b, err := newBackend([2]side{first, second})
	if err != nil {
		return nil, errors.Join(err, first.Close(), second.Close())
	}
	return b, nil
}

// side opens one of two. It takes the Backend from under its Client, which is not used:
// its Close would close the Backend.
func (o Openers) side(ctx context.Context, rawURL string, opts locker.Options) (s side, err error) {
	taking := make(locker.Openers, len(o))
	for scheme, open := range o {
		taking[scheme] = func(ctx context.Context, u *locker.URL, opts locker.Options) (locker.Backend, error) {
			b, err := open(ctx, u, opts)
			s = side{Backend: b, name: u.String(), prefix: opts.Prefix, base: opts.TokenBase}
			return b, err
		}
	}
	_, err = taking.Open(ctx, rawURL, &opts)
	if err != nil && s.Backend != nil { // it is closed again, since it does not accept the TTL
		err = s.fail(bare(err))
	}
	return s, bare(err)
}

// bare is an error of a Client without the operation: that of the pair's Client has it.
func bare(err error) error {
	if e, ok := err.(*locker.Error); ok { //nolint:errorlint // what it wraps stays as it is
		return e.Err
	}
	return err
}

// URLs are one URL or two.
type URLs []*locker.URL

// ParseURLs parses one URL, or two with white space between them. Its error matches
// [locker.ErrInvalid] and does not repeat rawURL, which may contain a password.
func ParseURLs(rawURL string) (URLs, error) {
	fields := split(rawURL)
	if len(fields) > 2 {
		return nil, fmt.Errorf("%w: backend URL: it has %d parts with white space between them: write one "+
			"URL, or two while a fleet moves", locker.ErrInvalid, len(fields))
	}
	var urls URLs
	for i, field := range fields {
		u, err := locker.ParseURL(field)
		if err != nil && len(fields) > 1 {
			err = fmt.Errorf("URL %d of %d: %w", i+1, len(fields), err)
		}
		if err != nil {
			return nil, err
		}
		urls = append(urls, u)
	}
	return urls, nil
}

// split splits rawURL at white space if it is more than one URL. White space before
// the first one or behind the last one stays there, and is refused.
func split(rawURL string) []string {
	fields := strings.Fields(rawURL)
	if len(fields) < 2 || strings.Count(rawURL, "://") < 2 {
		return []string{rawURL}
	}
	first, last := &fields[0], &fields[len(fields)-1]
	*first = rawURL[:strings.Index(rawURL, *first)+len(*first)]
	*last = rawURL[strings.LastIndex(rawURL, *last):]
	return fields
}

// String returns the URLs as [locker.URL.String] does, with a space between them.
func (us URLs) String() string {
	var all []string
	for _, u := range us {
		all = append(all, u.String())
	}
	return strings.Join(all, " ")
}

// Param returns a parameter that applies to both, or "" if neither has it.
func (us URLs) Param(name string) string {
	for _, u := range us {
		if value := u.Param(name, ""); value != "" {
			return value
		}
	}
	return ""
}

// common returns the parameters that apply to both.
func (us URLs) common() (query string, err error) {
	params := url.Values{}
	for _, name := range []string{"ttl", "max_hold", "patience", "label"} {
		value := us.Param(name)
		if second := us[1].Param(name, value); second != value {
			return "", fmt.Errorf("%w: backend URL: %s: parameter %s: the two URLs differ in it: write it once",
				locker.ErrInvalid, us, name)
		}
		if value != "" {
			params.Set(name, value)
		}
	}
	return strings.ReplaceAll(params.Encode(), "+", "%20"), nil
}
