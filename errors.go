package locker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/golockers/locker/driver"
)

// The errors that callers act on. Test for them with [errors.Is]. Each error of this
// package matches one of them, or the error of the caller's context, or
// [errors.ErrUnsupported] if the backend's [Guarantees] do not include what was asked
// for.
var (
	// ErrHeld is returned by TryLock if another has the lock, who may be a caller of the
	// same Client; and by Lock if its context's deadline passed while another had the lock
	// (the error then also matches [context.DeadlineExceeded]). The service may have said so to
	// another caller of the same Client. ErrHeld is never returned if the service could not be asked.
	ErrHeld = driver.ErrHeld

	// ErrLost says that a lease ended without its holder's Unlock: its validity ended
	// before a renewal succeeded, the service said that the lock is gone, or MaxHold
	// was reached. Somebody else may hold the lock now.
	ErrLost = driver.ErrLost

	// ErrUnlocked is returned by [Lease.Err] after the holder's own Unlock.
	ErrUnlocked = errors.New("the lease was unlocked")

	// ErrClosed is returned by a [Client] after Close, and by [Lease.Err] for a lease
	// that Close released.
	ErrClosed = driver.ErrClosed

	// ErrUnavailable is returned if the lock service, or a quorum of it, could not be
	// asked: it is out of reach, too slow, or shutting down. It is then not known
	// whether the lock is held. Trying again later may help.
	ErrUnavailable = driver.ErrUnavailable

	// ErrRefused is returned if the lock service or the backend refused the request
	// or gave a senseless answer: wrong credentials, a missing right, a fault. Trying
	// again does not help.
	ErrRefused = driver.ErrRefused

	// ErrInvalid is returned if a call cannot work whatever the state of the service:
	// for a name, TTL, option or URL that is not valid, or for a lock that the caller's
	// own context already holds.
	ErrInvalid = driver.ErrInvalid
)

// errClosing is the cause with which Close ends the contexts of this client's calls.
// The contexts of another client's leases end with ErrClosed, which says nothing of
// this one.
var errClosing = fmt.Errorf("%w", ErrClosed)

// Error is the type of all errors returned by [Client] and [Lease], with all their causes.
type Error struct {
	// Op is "lock", "trylock", "renew", "unlock", "lease" (its end), "raise token", "inspect", "list",
	// "break", "check", "open", "require" or "close".
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

// waited is the error of a wait that was ended by err, which is that of a context. It matches the
// last known state of the lock, too: ErrHeld, ErrUnavailable with its causes, or nil, not known.
func waited(err, state error) error {
	if state == nil {
		return err
	}
	return fmt.Errorf("%w while waiting: %w", err, state)
}

// fromBackend makes err, which a backend returned for a request with ctx, match one
// of the package's errors or the error of ctx. A time-out that is not the caller's is
// ErrUnavailable, and matches no error of a context; an unknown error is ErrRefused.
func fromBackend(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(ctx.Err(), cause) && errors.Is(err, cause) {
		err = ctxError(ctx) // it says nothing of this lock: what became of the request is not known
	}
	return matching(ctx, err)
}

// matching is fromBackend for an error that is known to be of this lock.
func matching(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	is := func(target error) bool { return errors.Is(err, target) }
	known, timeout := slices.ContainsFunc(sentinels, is), slices.ContainsFunc(timeouts, is)
	switch {
	case !known && !timeout:
		return &refusedError{err}
	case !timeout || ctx.Err() != nil:
		return err
	case !known:
		err = fmt.Errorf("no answer in time (%w): %w", err, ErrUnavailable)
	}
	return unlikeError{err, timeouts} // a caller that asks whether its context has ended is not told yes
}

// sentinels are what callers act on, beside the errors of a context.
var sentinels = []error{ErrHeld, ErrLost, ErrUnlocked, ErrClosed, ErrUnavailable, ErrRefused, ErrInvalid,
	errors.ErrUnsupported}

// timeouts are the errors of a context.
var timeouts = []error{context.DeadlineExceeded, context.Canceled}

// unlikeError is an error that matches whatever its cause does, but none of these.
type unlikeError struct {
	error
	these []error
}

func (e unlikeError) Is(target error) bool {
	return !slices.Contains(e.these, target) && errors.Is(e.error, target)
}

func (e unlikeError) As(target any) bool { return errors.As(e.error, target) }

// refusedError makes an error match [ErrRefused], and keeps its text.
type refusedError struct{ error }

func (e *refusedError) Is(target error) bool { return target == ErrRefused }
func (e *refusedError) Unwrap() error        { return e.error }
