package conformance

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
)

func checkClaims(s *trial) {
	b := s.backend()
	g := b.Guarantees()
	bad := func(seen, cause string) { s.Helper(); s.report(seen, cause) }
	if g.Backend == "" || strings.ContainsAny(g.Backend, " \n") {
		bad(fmt.Sprintf("Backend is %q", g.Backend), "give the name of the service in one word, for errors")
	}
	if g.Scope == locker.ScopeNone {
		bad("Scope is none", "a lock that excludes nobody")
	}
	if g.Exclusion == locker.ExclusionNone {
		bad("Exclusion is none", "say why no two holders can hold a lock at once")
	}
	if strings.TrimSpace(g.RestsOn) == "" {
		bad("RestsOn is empty", "no claim is always true: state its conditions")
	}
	for _, f := range []fmt.Stringer{g.Scope, g.Exclusion, g.Fencing, g.Order, g.Shared, g.DeadHolder} {
		if strings.HasPrefix(f.String(), "unknown") {
			bad(fmt.Sprintf("a field of type %T is out of range: %v", f, f), "use the constants")
		}
	}
	if g.DeadHolderSlack < 0 || g.ServerCrashes < 0 || g.MinTTL < 0 || g.MaxTTL < 0 {
		bad(fmt.Sprintf("a field is negative: %+v", g), "no field may be negative")
	}
	if g.MaxTTL != 0 && g.MaxTTL < max(g.MinTTL, leastTTL) {
		bad(fmt.Sprintf("MaxTTL is %v and MinTTL %v", g.MaxTTL, g.MinTTL), "no TTL is possible")
	}
	if g.MinTTL > time.Minute {
		bad(fmt.Sprintf("MinTTL is %v", g.MinTTL),
			"a dead holder's lock would be kept for longer than anybody wants to wait")
	}
	if other := s.backend().Guarantees(); other != g {
		bad(fmt.Sprintf("one client claims %+v, another %+v", g, other), "Guarantees depend on the client's state")
	}
	lease := s.try(s.clientOf(b), s.name("claims"), locker.TTL(s.ttl))
	if now := b.Guarantees(); now != g {
		bad(fmt.Sprintf("claims changed from %+v to %+v", g, now), "Guarantees depend on held locks")
	}
	s.unlock(lease)
	// A method of another type would be an ability that is never found.
	_, operates := b.(driver.Operator)
	if _, inspects := b.(interface {
		Inspect(ctx context.Context, name string) (locker.State, error)
	}); inspects && !operates {
		bad("Inspect exists, but not as an Operator", "a method of another type")
	}
	if s.h.Cut == nil {
		return
	}
	cut, fault := s.cut()
	both(fault, Drop)
	began := time.Now()
	if now := cut.Guarantees(); now != g || time.Since(began) > s.soon {
		bad(fmt.Sprintf("without a connection, Guarantees took %v and returned %+v", time.Since(began), now),
			"Guarantees asks the service")
	}
}
