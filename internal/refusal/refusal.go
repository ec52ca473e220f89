// Package refusal is for backends whose inner functions return "held" as an error, as the drivers of their services
// do. The answer of their Acquire has it as a value.
package refusal

import (
	"context"
	"errors"
	"time"

	"github.com/golockers/locker/driver"
)

// Error says that another has the lock. It matches [driver.ErrHeld], which says the same where nothing more is known.
type Error struct{ driver.Refusal }

func (*Error) Error() string        { return driver.ErrHeld.Error() }
func (*Error) Is(target error) bool { return target == driver.ErrHeld }

// Leftover is a Hold of what a refused attempt may have left, whose Undo is that of the Refusal. It was never held.
type Leftover func(context.Context) error

func (Leftover) Renew(context.Context) (driver.Validity, error) {
	return driver.Validity{}, driver.ErrLost
}
func (Leftover) Release(context.Context, time.Duration) error { return driver.ErrLost }
func (l Leftover) Undo(ctx context.Context) error             { return l(ctx) }

// Answer is the answer of Acquire where g and err came of it: an error that matches [driver.ErrHeld] becomes the Refused
// of the Grant, and a Hold beside it the Refusal's Undo. If it also matches the error of a context, that stays.
func Answer(g driver.Grant, err error) (driver.Grant, error) {
	if !errors.Is(err, driver.ErrHeld) {
		return g, err
	}
	held, ok := errors.AsType[*Error](err)
	if !ok {
		held = &Error{}
	}
	refused := held.Refusal
	g.Refused = &refused
	for _, ended := range []error{context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, ended) {
			return g, ended
		}
	}
	if g.Hold != nil {
		g.Refused.Undo, g.Hold = g.Hold.Undo, nil
	}
	return g, nil
}
