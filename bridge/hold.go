package bridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/probe"
	"github.com/golockers/locker/internal/refusal"
)

// hold is a lock on both services, or what an attempt may have left there.
type hold struct {
	b  *Backend
	on [2]part
}

// part is the hold on one service.
type part struct {
	driver.Hold      // nil: nothing
	granted     bool // for certain

	// leave removes the note with which a request that waits for sharers (programs with one URL) keeps
	// new ones out; nil: there is none.
	leave func(ctx context.Context) error
}

// answered records the answer to the last request, and returns its error, which matches ErrHeld for a
// refusal.
func (p *part) answered(g driver.Grant, err error) error {
	p.Hold, p.granted = g.Hold, err == nil && g.Hold != nil && g.Refused == nil
	switch held := g.Refused; {
	case p.granted:
		p.leave = nil // the grant has removed it
	case err == nil && (held == nil) == (g.Hold == nil):
		return errors.New("the backend both granted the lock and refused it")
	case held == nil && errors.Is(err, locker.ErrHeld):
		//nolint:errorlint // it says "held", which is not an error
		return fmt.Errorf("%w: the backend returned an error instead of a Refusal: %s", locker.ErrRefused, err)
	case held != nil && (err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)):
		p.leave = nil
		if held.AskWithin > 0 { // else it is a place in a queue, which ends by itself
			p.leave = held.Leave
		}
		if p.Hold == nil && held.Undo != nil {
			p.Hold = refusal.Leftover(held.Undo)
		}
		if err != nil {
			return fmt.Errorf("%w (%w)", locker.ErrHeld, err)
		}
		return locker.ErrHeld
	}
	return err
}

var (
	_ driver.TokenRaiser = (*hold)(nil)
	_ driver.Aser        = (*hold)(nil)
)

// each calls f for both services concurrently, and returns their errors. An unknown outcome takes
// precedence over a loss, so that the engine tries again.
func (h *hold) each(f func(i int) error) error {
	errs := h.b.both(f)
	if errs[0] == nil || errs[1] != nil && errors.Is(errs[0], locker.ErrLost) {
		return errs[1]
	}
	return errs[0]
}

// Renew renews both. The lease lasts while both last; if one is lost, both are.
func (h *hold) Renew(ctx context.Context) (driver.Validity, error) {
	var v [2]driver.Validity
	errs := h.b.both(func(i int) (err error) {
		v[i], err = h.on[i].Renew(ctx)
		return err
	})
	if errors.Is(errs[1], locker.ErrLost) {
		return driver.Validity{}, errs[1]
	}
	return ofBoth(v[0], v[1]), cmp.Or(errs[0], errs[1])
}

// ofBoth returns the validity of a lock on both services: from before the first request was sent until
// the earlier end.
func ofBoth(a, b driver.Validity) driver.Validity {
	if b.Until().Before(a.Until()) {
		a, b = b, a
	}
	if a.TTL == 0 || !b.Since.Before(a.Since) {
		return a
	}
	end := a.Since.Add(a.TTL)
	return driver.Validity{Since: b.Since, TTL: end.Sub(b.Since), Drift: end.Sub(a.Until())}
}

// Release releases both concurrently, at once or when keep has passed.
func (h *hold) Release(ctx context.Context, keep time.Duration) error {
	return h.each(func(i int) error {
		if h.on[i].Hold == nil {
			return nil // it was never asked
		}
		return h.on[i].Release(ctx, keep)
	})
}

// Undo undoes both (R7).
func (h *hold) Undo(ctx context.Context) error {
	return h.each(func(i int) error {
		p := h.on[i]
		if p.leave != nil {
			_ = p.leave(ctx) // the note expires by itself
		}
		if p.Hold == nil {
			return nil
		}
		return p.Undo(ctx)
	})
}

// RaiseToken implements [driver.TokenRaiser], on both.
func (h *hold) RaiseToken(ctx context.Context, token uint64) error {
	return h.each(func(i int) error { return h.raise(ctx, i, token) })
}

// raise makes one service grant only tokens above this one from now on.
func (h *hold) raise(ctx context.Context, i int, token uint64) error {
	base := h.b.sides[i].base
	if token <= base {
		return nil // the base is added to every token
	}
	r, ok := h.on[i].Hold.(driver.TokenRaiser)
	if !ok {
		return fmt.Errorf("its tokens are behind, and cannot be raised: write token_base=%d or more into its URL, "+
			"also when it is the only one: %w", token, errors.ErrUnsupported)
	}
	return r.RaiseToken(ctx, token-base)
}

// As asks both holds, the first one first.
func (h *hold) As(target any) bool {
	if remains, ok := target.(*probe.Remains); ok {
		*remains = func(ctx context.Context) error {
			return h.each(func(i int) error {
				var of probe.Remains
				if a, ok := h.on[i].Hold.(driver.Aser); ok && a.As(&of) {
					return of(ctx)
				}
				return nil
			})
		}
		return true
	}
	for _, p := range h.on {
		if a, ok := p.Hold.(driver.Aser); ok && a.As(target) {
			return true
		}
	}
	return false
}
