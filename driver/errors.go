package driver

import (
	"errors"
	"fmt"
)

// The errors of a backend. Each error that a method of these interfaces returns matches one of them, or
// the error of the context that it was given, or [errors.ErrUnsupported]. The engine turns an unknown
// error into ErrRefused, and a timeout that is not the caller's into ErrUnavailable.
var (
	// ErrHeld is what the engine returns to its callers for a [Refusal]. An Acquire that returns it is
	// faulty: the engine's error then matches ErrRefused.
	ErrHeld = errors.New("the lock is held by another")

	// ErrLost says that a hold is certainly gone.
	ErrLost = errors.New("the lease is lost")

	// ErrClosed is returned after Close.
	ErrClosed = errors.New("the client is closed")

	// ErrUnavailable says that the service, or a quorum of it, could not be asked: it is unreachable,
	// too slow, or shutting down. The outcome of the request may be unknown. Trying again later may
	// help.
	ErrUnavailable = errors.New("the lock service is unavailable")

	// ErrRefused says that the service refused the request or gave an invalid answer: wrong
	// credentials, a missing permission, a fault. Trying again does not help.
	ErrRefused = errors.New("the lock service refused")

	// ErrInvalid says that a request cannot work in any state of the service, such as a URL with an
	// unknown parameter.
	ErrInvalid = errors.New("invalid argument")
)

// invalid is fmt.Errorf for an error that matches ErrInvalid.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrInvalid, fmt.Errorf(format, args...))
}
