package conformance_test

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
)

// hold is a driver.Hold.
type hold struct {
	place
	ctx   context.Context // of the acquire, for the flaw of using it
	since time.Time       // of the grant
	busy  atomic.Bool     // for the flaw of one renewal at a time
	undo  driver.Undo
	gone  atomic.Bool // it was told so

	number uint8 // for the flaw of looking for holds by it
}

// RaiseToken makes every later holder's token greater.
func (h *hold) RaiseToken(ctx context.Context, token uint64) error {
	found, err := h.send(ctx, false, func(l *lock) bool { return h.client.raise(l, h.place, token) })
	if err == nil && !found {
		return locker.ErrLost
	}
	return err
}

// Renew gives the hold another TTL.
func (h *hold) Renew(ctx context.Context) (driver.Validity, error) {
	c, since, ttl := h.client, time.Now(), h.TTL
	renew := func(l *lock) bool { return c.renew(l, h.place) }
	switch c.flaw {
	case renewsAlone:
		if !h.busy.CompareAndSwap(false, true) {
			return driver.Validity{}, errors.New("busy")
		}
		defer h.busy.Store(false)
	case renewsNoMore:
		c.own.Lock()
		had := len(c.numbered)
		c.own.Unlock()
		if had > 256 {
			return c.validity(since, ttl), nil
		}
	case renewalHangs:
		ctx = c.stubborn(ctx)
	case renewalMadeUp:
		go func() { _, _ = ask(ctx, c, h.Name, renew) }()
		return c.validity(since, ttl), nil
	}
	h.undo.Sends(ttl)
	defer h.undo.Sent(false)
	found, err := h.send(ctx, false, renew)
	switch {
	case err != nil && c.flaw == outageIsLoss, err == nil && !found:
		return driver.Validity{}, locker.ErrLost
	case err != nil:
		return driver.Validity{}, err
	case c.flaw == renewalStale:
		since = h.since
	case c.flaw == sinceFromRenewal:
		since = time.Now()
	case c.flaw == renewalShort:
		ttl /= 2
	case c.flaw == renewalOfMinHold:
		ttl = max(ttl, h.MinHold)
	case c.flaw == lostTooOften:
		h.Lost()
	}
	return c.validity(since, ttl), nil
}

// Undo is that of a service whose locks end with their TTL.
func (h *hold) Undo(ctx context.Context) error {
	return h.undo.Undo(ctx, func(ctx context.Context) error { return h.remove(ctx, h.client.flaw != undoLeavesNote, 0) })
}

// Release removes the hold, at once or when keep has passed.
func (h *hold) Release(ctx context.Context, keep time.Duration) error {
	return h.remove(ctx, false, keep)
}

// remove removes the hold, when keep has passed, and the note of its client.
func (h *hold) remove(ctx context.Context, note bool, keep time.Duration) error {
	c := h.client
	release := func(l *lock) bool {
		if keep > 0 {
			return c.keep(l, h.Owner, keep)
		}
		if note && h.Wait && !h.Shared {
			delete(l.notes, c.noteOf(h.place))
		}
		return c.release(l, h.Owner)
	}
	switch c.flaw {
	case releaseHangs:
		ctx = c.stubborn(ctx)
	case releaseInContextOfAcquire:
		ctx = h.ctx
	case releaseForgets, releaseLater:
		if later := release; c.flaw == releaseLater {
			time.AfterFunc(50*time.Millisecond, func() { c.do(func() { later(c.look(h.Name)) }) })
		}
		release = func(*lock) bool { return true }
	}
	found, err := h.send(ctx, true, release)
	switch {
	case c.flaw == releaseTakesOutageForLoss && err != nil:
		return locker.ErrLost
	case c.flaw == releaseMadeUp, c.flaw == releaseAlwaysFine && err == nil:
		return nil
	case err == nil && !found:
		return locker.ErrLost
	}
	return err
}

func (h *hold) send(ctx context.Context, releasing bool, op func(*lock) bool) (found bool, err error) {
	c := h.client
	if c.isClosed() && c.flaw != closeForgets {
		return false, locker.ErrClosed
	}
	if releasing && (c.flaw == releaseInTwoSteps || c.flaw == sessionReleaseInTwoSteps) ||
		!releasing && c.flaw == renewInTwoSteps { // it removes or renews it, whoever has it by then
		own := func(l *lock) bool { return c.before(l, h.place) != nil }
		if found, err = ask(ctx, c, h.Name, own); err != nil || !found {
			return false, err
		}
		op = func(l *lock) bool {
			alone := l.of(false)
			for _, rec := range alone {
				if releasing {
					c.remove(l, rec)
				} else {
					c.prolong(l, rec, c.lifetime(h.TTL))
				}
			}
			return len(alone) > 0
		}
	}
	name := h.Name
	if c.flaw == holdsInAByte {
		c.own.Lock()
		name = c.numbered[h.number]
		c.own.Unlock()
	}
	return ask(ctx, c, name, op)
}

// sessionHold is a hold of a service whose sessions keep what they hold.
type sessionHold struct{ *hold }

// Undo makes the attempt's owner void, so that nothing of it can come.
func (h sessionHold) Undo(ctx context.Context) error {
	_, err := h.send(ctx, true, func(l *lock) bool {
		h.client.voided[h.Owner] = h.client.flaw != forgetsVoid
		return h.client.release(l, h.Owner)
	})
	if h.gone.Load() {
		return nil
	}
	return err
}

// passingHold is a hold that can be passed on.
type passingHold struct{ *hold }

// Pass releases the hold and acquires the lock for next, in one step.
func (h passingHold) Pass(ctx context.Context, next driver.Request, yield bool) (driver.Grant, error) {
	c := h.client
	n := c.hold(ctx, next)
	n.undo.Sends(max(next.TTL, next.MinHold))
	late := true
	defer func() { n.undo.Sent(late) }()
	switch c.flaw {
	case passesSame:
		n.Owner = h.Owner
	case passHangs:
		ctx = c.stubborn(ctx)
	}
	if c.isClosed() && c.flaw != closeForgets {
		return driver.Grant{Hold: passingHold{n}}, locker.ErrClosed
	}
	v, err := ask(ctx, c, h.Name, func(l *lock) verdict { return c.pass(l, h.Owner, n.place, yield) })
	if err == nil {
		err = v.err
	}
	switch {
	case err != nil && c.flaw == passLeaves:
		return driver.Grant{}, err
	case err != nil:
		return driver.Grant{Hold: passingHold{n}}, err
	case v.lost:
		return driver.Grant{}, locker.ErrLost
	case !v.granted:
		return driver.Grant{}, nil
	}
	late = false
	if c.flaw == passSinceReply {
		n.since = time.Now()
	}
	return driver.Grant{Hold: passingHold{n}, Validity: c.validity(n.since, n.TTL), Token: v.token}, nil
}
