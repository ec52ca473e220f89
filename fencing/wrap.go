package fencing

import (
	"context"
	"fmt"
	"time"

	"github.com/golockers/locker"
)

// Counter draws tokens from a store that its user trusts. Packages etcdguard,
// zkguard and sqlguard have ready-made ones.
//
// One that also implements [locker.Prompt] keeps what that promises for Next.
type Counter interface {
	// Next returns a number greater than every one that it returned for name
	// before, whoever asked; 1 is the lowest. Numbers may be left out. If the
	// store cannot be asked, the error matches [locker.ErrUnavailable].
	Next(ctx context.Context, name string) (uint64, error)

	// Fencing says when its numbers can be relied on to rise; it is what the
	// wrapped backend claims. It does no I/O.
	Fencing() locker.Fencing
}

// Wrap returns a backend that is b with tokens from c, in the place of b's own
// if it has any. The caller keeps both and closes c, if that is needed, after
// the Client; Close closes b.
//
// Each Acquire draws a token after b has granted the lock, and then looks
// whether the grant is still valid: if it is not, or no token could be had, the
// lock is given back. So a token was drawn while its holder held the lock, and
// tokens rise from holder to holder as far as b keeps holders apart.
//
// That is weaker than a token that the lock service draws in the same step as
// it grants: where b itself fails (a clock jumps, a server loses data) two
// holders hold at once, and the one that draws later has the higher token even
// if the lock was given to it first. The resource then still sees no write of
// the lower token after one of the higher, but which of the two it obeys is
// chance. And it costs the counter's round trip for each Acquire.
func Wrap(b locker.Backend, c Counter) locker.Backend {
	w := &wrapped{Backend: b, counter: c}
	n, canNotify := b.(locker.Notifier)
	i, canInspect := b.(locker.Inspector)
	switch {
	case canNotify && canInspect:
		return struct {
			*wrapped
			locker.Notifier
			locker.Inspector
		}{w, n, inspector{i}}
	case canNotify:
		return struct {
			*wrapped
			locker.Notifier
		}{w, n}
	case canInspect:
		return struct {
			*wrapped
			locker.Inspector
		}{w, inspector{i}}
	}
	return w
}

type wrapped struct {
	locker.Backend
	counter Counter
}

// Acquire is the backend's, and a token.
func (w *wrapped) Acquire(ctx context.Context, req locker.Request) (locker.Grant, error) {
	grant, err := w.Backend.Acquire(ctx, req)
	if err != nil || grant.Hold == nil {
		return grant, err
	}
	until, draw := grant.Validity.Until(), ctx
	if !until.IsZero() {
		var cancel context.CancelFunc
		draw, cancel = context.WithDeadline(ctx, until)
		defer cancel()
	}
	// An error beside a Grant: the engine takes back what was granted (R7).
	grant.Token, err = w.counter.Next(draw, req.Name)
	switch {
	case err != nil && draw.Err() != nil && ctx.Err() == nil:
		// Not the caller's deadline: it must not look like that.
		return grant, fmt.Errorf("the lock was granted, but was over before a fencing token was drawn for it (%s): %w", err.Error(), locker.ErrUnavailable)
	case err != nil:
		return grant, fmt.Errorf("the lock was granted, but no fencing token could be drawn for it: %w", err)
	case grant.Token == 0:
		return grant, fmt.Errorf("the lock was granted, but its counter returned 0: %w", ErrMissing)
	case over(until, time.Now()):
		return grant, fmt.Errorf("the lock was granted, but was over before its fencing token was drawn: %w", locker.ErrUnavailable)
	}
	return grant, nil
}

// over looks at both clocks: the monotonic one stands still while a machine
// sleeps (R4).
func over(until, now time.Time) bool {
	return !until.IsZero() && (!now.Before(until) || !now.Round(0).Before(until.Round(0)))
}

// Guarantees are the backend's, with the counter's fencing.
func (w *wrapped) Guarantees() locker.Guarantees {
	g := w.Backend.Guarantees()
	g.Fencing = w.counter.Fencing()
	g.NoFencing = ""
	g.RestsOn += "; tokens come from a counter of its own and are drawn after the lock was granted"
	return g
}

// Prompt is kept if both keep it.
func (w *wrapped) Prompt() bool {
	b, ok := w.Backend.(locker.Prompt)
	if !ok || !b.Prompt() {
		return false
	}
	c, ok := w.counter.(locker.Prompt)
	return ok && c.Prompt()
}

// inspector leaves out a token that is the backend's own and not the holder's.
type inspector struct{ locker.Inspector }

// Inspect reports what the service knows, without the token.
func (i inspector) Inspect(ctx context.Context, name string) (locker.State, error) {
	st, err := i.Inspector.Inspect(ctx, name)
	st.Token = 0
	return st, err
}
