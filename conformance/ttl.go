package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/golockers/locker"
)

func ttlChecks() []check {
	return []check{
		{
			Name: "ttl-bounds",
			Promise: "TTLs within MinTTL and MaxTTL work; others are refused with an error that names " +
				"the bounds (R16).",
			run: checkTTLBounds,
		},
		{
			Name: "ttl-kept",
			Promise: "A TTL is never shortened: the service keeps a lock for at least what was asked for " +
				"and what it granted (R16).",
			run: checkTTLKept,
		},
	}
}

// The engine's own bounds.
const (
	engineMin = 10 * time.Millisecond
	engineMax = 366 * 24 * time.Hour
)

func checkTTLBounds(s *trial) {
	c, other := s.client(), s.client()
	lo, hi := max(s.g.MinTTL, engineMin), min(cmp.Or(s.g.MaxTTL, engineMax), engineMax)
	for _, ttl := range []time.Duration{0, -time.Second, 500 * time.Microsecond, lo - 1, hi + 1,
		400 * 24 * time.Hour, math.MaxInt64} {
		_, err := s.tryLock(c, s.name("refused"), locker.TTL(ttl))
		switch {
		case err == nil:
			s.broken(fmt.Sprintf("a TTL of %v was granted", ttl), "an engine that does not check TTLs")
		case !strings.Contains(err.Error(), lo.String()) || !strings.Contains(err.Error(), hi.String()):
			s.broken(fmt.Sprintf("a TTL of %v was refused with %q, which does not name the bounds %v and %v",
				ttl, err, lo, hi), "an error that says what is wrong and not what to do")
		}
	}
	s.unlock(s.try(other, s.name("refused"), locker.TTL(s.ttl)))

	// At the backend, where nobody renews or takes too long.
	b := s.backend()
	for _, ttl := range []time.Duration{lo, hi} {
		name := s.name("bound-" + ttl.String())
		var grant locker.Grant
		var err error
		// The least TTL may be over before the answer is there.
		if !s.eventually(s.soon, func() bool {
			grant, err = s.ask(b, name, ttl)
			return err == nil
		}) {
			s.broken(fmt.Sprintf("Acquire of a free name with a TTL of %v failed: %v", ttl, err),
				"MinTTL or MaxTTL of the Guarantees promise too much")
		}
		if v := grant.Validity.TTL; v != 0 && v < ttl {
			s.broken(fmt.Sprintf("a TTL of %v was asked for and granted as %v", ttl, v),
				"the TTL is rounded down, or overflows")
		}
		v, err := grant.Hold.Renew(s.within(s.patience()))
		if short := errors.Is(err, locker.ErrLost) && ttl < time.Second; err != nil && !short {
			s.broken(fmt.Sprintf("Renew of a hold with a TTL of %v failed: %v", ttl, err),
				"MinTTL or MaxTTL of the Guarantees promise too much, or the TTL overflows")
		}
		if err == nil && v.TTL != 0 && v.TTL < ttl {
			s.broken(fmt.Sprintf("a TTL of %v was asked for and renewed as %v", ttl, v.TTL),
				"the TTL is rounded down, or overflows")
		}
		_ = grant.Hold.Release(s.within(s.patience()))
		s.unlock(s.freeWithin(s.freedWithin(max(grant.Validity.TTL, lo)), other, name,
			"Release does not find its own key"))
	}
}

// checkTTLKept asks for TTLs that lie between what services count in.
func checkTTLKept(s *trial) {
	b, other := s.backend(), s.backend()
	odd := []time.Duration{s.ttl, s.ttl + s.ttl/2, s.ttl + 999*time.Microsecond, 2*s.ttl - time.Nanosecond}
	type hold struct {
		name  string
		ttl   time.Duration
		grant locker.Grant
		until time.Time
	}
	var holds []hold
	for i, ttl := range slices.Concat(odd, odd) {
		if s.g.MaxTTL != 0 && ttl > s.g.MaxTTL {
			continue
		}
		renew := i >= len(odd) // a renewal is rounded in a place of its own
		h := hold{name: s.name(fmt.Sprintf("kept-%v-%t", ttl, renew)), ttl: ttl}
		h.grant = s.acquire(b, s.request(h.name, ttl))
		v := h.grant.Validity
		if v.TTL == 0 {
			s.release(h.grant.Hold)
			continue
		}
		if v.TTL < ttl {
			s.broken(fmt.Sprintf("a TTL of %v was asked for and granted as %v", ttl, v.TTL),
				"the TTL is rounded down to what the service counts in")
		}
		if renew {
			v = s.renew(h.grant.Hold)
			h.grant.Validity = v
		}
		// What the holder goes by is Until; what others go by is the TTL.
		h.until = later(v.Since.Add(v.TTL), v.Until())
		holds = append(holds, h)
	}
	// All at once: asking for each until it is free, or its promise is over.
	for len(holds) > 0 && s.Context().Err() == nil {
		rest := holds[:0]
		for _, h := range holds {
			ctx, cancel := context.WithTimeout(s.Context(), s.patience())
			grant, err := other.Acquire(ctx, s.request(h.name, s.long))
			cancel()
			in := time.Now()
			switch {
			case err == nil && in.Before(h.until):
				v := h.grant.Validity
				s.broken(fmt.Sprintf("with a TTL of %v, granted as %v with a drift of %v, another got the "+
					"name %v before it was over", h.ttl, v.TTL, v.Drift, h.until.Sub(in)),
					"the TTL is rounded down to what the service counts in, or Validity.Drift is negative")
			case err == nil:
				s.release(grant.Hold)
			case in.Before(h.until.Add(s.ttl / 10)):
				rest = append(rest, h)
			default: // a session keeps it
				_ = h.grant.Hold.Release(s.within(s.patience()))
			}
		}
		holds = rest
		time.Sleep(s.ttl / 100)
	}
}
