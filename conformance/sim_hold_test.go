package conformance_test

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/golockers/locker"
)

// hold is a locker.Hold.
type hold struct {
	client *client
	place  place
	name   string
	ctx    context.Context // of the acquire, for the flaw of using it
	since  time.Time       // of the grant
	busy   atomic.Bool     // for the flaw of one renewal at a time
	undo   locker.Undo
}

// beats renews the session that the holds of c share.
func (c *client) beats() {
	const ttl = time.Second
	ticker := time.NewTicker(ttl / 5)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-c.closed:
			return
		}
		sent := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), ttl)
		_, err := c.net.call(ctx, func() any {
			c.mu.Lock()
			defer c.mu.Unlock()
			for h := range c.holds {
				_, _ = c.service().renew(h.place, h.name)
			}
			return nil
		})
		cancel()
		if c.service().flaw == sinceFromBeat {
			sent = time.Now()
		}
		if err == nil {
			c.mu.Lock()
			c.beat = sent
			c.mu.Unlock()
		}
	}
}

// RaiseToken makes every later holder's token greater.
func (h *hold) RaiseToken(ctx context.Context, token uint64) error {
	found, err := h.send(ctx, false, func() (bool, error) {
		return h.client.service().raise(h.place, h.name, token)
	})
	if err == nil && !found {
		return locker.ErrLost
	}
	return err
}

// Renew gives the hold another TTL.
func (h *hold) Renew(ctx context.Context) (locker.Validity, error) {
	c, s := h.client, h.client.service()
	if c.kind.shared {
		c.mu.Lock()
		defer c.mu.Unlock()
		first := c.holds == nil
		if first {
			c.holds, c.beat = map[*hold]bool{}, h.since
			go c.beats()
		}
		c.holds[h] = true
		return c.validity(c.beat, h.place.ttl), nil
	}
	since := time.Now()
	if s.flaw == renewsAlone {
		if !h.busy.CompareAndSwap(false, true) {
			return locker.Validity{}, errors.New("busy")
		}
		defer h.busy.Store(false)
	}
	if s.flaw == renewalHangs {
		ctx = s.stubborn(ctx)
	}
	if s.flaw == renewalMadeUp {
		go func() {
			_, _ = c.net.call(ctx, func() any { _, err := s.renew(h.place, h.name); return err })
		}()
		return c.validity(since, h.place.ttl), nil
	}
	h.undo.Sends(h.place.ttl)
	defer h.undo.Sent(false)
	renew := func() (bool, error) { return s.renew(h.place, h.name) }
	found, err := h.send(ctx, false, renew)
	switch {
	case err != nil && s.flaw == outageIsLoss, err == nil && !found:
		return locker.Validity{}, locker.ErrLost
	case err != nil:
		return locker.Validity{}, err
	case s.flaw == renewalStale:
		since = h.since
	case s.flaw == sinceFromRenewal:
		since = time.Now()
	case s.flaw == renewalShort:
		return c.validity(since, h.place.ttl/2), nil
	case s.flaw == lostTooOften:
		h.place.lost()
	}
	return c.validity(since, h.place.ttl), nil
}

// Undo is that of a service whose locks end with their TTL.
func (h *hold) Undo(ctx context.Context) error { return h.undo.Undo(ctx, h.Release) }

// Release removes the hold.
func (h *hold) Release(ctx context.Context) error {
	s := h.client.service()
	release := func() (bool, error) { return s.release(h.name, h.place.owner) }
	switch s.flaw {
	case releaseHangs:
		ctx = s.stubborn(ctx)
	case releaseInContextOfAcquire:
		ctx = h.ctx
	case releaseForgets:
		release = func() (bool, error) { return true, nil }
	case releaseLater:
		time.AfterFunc(50*time.Millisecond, func() { _, _ = s.release(h.name, h.place.owner) })
		release = func() (bool, error) { return true, nil }
	}
	found, err := h.send(ctx, true, release)
	switch {
	case s.flaw == releaseTakesOutageForLoss && err != nil:
		return locker.ErrLost
	case s.flaw == releaseMadeUp, s.flaw == releaseAlwaysFine && err == nil:
		return nil
	case err != nil:
		return err
	case !found:
		return locker.ErrLost
	}
	return nil
}

func (h *hold) send(ctx context.Context, releasing bool, op func() (bool, error)) (found bool, err error) {
	if h.client.isClosed() && h.client.service().flaw != closeForgets {
		return false, locker.ErrClosed
	}
	if err := h.client.queueForRow(ctx, h.name); err != nil {
		return false, err
	}
	if releasing {
		defer h.client.keepRow(h.name, releaseUncommitted)
	}
	if h.client.service().twoSteps(releasing) {
		return h.sendTwo(ctx, releasing)
	}
	type answer struct {
		found bool
		err   error
	}
	a, err := h.client.net.call(ctx, func() any {
		found, err := op()
		return answer{found, err}
	})
	if err != nil {
		return false, err
	}
	return a.(answer).found, a.(answer).err
}
