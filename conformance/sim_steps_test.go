package conformance_test

import (
	"context"
	"time"
)

// acquireIn sends what makes an acquire: one request, or with a flaw two, of
// which the second builds on the reply to the first.
func (c *client) acquireIn(ctx context.Context, h *hold, wait bool) (any, error) {
	s := c.service()
	switch s.flaw {
	case sharesInTwoSteps:
		if h.place.shared {
			return c.shareInTwoSteps(ctx, h)
		}
	case acquireInTwoSteps:
		found, err := c.net.call(ctx, func() any { return s.found(h) })
		if err == nil && !found.(foundBy).another {
			return c.net.call(ctx, func() any { return s.put(h) })
		}
		if err != nil {
			return nil, err
		}
	case grantInSteps:
		lock := func(by *client) { s.do(func() { s.rows[s.key(h.name)] = by }) }
		if _, err := c.net.call(ctx, func() any { lock(c); return nil }); err != nil {
			lock(nil)
			return nil, err
		}
		answer, err := c.net.call(ctx, func() any {
			defer lock(nil)
			return s.acquire(h.place, h.name, wait)
		})
		if err != nil {
			lock(nil)
		}
		return answer, err
	case tokenLater:
		first, err := c.net.call(ctx, func() any { return s.acquire(h.place, h.name, wait) })
		if err != nil || !first.(verdict).granted {
			return first, err
		}
		return c.net.call(ctx, func() (a any) {
			s.do(func() {
				s.tokens[h.name]++
				a = verdict{granted: true, token: s.tokens[h.name]}
			})
			return a
		})
	case expiryInTwoSteps:
		forever := h.place
		forever.ttl *= 1000
		first, err := c.net.call(ctx, func() any { return s.acquire(forever, h.name, wait) })
		if err != nil || !first.(verdict).granted {
			return first, err
		}
		if _, err := c.net.call(ctx, func() any {
			_,
				err := s.renew(h.place, h.name)
			return err
		}); err != nil {
			return nil, err
		}
		return first, nil
	}
	return c.net.call(ctx, func() any { return s.acquire(h.place, h.name, wait) })
}

// foundBy is who has a lock, from the view of a hold.
type foundBy struct{ owner, another bool }

// found looks who has the lock.
func (s *service) found(h *hold) (f foundBy) {
	s.do(func() {
		if rec := s.live(s.key(h.name)); rec != nil {
			f.owner = rec.owner == h.place.owner
			f.another = !f.owner
		}
	})
	return f
}

// put takes the lock, whoever has it.
func (s *service) put(h *hold) (v verdict) {
	s.do(func() { v = verdict{granted: true, token: s.grant(s.key(h.name), h.place).token} })
	return v
}

// twoSteps reports whether a flaw makes two requests of a Release or a Renew.
func (s *service) twoSteps(releasing bool) bool {
	if releasing {
		return s.flaw == releaseInTwoSteps || s.flaw == sessionReleaseInTwoSteps
	}
	return s.flaw == renewInTwoSteps
}

// sendTwo looks who has the lock, and then removes or renews it, whoever has
// it by then.
func (h *hold) sendTwo(ctx context.Context, releasing bool) (found bool, err error) {
	c, s := h.client, h.client.service()
	a, err := c.net.call(ctx, func() any { return s.found(h) })
	if err != nil || !a.(foundBy).owner {
		return false, err
	}
	a, err = c.net.call(ctx, func() any {
		there := false
		s.do(func() {
			name := s.key(h.name)
			rec := s.live(name)
			if there = rec != nil; !there {
				return
			}
			if releasing {
				s.remove(name)
				return
			}
			rec.expires = time.Now().Add(s.lifetime(h.place.ttl))
			s.arm(name, rec)
		})
		return there
	})
	if err != nil {
		return false, err
	}
	return a.(bool), nil
}
