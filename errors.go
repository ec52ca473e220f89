package locker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// The errors that callers act on. Test for them with [errors.Is]: what the
// package returns is an [*Error] that carries the operation, the lock's name
// and the whole chain of causes, and it matches one of these, or the error of
// the caller's context, or [errors.ErrUnsupported]: the backend was asked for
// something that it does not claim in its [Guarantees].
var (
	// ErrHeld is returned by TryLock when another holder has the lock, or a
	// caller of the same Client has asked before and has no answer yet; and by
	// Lock when its context's deadline passed while another holder had it (the
	// error then also matches [context.DeadlineExceeded]). It is never
	// returned for a service that could not be asked.
	ErrHeld = errors.New("the lock is held by another")

	// ErrLost is the end of a lease that its holder did not ask for: its
	// validity ran out before a renewal got through, the service said that the
	// key is gone, or MaxHold was reached. Somebody else may hold the lock now.
	ErrLost = errors.New("the lease is lost")

	// ErrUnlocked is what [Lease.Err] reports after the holder's own Unlock.
	ErrUnlocked = errors.New("the lease was unlocked")

	// ErrClosed is returned by a [Client] after Close, and is what
	// [Lease.Err] reports for a lease that Close released.
	ErrClosed = errors.New("the client is closed")

	// ErrUnavailable is returned when the lock service, or a quorum of it,
	// could not be asked: it is unreachable, too slow, or shutting down. Whether
	// the lock is held is then not known. Trying again later may help.
	ErrUnavailable = errors.New("the lock service is unavailable")

	// ErrRefused is returned when the lock service, or a backend, said no or
	// answered what makes no sense: wrong credentials, a missing right, a fault.
	// Trying again does not help.
	ErrRefused = errors.New("the lock service refused")

	// ErrInvalid is returned for what cannot work as it was asked, whatever
	// the state of the service: a name, TTL, option or URL out of bounds.
	ErrInvalid = errors.New("invalid argument")
)

// Error is the type of all errors returned by [Client] and [Lease].
type Error struct {
	Op   string // "lock", "trylock", "renew", "unlock", "lease" (its end), "raise token", "inspect", "list", "break", "check", "open", "require", "close"
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

// HeldError is how a [Backend] says "held" and for how long at most, so that
// the engine knows when to ask again. It matches [ErrHeld], which a backend
// that does not know the time returns instead.
type HeldError struct {
	// Remaining is the time after which the lock is free unless its holder
	// renews it. Zero or less: not known.
	Remaining time.Duration
}

// Error says that the lock is held.
func (e *HeldError) Error() string { return ErrHeld.Error() }

// Is makes a HeldError match [ErrHeld].
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// waitError is the end of a wait by its context: it matches the context's
// error and, beside it, what was known of the lock at that moment.
type waitError struct {
	ctx   error // context.Canceled, context.DeadlineExceeded, or the cause given to the context
	state error // ErrHeld, ErrUnavailable with its causes, or nil: not known
}

func (e *waitError) Error() string {
	if e.state == nil {
		return e.ctx.Error()
	}
	return e.ctx.Error() + " while waiting: " + e.state.Error()
}

func (e *waitError) Unwrap() []error {
	if e.state == nil {
		return []error{e.ctx}
	}
	return []error{e.ctx, e.state}
}

// fromBackend makes err, which a backend returned for a request with ctx, match
// one of the package's errors or that of ctx. A time-out that is not the caller's
// is ErrUnavailable, what is not known is ErrRefused.
func fromBackend(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	for _, known := range []error{ErrHeld, ErrLost, ErrUnlocked, ErrClosed, ErrUnavailable, ErrRefused, ErrInvalid, errors.ErrUnsupported} {
		if errors.Is(err, known) {
			return err
		}
	}
	switch {
	case !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled):
		return &refusedError{err}
	case ctx.Err() == nil:
		return fmt.Errorf("no answer in time (%v): %w", err, ErrUnavailable) //nolint:errorlint // it must not look like the caller's
	}
	return err
}

// refusedError is an error that matches [ErrRefused] and reads as it did before.
type refusedError struct{ error }

func (e *refusedError) Is(target error) bool { return target == ErrRefused }
func (e *refusedError) Unwrap() error        { return e.error }
