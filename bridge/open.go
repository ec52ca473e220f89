package bridge

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/oneline"
)

// Open is [locker.Open] for one URL, or for two separated by white space. Two URLs make one Client that
// locks on both services, in that order. Then prefix and token_base belong to their own URL; ttl,
// max_hold, outage_timeout and label apply to both, whichever URL has them. For the backends of package
// backends, it is backends.Open; with other backends
//
//	client, err := bridge.Open(ctx, urls, nil, single.Openers, etcd.Openers)
func Open(ctx context.Context, rawURL string, opts *locker.Options, openers ...driver.Openers) (*locker.Client, error) {
	rawURLs := split(rawURL)
	if len(rawURLs) == 1 {
		return locker.Open(ctx, rawURL, opts, openers...)
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
	pair := func(ctx context.Context, _ *driver.URL, s driver.Settings) (driver.Backend, error) {
		s.Prefix, s.TokenBase = own.Prefix, own.TokenBase
		return openPair(ctx, rawURLs, s, openers)
	}
	return locker.Open(ctx, "bridge://?"+both, &shared, driver.Openers{"bridge": pair})
}

// openPair opens both.
func openPair(ctx context.Context, rawURLs []string, s driver.Settings, openers []driver.Openers) (driver.Backend, error) {
	first, err := openSide(ctx, rawURLs[0], s, openers)
	if err != nil {
		return nil, err
	}
	second, err := openSide(ctx, rawURLs[1], s, openers)
	if err != nil {
		return nil, oneline.Join(err, first.Close())
	}
	b, err := newBackend([2]side{first, second})
	if err != nil {
		return nil, oneline.Join(err, first.Close(), second.Close())
	}
	return b, nil
}

// openSide opens one of two. It takes the Backend and drops its Client, whose Close would close the
// Backend.
func openSide(ctx context.Context, rawURL string, of driver.Settings, openers []driver.Openers) (s side, err error) {
	taking := driver.Openers{}
	for _, o := range openers {
		for scheme, open := range o {
			if open == nil || taking[scheme] != nil { // the first one counts, as in locker.Open
				continue
			}
			taking[scheme] = func(ctx context.Context, u *driver.URL, of driver.Settings) (driver.Backend, error) {
				b, err := open(ctx, u, of)
				s = side{Backend: b, name: u.String(), prefix: of.Prefix, base: of.TokenBase}
				return b, err
			}
		}
	}
	_, err = locker.Open(ctx, rawURL, &locker.Options{TTL: of.TTL, Prefix: of.Prefix, TokenBase: of.TokenBase,
		Logger: of.Logger}, taking)
	if err != nil && s.Backend != nil { // it does not accept the TTL, so close it
		err = s.fail(bare(err))
	}
	return s, bare(err)
}

// bare is an error of a Client without its operation, which the pair's Client adds.
func bare(err error) error {
	if e, ok := err.(*locker.Error); ok { //nolint:errorlint // what it wraps stays as it is
		return e.Err
	}
	return err
}

// URLs are one or two URLs.
type URLs []*driver.URL

// ParseURLs parses one URL, or two separated by white space. Its error matches [locker.ErrInvalid] and
// does not repeat rawURL, which may contain a password.
func ParseURLs(rawURL string) (URLs, error) {
	fields := split(rawURL)
	if len(fields) > 2 {
		return nil, fmt.Errorf("%w: backend URL: it has %d parts with white space between them: write one "+
			"URL, or two while a fleet moves", locker.ErrInvalid, len(fields))
	}
	var urls URLs
	for i, field := range fields {
		u, err := driver.ParseURL(field)
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

// split splits rawURL at white space if it is more than one URL. White space before the first or after
// the last one stays, and is refused.
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

// String returns the URLs as [driver.URL.String] does, with a space between them.
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
	for _, name := range []string{"ttl", "max_hold", "outage_timeout", "label"} {
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
