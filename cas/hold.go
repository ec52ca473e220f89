package cas

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/golockers/locker/driver"
)

// hold is a lock that was granted, or may have been.
type hold struct {
	b   *backend
	req driver.Request

	undo driver.Undo // for a store that knows ages

	mu   sync.Mutex
	keep time.Time // the end of MinHold
	gone bool      // Undo has settled it
}

// granted starts the MinHold, which counts from the reply.
func (h *hold) granted(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.req.MinHold > 0 {
		h.keep = now.Add(h.req.MinHold)
	}
}

// sends is called before each request that may store or prolong the hold. A nil hold ignores it.
func (h *hold) sends() {
	if h != nil {
		h.undo.Sends(max(h.req.TTL, h.req.MinHold))
	}
}

func (h *hold) sent() {
	if h != nil {
		h.undo.Sent(false) // a late request is void once Undo has written
	}
}

func (h *hold) lost() error {
	return fmt.Errorf("%s: the record of %.60q has another holder, or none: %w", h.b.promises.Backend, h.req.Name, driver.ErrLost)
}

// change makes an edit of a record that must contain the hold.
func (h *hold) change(ctx context.Context, e edit, was *bool) (o outcome, err error) {
	e.key = h.req.Name
	if o, err = h.b.change(ctx, e); err == nil && !*was {
		err = h.lost()
	}
	return o, err
}

// Renew implements [driver.Hold]. It writes the TTL or the rest of MinHold, whichever is longer.
func (h *hold) Renew(ctx context.Context) (driver.Validity, error) {
	var was bool
	o, err := h.change(ctx, edit{stores: h, decide: func(l look, now time.Time) (next record, write bool) {
		h.mu.Lock()
		defer h.mu.Unlock()
		next, was = l.renew(h.req.Owner, max(h.req.TTL, h.keep.Sub(now)), l.sight, now)
		was = was && !h.gone
		return next, was
	}}, &was)
	if err != nil {
		return driver.Validity{}, err
	}
	return driver.Validity{Since: o.since, TTL: h.req.TTL}, nil
}

// end removes the hold or, for keep, marks it as kept. It writes the record once, whether or not the
// hold is in it. A request of the hold that is still in flight is then under an older version, and
// void; and a stale read that does not show the hold yet cannot pass for the current record.
func (h *hold) end(ctx context.Context, keep time.Duration) (was bool, err error) {
	e := edit{key: h.req.Name, decide: func(l look, now time.Time) (next record, write bool) {
		was = indexOf(l.Holders, h.req.Owner) >= 0
		next, _ = l.remove(func(e entry) bool { return e.Owner == h.req.Owner }, l.sight, now)
		return next, true
	}}
	if keep > 0 {
		e.stores, e.decide = h, func(l look, now time.Time) (next record, write bool) {
			next, was = l.keep(h.req.Owner, keep, l.sight, now)
			return next, true
		}
	}
	_, err = h.b.change(ctx, e)
	return was, err
}

// Release implements [driver.Hold].
func (h *hold) Release(ctx context.Context, keep time.Duration) error {
	was, err := h.end(ctx, keep)
	if err == nil && !was {
		err = h.lost()
	}
	return err
}

// Undo implements [driver.Hold]. Time settles it only if the store knows the age of a record: otherwise
// what is left stays until a client has watched it.
func (h *hold) Undo(ctx context.Context) error {
	_, err := h.end(ctx, 0)
	if err != nil && h.b.promises.Ages {
		err = h.undo.Undo(ctx, func(context.Context) error { return err })
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gone = h.gone || err == nil // if time has settled it, a Renew must not find it
	return err
}

// RaiseToken implements [driver.TokenRaiser].
func (h *hold) RaiseToken(ctx context.Context, token uint64) error {
	if token > driver.MaxToken {
		return fmt.Errorf("%w: the token %d is above MaxToken", driver.ErrInvalid, token)
	}
	var was bool
	_, err := h.change(ctx, edit{decide: func(l look, now time.Time) (next record, write bool) {
		next, was = l.raise(h.req.Owner, token, l.sight, now)
		return next, was && next.Last > l.Last
	}}, &was)
	return err
}
