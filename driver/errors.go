package driver

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// The errors of a backend. Each error that a method of this package returns matches one of
// them, or the error of the context that it was given, or [errors.ErrUnsupported]. The engine
// makes an unknown error match ErrRefused, and a time-out that is not the caller's
// ErrUnavailable.
var (
	// ErrHeld says that another has the lock. It never stands for an outage.
	ErrHeld = errors.New("the lock is held by another")

	// ErrLost says that a hold is certainly gone.
	ErrLost = errors.New("the lease is lost")

	// ErrClosed is returned after Close.
	ErrClosed = errors.New("the client is closed")

	// ErrUnavailable says that the service, or a quorum of it, could not be asked: it is out of
	// reach, too slow, or shutting down. What became of the request may not be known. Trying
	// again later may help.
	ErrUnavailable = errors.New("the lock service is unavailable")

	// ErrRefused says that the service refused the request, or gave a senseless answer: wrong
	// credentials, a missing right, a fault. Trying again does not help.
	ErrRefused = errors.New("the lock service refused")

	// ErrInvalid says that a request cannot work whatever the state of the service, as for a
	// URL with an unknown parameter.
	ErrInvalid = errors.New("invalid argument")
)

// HeldError is the error of a [Backend] for "held", with the longest time for which
// this can last, so that the engine knows when to ask again. It matches [ErrHeld],
// which a backend returns if it does not know the time.
type HeldError struct {
	// Remaining is the time after which the lock is free unless its holder
	// renews it. Zero or less: not known.
	Remaining time.Duration

	// AskWithin is for a request that waits in vain for sharers to end, and has left a
	// note in the service which keeps new sharers out. The note ends after a second at
	// most, so that a dead waiter is in nobody's way; the engine asks again within
	// AskWithin, which renews it. 0: there is no such note.
	AskWithin time.Duration

	// Leave removes what the service notes for this caller. The engine calls that of the
	// last answer that had one, once and in the background, if the caller stops waiting,
	// and Close waits for it. A grant removes the note by itself. Without AskWithin it is
	// the place of the whole client in a line of the service: it is left only if no other
	// caller of the client waits for the name, and one that comes meanwhile is for the
	// backend to look after. nil: there is nothing to remove.
	Leave func(ctx context.Context) error
}

// Error says that the lock is held.
func (e *HeldError) Error() string { return ErrHeld.Error() }

// Is makes a HeldError match [ErrHeld].
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// invalid is fmt.Errorf for an error that matches ErrInvalid.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrInvalid, fmt.Errorf(format, args...))
}
