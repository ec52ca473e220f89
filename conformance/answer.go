package conformance

import (
	"context"
	"errors"
	"fmt"

	"github.com/golockers/locker/driver"
)

// acquire calls Acquire of a Backend. A refusal is an error here that matches ErrHeld, and its Undo that of a Hold:
// the rules judge both as they judge other answers.
func acquire(ctx context.Context, b driver.Backend, req driver.Request) (driver.Grant, error) {
	g, err := b.Acquire(ctx, req)
	refused := g.Refused != nil
	switch {
	case errors.Is(err, driver.ErrHeld):
		err = errors.New("an error that matches ErrHeld, in place of a Grant that is Refused")
	case refused && err == nil && g.Hold != nil:
		err = errors.New("a Grant with both a Hold and a refusal")
	case refused && err == nil:
		if err = driver.ErrHeld; g.Refused.Undo != nil {
			g.Hold = leftover{undo: g.Refused.Undo}
		}
	case refused && ofContext(err):
		err = fmt.Errorf("%w: %w", driver.ErrHeld, err)
	}
	return g, err
}

// leftover is what a refused attempt may have left.
type leftover struct {
	driver.Hold
	undo func(context.Context) error
}

func (l leftover) Undo(ctx context.Context) error { return l.undo(ctx) }

// refusal is what was told to one that was refused; nil: it was not.
func (c *call) refusal() *driver.Refusal {
	if !errors.Is(c.err, driver.ErrHeld) {
		return nil
	}
	return c.grant.Refused
}
