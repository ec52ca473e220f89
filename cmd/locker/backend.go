package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/backends"
	"github.com/golockers/locker/bridge"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/file"
	"github.com/spf13/cobra"
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

// Set refuses an empty value. It comes from --backend "$VARIABLE", which was to name
// a service for several hosts: locking with files on this host would not exclude
// the others.
func (f *backendFlag) Set(value string) error {
	if strings.TrimSpace(value) == "" {
		return errors.New("it is empty, perhaps an unset variable: write the URL of a lock service, or " +
			"leave it out")
	}
	*f = backendFlag(value)
	return nil
}

// addBackendFlag adds --backend to cmd.
func addBackendFlag(cmd *cobra.Command, backend *backendFlag) {
	cmd.Flags().VarP(backend, "backend", "b",
		"lock service (default: $"+backendEnv+", or else\nfiles in ~/.local/state/locker); two URLs "+
			"in\none argument: lock on both services")
}

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
			instead := ", as in --backend file:///DIR"
			if errors.Is(err, errors.ErrUnsupported) {
				instead = ": name a lock service, as in --backend redis://HOST"
			}
			return nil, &exitError{status: statusUnavailable, err: fmt.Errorf("%w%s", err, instead)}
		}
		address = (&url.URL{Scheme: "file", Path: dir}).String()
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	client, err := bridge.Open(ctx, address, opts, openers)
	switch {
	case errors.Is(err, locker.ErrInvalid) && strings.HasPrefix(address, "nats"):
		return nil, usage(fmt.Errorf("%w: NATS is not in this command, but in programs that import cas/nats", err))
	case errors.Is(err, locker.ErrInvalid):
		return nil, usage(err)
	case err != nil:
		return nil, &exitError{status: statusUnavailable, err: err}
	}
	return client, nil
}

// duration is a parameter of the URL, or def if it has none.
func (f *backendFlag) duration(name string, def time.Duration) time.Duration {
	address, _ := f.address()
	urls, _ := bridge.ParseURLs(address)
	if d, err := time.ParseDuration(urls.Param(name)); err == nil {
		return d // a wrong one is told when the URL is opened
	}
	return def
}
