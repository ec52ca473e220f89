package conformance

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/golockers/locker"
)

func ttlChecks() []check {
	return []check{
		{
			Name:    "ttl-bounds",
			Promise: "TTLs of MinTTL and MaxTTL work (R16).",
			run:     checkTTLBounds,
		},
	}
}

// The engine's own bounds.
const (
	engineMin = 10 * time.Millisecond
	engineMax = 366 * 24 * time.Hour
)

func checkTTLBounds(s *trial) {
	const cause = "MinTTL or MaxTTL of the Guarantees promise too much, or the TTL is rounded down, or overflows"
	b, other := s.backend(), s.client() // without an engine, which renews, or takes too long
	lo := max(s.g.MinTTL, engineMin)
	for _, ttl := range []time.Duration{lo, min(cmp.Or(s.g.MaxTTL, engineMax), engineMax)} {
		name := s.name("bound-" + ttl.String())
		var grant locker.Grant
		var err error
		// The least TTL may be over before the answer is there.
		if !s.eventually(s.soon, func() bool {
			grant, err = s.ask(b, name, ttl)
			return err == nil
		}) {
			s.broken(fmt.Sprintf("Acquire of a free name with a TTL of %v failed: %v", ttl, err), cause)
		}
		v, err := grant.Hold.Renew(s.within(s.patience()))
		if short := errors.Is(err, locker.ErrLost) && ttl < time.Second; err != nil && !short {
			s.broken(fmt.Sprintf("Renew of a hold with a TTL of %v failed: %v", ttl, err), cause)
		}
		for _, granted := range []time.Duration{grant.Validity.TTL, v.TTL} {
			if granted != 0 && granted < ttl {
				s.broken(fmt.Sprintf("a TTL of %v was asked for and granted as %v", ttl, granted), cause)
			}
		}
		_ = grant.Hold.Release(s.within(s.patience()))
		s.unlock(s.freeWithin(s.freedWithin(max(grant.Validity.TTL, lo)), other, name,
			"Release does not find its own key"))
	}
}
