package conformance

import (
	"context"
	"errors"
	"fmt"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/refusal"
)

// acquire calls Acquire of a Backend. A refusal becomes an error that matches ErrHeld, and its Undo, if
// it has one, becomes a Hold with that Undo: the rules judge both like other answers.
func acquire(ctx context.Context, b driver.Backend, req driver.Request) (driver.Grant, error) {
	g, err := b.Acquire(ctx, req)
	refused := g.Refused != nil
	switch {
	case errors.Is(err, driver.ErrHeld):
		err = errors.New("an error that matches ErrHeld, instead of a Grant that is Refused")
	case refused && err == nil && g.Hold != nil:
		err = errBoth
	case refused && err == nil:
		err = driver.ErrHeld
	case refused && ofContext(err):
		err = fmt.Errorf("%w: %w", driver.ErrHeld, err)
	}
	if refused && g.Hold == nil && g.Refused.Undo != nil {
		g.Hold = refusal.Leftover(g.Refused.Undo)
	}
	return g, err
}

var errBoth = errors.New("a Grant with both a Hold and a refusal")

// refusal is the Refusal of a call; nil: it was not refused.
func (c *call) refusal() *driver.Refusal {
	if !errors.Is(c.err, driver.ErrHeld) {
		return nil
	}
	return c.grant.Refused
}
