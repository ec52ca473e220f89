package bridge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/probe"
)

// hold is a lock on both services, or what an attempt may have left there.
type hold struct {
	b   *Backend
	ttl time.Duration
	on  [2]part
}

// part is the hold on one service.
type part struct {
	locker.Hold      // nil: nothing
	granted     bool // for certain

	leave func(ctx context.Context) error // removes the note of a writer that waits; nil: there is none
}

// answered takes what the service has answered to the last request.
func (p *part) answered(g locker.Grant, err error) {
	p.Hold, p.granted = g.Hold, err == nil && g.Hold != nil
	var held *locker.HeldError
	switch {
	case p.granted:
		p.leave = nil // the grant has removed it
	case errors.As(err, &held):
		p.leave = nil
		if held.AskWithin > 0 { // else it is a place in a line, which ends by itself
			p.leave = held.Leave
		}
	}
}

var (
	_ locker.TokenRaiser = (*hold)(nil)
	_ locker.Aser        = (*hold)(nil)
)

// each calls f for both services at the same time, and returns their errors. An
// unknown outcome goes before a loss, so that the engine tries again.
func (h *hold) each(f func(i int) error) error {
	second := make(chan error, 1)
	go func() { second <- h.b.sides[1].fail(f(1)) }()
	err := h.b.sides[0].fail(f(0))
	other := <-second
	if err == nil || other != nil && errors.Is(err, locker.ErrLost) {
		return other
	}
	return err
}

// Renew renews both. The lease lasts as long as both last; if one is lost, both are.
func (h *hold) Renew(ctx context.Context) (locker.Validity, error) {
	var v [2]locker.Validity
	var lost [2]error
	err := h.each(func(i int) (err error) {
		v[i], err = h.on[i].Renew(ctx)
		if errors.Is(err, locker.ErrLost) {
			lost[i] = h.b.sides[i].fail(err)
		}
		return err
	})
	for i := range lost {
		if lost[i] != nil {
			return locker.Validity{}, lost[i]
		}
	}
	return earlier(v[0], v[1]), err
}

// earlier returns the validity that ends first.
func earlier(a, b locker.Validity) locker.Validity {
	if b.Until().Before(a.Until()) {
		return b
	}
	return a
}

// countedFrom returns v with an earlier beginning, before the first of two requests was
// sent, and the same end.
func countedFrom(since time.Time, v locker.Validity) locker.Validity {
	if v.TTL == 0 || !since.Before(v.Since) {
		return v
	}
	end := v.Since.Add(v.TTL)
	return locker.Validity{Since: since, TTL: end.Sub(since), Drift: end.Sub(v.Until())}
}

// Release releases both at the same time.
func (h *hold) Release(ctx context.Context) error {
	err := h.each(func(i int) error {
		if h.on[i].Hold == nil {
			return nil // it was never asked
		}
		return h.on[i].Release(ctx)
	})
	if err == nil || errors.Is(err, locker.ErrLost) {
		h.b.forget(h)
	}
	return err
}

// Undo undoes both (R7).
func (h *hold) Undo(ctx context.Context) error {
	err := h.each(func(i int) error {
		p := h.on[i]
		if p.leave != nil {
			_ = p.leave(ctx) // the note ends by itself
		}
		if p.Hold == nil {
			return nil
		}
		return p.Undo(ctx)
	})
	if err == nil {
		h.b.forget(h)
	}
	return err
}

// RaiseToken implements [locker.TokenRaiser], on both.
func (h *hold) RaiseToken(ctx context.Context, token uint64) error {
	return h.each(func(i int) error { return h.raise(ctx, i, token) })
}

// raise makes one service give out higher tokens than this one from now on.
func (h *hold) raise(ctx context.Context, i int, token uint64) error {
	base := h.b.sides[i].base
	if token <= base {
		return nil // it is added to every token
	}
	r, ok := h.on[i].Hold.(locker.TokenRaiser)
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
				if a, ok := h.on[i].Hold.(locker.Aser); ok && a.As(&of) {
					return of(ctx)
				}
				return nil
			})
		}
		return true
	}
	for _, p := range h.on {
		if a, ok := p.Hold.(locker.Aser); ok && a.As(target) {
			return true
		}
	}
	return false
}
