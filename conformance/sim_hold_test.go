package conformance_test

import (
	"context"
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
}

// Renew gives the hold another TTL.
func (h *hold) Renew(ctx context.Context) (locker.Validity, error) {
	c, s := h.client, h.client.service
	since := time.Now()
	if s.flaw == renewalHangs {
		ctx = s.stubborn(ctx)
	}
	if s.flaw == renewalMadeUp {
		go func() {
			_, _ = c.net.call(ctx, func() any { _, err := s.renew(h.place, h.name); return err })
		}()
		return c.validity(since, h.place.ttl), nil
	}
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

// Release removes the hold.
func (h *hold) Release(ctx context.Context) error {
	s := h.client.service
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
	if h.client.isClosed() && h.client.service.flaw != closeForgets {
		return false, locker.ErrClosed
	}
	if h.client.service.twoSteps(releasing) {
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
