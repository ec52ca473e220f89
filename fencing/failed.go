package fencing

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/golockers/locker"
)

// Outcome is what a guard knows about a failed request to its store.
type Outcome int

// Outcomes of a failed request.
const (
	Unknown Outcome = iota // no answer came: it may have been carried out, or may still be
	Unsent                 // nothing was carried out: the store was not reached, or cannot serve at the moment
	Refused                // the store answered: nothing was carried out, and trying again is useless
)

// Failed returns the error that a guard reports when a request to its store has failed with err. op
// describes for people what the guard was doing. The error is one line, and matches err. Unless the
// request was refused, it matches the error and cause of ctx if ctx has ended, and
// [locker.ErrUnavailable] unless ctx was canceled. If the outcome is Unknown, it matches [ErrUnknown].
// If err is nil, Failed returns nil. It is for authors of guards.
func Failed(ctx context.Context, op string, err error, o Outcome) error {
	if err == nil {
		return nil
	}
	f := &failedError{op + ": ", []error{err}}
	over, cause := ctx.Err(), context.Cause(ctx)
	if deadline, ok := ctx.Deadline(); ok && over == nil && !time.Now().Before(deadline) {
		over, cause = context.DeadlineExceeded, context.DeadlineExceeded // a driver's timer may fire first
	}
	if ofContext := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded); ofContext {
		f.causes = nil // the deadline of a driver is not the caller's
	}
	switch {
	case o == Refused:
	case errors.Is(over, context.Canceled):
		f.text += "given up before the answer: "
		f.causes = append(f.causes, over, cause)
	case over != nil:
		f.text += "no answer in time: "
		f.causes = append(f.causes, over, cause, locker.ErrUnavailable)
	default:
		f.text += "the store cannot be reached, or cannot serve now: "
		f.causes = append(f.causes, locker.ErrUnavailable)
	}
	f.text += strings.Join(strings.Fields(err.Error()), " ")
	if o == Unknown {
		f.text += ": " + ErrUnknown.Error()
		f.causes = append(f.causes, ErrUnknown)
	}
	return f
}

// failedError has a text that may differ from those of its causes.
type failedError struct {
	text   string
	causes []error
}

func (e *failedError) Error() string   { return e.text }
func (e *failedError) Unwrap() []error { return e.causes }
