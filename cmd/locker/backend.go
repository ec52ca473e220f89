package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/backends"
	"github.com/golockers/locker/bridge"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/file"
	"github.com/golockers/locker/internal/clock"
	"github.com/golockers/locker/internal/spelling"
)

// openers are the lock services of this command, by URL scheme. memory is not
// among them: a lock that no other process sees would protect nothing here.
var openers = func() driver.Openers {
	o := maps.Clone(backends.Openers)
	delete(o, "memory")
	return o
}()

// backendEnv names the environment variable with the default of --backend.
const backendEnv = "LOCKER_BACKEND"

// openTimeout bounds how long a lock service may take for its first answer, and for
// every request that does not wait for a lock.
const openTimeout = 10 * time.Second

// backendFlag is the value of --backend; "" if the flag was not given.
type backendFlag string

func (f *backendFlag) String() string { return string(*f) }
func (f *backendFlag) Type() string   { return "URL" }

// Set refuses an empty value. It comes from --backend "$VARIABLE", which was to name a service for several
// hosts: locking with files on this host would not exclude the others.
func (f *backendFlag) Set(value string) error {
	if strings.TrimSpace(value) == "" {
		return errors.New("it is empty, perhaps an unset variable: write the URL of a lock service, or " +
			"leave it out")
	}
	*f = backendFlag(value)
	return nil
}

// aboutBackend is the help for the flag.
const aboutBackend = "lock service (default $" + backendEnv + ", or files)"

// address is the URL that the flag or the environment names; "" if neither
// does. Its error has the exit status.
func (f *backendFlag) address() (string, error) {
	if *f != "" {
		return string(*f), nil
	}
	address, set := os.LookupEnv(backendEnv)
	if set && strings.TrimSpace(address) == "" {
		return "", usage(errors.New(backendEnv + " is set and empty: write the URL of a lock service into " +
			"it, or unset " + backendEnv + " to lock with files on this host"))
	}
	return address, nil
}

// open connects to the lock service that the flag, the environment or the
// default names. Its error has the exit status.
func open(ctx context.Context, backend *backendFlag, opts *locker.Options) (*locker.Client, error) {
	address, err := backend.address()
	if err != nil {
		return nil, err
	}
	if address == "" {
		dir, err := file.DefaultDir()
		if err != nil {
			return nil, &exitError{status: statusUnavailable, err: fmt.Errorf("%w: name a lock service, as in "+
				"--backend redis://HOST or --backend file:///DIR", err)}
		}
		address = (&url.URL{Scheme: "file", Path: dir}).String()
	}
	urls, _ := bridge.ParseURLs(address) // a wrong one is reported by Open
	for _, u := range urls {
		if openers[u.Scheme] == nil {
			return nil, usage(noService(u.Scheme))
		}
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	client, err := bridge.Open(ctx, address, opts, openers)
	switch {
	case errors.Is(err, locker.ErrInvalid):
		return nil, usage(err)
	case err != nil:
		return nil, &exitError{status: statusUnavailable, err: err}
	}
	return client, nil
}

// noService says that no URL of a lock service begins like this.
func noService(scheme string) error {
	if scheme == "nats" {
		return errors.New("URL: NATS is not in this command, but in programs that import cas/nats")
	}
	known := slices.Sorted(maps.Keys(openers))
	return fmt.Errorf("URL: no lock service has URLs that begin with %s://%s", scheme, spelling.Meant(scheme, known))
}

// duration is a parameter of the URL, or def if it has none.
func (f *backendFlag) duration(name string, def time.Duration) time.Duration {
	address, _ := f.address()
	urls, _ := bridge.ParseURLs(address)
	if d, err := clock.ParseDuration(urls.Param(name)); err == nil {
		return d // a wrong one is told when the URL is opened
	}
	return def
}
