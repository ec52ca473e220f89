package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/oneline"
	"github.com/golockers/locker/internal/tlsurl"
)

// Openers are the URL schemes of this package.
var Openers = driver.Openers{
	"zookeeper":  Open,
	"zookeepers": Open,
}

// Open is the [driver.Opener] of this package, for the schemes zookeeper and
// zookeepers (TLS); see the package documentation. It connects and opens a
// session, so that a wrong address or a missing right is reported at once.
func Open(ctx context.Context, u *driver.URL, opts driver.Settings) (driver.Backend, error) {
	o := Options{
		SessionTimeout: opts.TTL,
		Prefix:         strings.TrimSuffix(u.Path, "/"),
		Logger:         opts.Logger,
	}
	for _, name := range []string{"auth", "auth2"} {
		if a := u.Param(name, ""); a != "" {
			scheme, credentials, _ := strings.Cut(a, ":")
			o.Auth = append(o.Auth, Auth{Scheme: scheme, Credentials: credentials})
		}
	}
	if u.User != nil {
		return nil, u.Invalid("ZooKeeper knows no user in the address: give ?auth=digest:user:password")
	}
	var err error
	if u.Scheme == "zookeepers" {
		o.TLS, err = tlsurl.Config(u)
	}
	if err == nil {
		err = u.Check()
	}
	if err != nil {
		return nil, err
	}
	if len(u.Hosts) == 0 {
		return nil, u.Invalid("it has no host: write %s://host1:2181,host2:2181/prefix", u.Scheme)
	}
	b, err := New(u.Hosts, &o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", u, err)
	}
	s, err := b.opened(ctx)
	if err == nil {
		err = s.lasts(b.opts.SessionTimeout)
	}
	if err != nil {
		return nil, oneline.Join(fmt.Errorf("%s: %w", u, err), b.Close())
	}
	return b, nil
}

// opened returns a session once it is ready. It waits for up to a session's timeout
// while servers accept connections and do not take up the session, which passes: they
// hold an election, or have too many connections. An address where nobody answers is
// reported at once.
func (b *Backend) opened(ctx context.Context) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, b.opts.SessionTimeout)
	defer cancel()
	var last error
	for {
		s, err := b.join(ctx, 0)
		switch {
		case err == nil:
			s.leave(0)
			return s, nil
		case ctx.Err() != nil && last != nil:
			return nil, fmt.Errorf("%w: %w", last, ctx.Err())
		case !errors.Is(err, errNotServing):
			return nil, err
		}
		last = err
	}
}
