package locker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/golockers/locker/driver"
)

// The errors that callers act on. Test for them with [errors.Is]. Each error of this package matches
// one of them, or the error of the caller's context, or [errors.ErrUnsupported] if the backend's
// [Guarantees] do not include what was requested.
var (
	// ErrHeld is returned by TryLock if another holder has the lock, possibly a caller of the same
	// Client. Lock returns it if its MaxWait or its context's deadline passed while it waited for such
	// a holder (with a deadline, the error also matches [context.DeadlineExceeded]). The Client may
	// have learned of the holder from another caller's request. ErrHeld is never returned if the
	// service could not be asked.
	ErrHeld = driver.ErrHeld

	// ErrLost says that a lease ended without its holder's Unlock: its validity ended before a renewal
	// succeeded, the service reported that the lock is gone, or MaxHold was reached. Another holder may
	// have the lock now.
	ErrLost = driver.ErrLost

	// ErrUnlocked is returned by [Lease.Err] after the holder's own Unlock.
	ErrUnlocked = errors.New("the lease was unlocked")

	// ErrClosed is returned by a [Client] after Close, and by [Lease.Err] for a lease
	// that Close released.
	ErrClosed = driver.ErrClosed

	// ErrUnavailable is returned if the lock service, or a quorum of it, could not be asked: it is
	// unreachable, too slow, or shutting down. Whether the lock is held is unknown. Trying again later
	// may help.
	ErrUnavailable = driver.ErrUnavailable

	// ErrRefused is returned if the lock service or the backend refused the request or gave an invalid
	// answer: wrong credentials, a missing permission, a fault. Trying again does not help.
	ErrRefused = driver.ErrRefused

	// ErrInvalid is returned if a call cannot work in any state of the service: the name, TTL, option
	// or URL is not valid, or the caller's own context already holds the lock.
	ErrInvalid = driver.ErrInvalid
)

// errClosing is the cause with which Close ends the contexts of this client's calls. Contexts of
// another client's leases end with ErrClosed, which says nothing about this client.
var errClosing = fmt.Errorf("%w", ErrClosed)

// Error is the type of all errors returned by [Client] and [Lease], with all their causes.
type Error struct {
	// Op is "lock", "trylock", "renew", "unlock", "lease" (its end), "raise token", "inspect", "list",
	// "break", "check", "new", "open", "require" or "close".
	Op   string
	Name string // the lock's name as the caller gave it; "" where there is none
	Err  error  // the cause
}

// Error says what failed, for which lock, and why, on one line.
func (e *Error) Error() string {
	if e.Name == "" {
		return "locker: " + e.Op + ": " + e.Err.Error()
	}
	return "locker: " + e.Op + " " + strconv.Quote(e.Name) + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// waited is the error of a wait that err, a context's error, has ended. It also matches the last known
// state of the lock: ErrHeld, or ErrUnavailable with its causes; nil means unknown.
func waited(err, state error) error {
	if state == nil {
		return err
	}
	return fmt.Errorf("%w while waiting: %w", err, state)
}

// fromBackend makes err, which a backend returned for a request with ctx, match one of the package's
// errors or the error of ctx. A timeout that is not the caller's becomes ErrUnavailable and matches no
// error of a context; an unknown error becomes ErrRefused.
func fromBackend(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(ctx.Err(), cause) && errors.Is(err, cause) {
		err = ctxError(ctx) // it says nothing about this lock: the request's outcome is unknown
	}
	return matching(ctx, err)
}

// matching is fromBackend for an error that is known to concern this lock.
func matching(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	is := func(target error) bool { return errors.Is(err, target) }
	known, timeout := slices.ContainsFunc(sentinels, is), slices.ContainsFunc(timeouts, is)
	switch {
	case !known && !timeout:
		return &alsoError{err, ErrRefused}
	case !timeout || ctx.Err() != nil:
		return err
	case !known:
		err = fmt.Errorf("no answer in time (%w): %w", err, ErrUnavailable)
	}
	return unlikeError{err, timeouts} // or the caller would think that its own context has ended
}

// sentinels are what callers act on, besides the errors of a context.
var sentinels = []error{ErrHeld, ErrLost, ErrUnlocked, ErrClosed, ErrUnavailable, ErrRefused, ErrInvalid,
	errors.ErrUnsupported}

// timeouts are the errors of a context.
var timeouts = []error{context.DeadlineExceeded, context.Canceled}

// unlikeError is an error that matches whatever its cause matches, except these.
type unlikeError struct {
	error
	these []error
}

func (e unlikeError) Is(target error) bool {
	return !slices.Contains(e.these, target) && errors.Is(e.error, target)
}

func (e unlikeError) As(target any) bool { return errors.As(e.error, target) }

// alsoError is an error that matches another one as well, and keeps its text.
type alsoError struct {
	error
	also error
}

func (e *alsoError) Is(target error) bool { return target == e.also }
func (e *alsoError) Unwrap() error        { return e.error }
