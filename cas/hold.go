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

	undo driver.Undo // for a store that ends what it keeps by its age

	mu   sync.Mutex
	keep time.Time // until when MinHold lasts
	gone bool      // Undo has settled it
}

// granted: MinHold counts from the reply.
func (h *hold) granted(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.req.MinHold > 0 {
		h.keep = now.Add(h.req.MinHold)
	}
}

// sends is told before each request that may store or prolong the hold. A nil hold has none.
func (h *hold) sends() {
	if h != nil {
		h.undo.Sends(max(h.req.TTL, h.req.MinHold))
	}
}

func (h *hold) sent() {
	if h != nil {
		h.undo.Sent(false) // what is late is void once Undo has written
	}
}

func (h *hold) lost() error {
	return fmt.Errorf("%s: the record of %.60q has another holder, or none: %w", h.b.promises.Backend, h.req.Name, driver.ErrLost)
}

// change makes an edit of a record that has to have the hold.
func (h *hold) change(ctx context.Context, e edit, was *bool) (o outcome, err error) {
	e.key = h.req.Name
	if o, err = h.b.change(ctx, e); err == nil && !*was {
		err = h.lost()
	}
	return o, err
}

// Renew implements [driver.Hold]. It writes the longer of the TTL and what remains of MinHold.
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

// remove writes the record once, whether or not the hold is in it: a request of the hold that is still under way is
// under an older version then, and void; and an old record, which does not have it yet, is not taken for the last one.
func (h *hold) remove(ctx context.Context) (was bool, err error) {
	_, err = h.b.change(ctx, edit{key: h.req.Name, decide: func(l look, now time.Time) (record, bool) {
		was = indexOf(l.Holders, h.req.Owner) >= 0
		next, _ := l.remove(func(e entry) bool { return e.Owner == h.req.Owner }, l.sight, now)
		return next, true
	}})
	return was, err
}

// Release implements [driver.Hold].
func (h *hold) Release(ctx context.Context) error {
	was, err := h.remove(ctx)
	if err == nil && !was {
		err = h.lost()
	}
	return err
}

// Undo implements [driver.Hold]. Only where the store knows the age of a record does time settle it, too:
// elsewhere what is left is there until somebody has watched it.
func (h *hold) Undo(ctx context.Context) error {
	_, err := h.remove(ctx)
	if err != nil && h.b.promises.Ages {
		err = h.undo.Undo(ctx, func(context.Context) error { return err })
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gone = h.gone || err == nil // a Renew must not find it, where time has settled it
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
