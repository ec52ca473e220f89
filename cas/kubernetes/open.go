package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/golockers/locker/cas"
	"github.com/golockers/locker/driver"
)

// Openers are the URL schemes of this package.
var Openers = driver.Openers{"kubernetes": Open}

// openTimeout bounds Open if ctx does not.
const openTimeout = 5 * time.Second

// Open is the [driver.Opener] of this package, for the scheme kubernetes; see the package
// documentation. It tries the requests that locks need without changing anything, so that a wrong
// namespace or a missing permission is reported at once.
func Open(ctx context.Context, u *driver.URL, _ driver.Settings) (driver.Backend, error) {
	o := Options{Server: u.Param("server", ""), Credentials: u.Param("credentials", ""),
		MinTTL: u.Duration("min_ttl", 0)}
	core := cas.Options{Timeout: u.Duration("timeout", 0)}
	if err := u.Check(); err != nil {
		return nil, err
	}
	if len(u.Hosts) > 1 || u.Path != "" || u.User != nil {
		return nil, u.Invalid("write kubernetes://namespace")
	}
	namespace := ""
	if len(u.Hosts) == 1 {
		namespace = u.Hosts[0]
	}
	s, err := New(namespace, &o)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, openTimeout)
		defer cancel()
		err = s.try(ctx)
	}
	switch {
	case err == nil:
	case errors.Is(err, driver.ErrRefused) || errors.Is(err, driver.ErrInvalid):
		return nil, fmt.Errorf("%s: %w", u, err)
	default:
		return nil, fmt.Errorf("%s: %w: %w", u, err, driver.ErrUnavailable)
	}
	return cas.New(s, &core)
}

// try does what every lock does, with a Lease that the API server does not store.
func (s *Store) try(ctx context.Context) error {
	lock := newLease(metadata{Name: "locker-try"})
	if err := s.ask(ctx, "get", "/locker-try", nil, &lease{}); err != nil && !errors.Is(err, errNotFound) {
		return err
	}
	if err := s.ask(ctx, "create", "?dryRun=All", &lock, &lease{}); err != nil {
		return err
	}
	err := s.ask(ctx, "update", "/locker-try?dryRun=All", &lock, &lease{})
	s.served.Store(err == nil)
	return err
}
