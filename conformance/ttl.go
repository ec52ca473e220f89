package conformance

import (
	"cmp"
	"errors"
	"fmt"
	"math"
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
