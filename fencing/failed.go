package fencing

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/golockers/locker"
)

// Outcome is what a guard knows of a request to its store that has failed.
type Outcome int

// Outcomes of a request that has failed.
const (
	Unknown Outcome = iota // no answer came: it may have been carried out, or may yet be
	Unsent                 // nothing was carried out: the store was not reached, or cannot serve for the moment
	Refused                // the store has answered: nothing was carried out, and asking again is no use
)

// Failed makes the error that a guard returns after a request to its store has failed with err. op says what the
// guard was about, for people. The error is one line, and matches err. Unless the request was refused, it
// matches the error of ctx and its cause if ctx is over, and [locker.ErrUnavailable] unless ctx was cancelled;
// if the outcome is Unknown, it matches [ErrUnknown]. If err is nil, Failed returns nil. It is for authors of
// guards.
func Failed(ctx context.Context, op string, err error, o Outcome) error {
	if err == nil {
		return nil
	}
	f := &failedError{op + ": ", []error{err}}
	over, cause := ctx.Err(), context.Cause(ctx)
	if deadline, ok := ctx.Deadline(); ok && over == nil && !time.Now().Before(deadline) {
		over, cause = context.DeadlineExceeded, context.DeadlineExceeded // a driver's timer may be the first
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
		f.text += "the store cannot be reached, or not now: "
		f.causes = append(f.causes, locker.ErrUnavailable)
	}
	f.text += strings.Join(strings.Fields(err.Error()), " ")
	if o == Unknown {
		f.text += ": " + ErrUnknown.Error()
		f.causes = append(f.causes, ErrUnknown)
	}
	return f
}

// failedError is a text, which may be another than that of its causes.
type failedError struct {
	text   string
	causes []error
}

func (e *failedError) Error() string   { return e.text }
func (e *failedError) Unwrap() []error { return e.causes }
