package conformance

import (
	"errors"
	"fmt"
	"time"

	"github.com/golockers/locker"
)

func expiryChecks() []check {
	return []check{
		{
			Name: "dead-holder",
			Promise: "The lock of a holder that died is free when DeadHolder and DeadHolderSlack say, and " +
				"not before its lease is over.",
			unasked: func(s subject) string {
				switch {
				case s.DeadHolder == locker.RecoveryNone:
					return "DeadHolder is none"
				case s.Scope == locker.ScopeProcess:
					return "within one process, a dead holder takes the service with it"
				}
				return ""
			},
			missing: func(s subject) string {
				switch {
				case s.Victim != nil, s.DeadHolder == locker.RecoveryAfterTTL && s.Cut != nil:
					return ""
				case s.DeadHolder == locker.RecoveryAfterTTL && s.Scope == locker.ScopeNetwork:
					return "Cut"
				}
				return "Victim"
			},
			run: checkDeadHolder,
		},
	}
}

func checkDeadHolder(s *trial) {
	other := s.client()
	name := s.name("dead")
	var until time.Time // up to when the victim may act
	var bound time.Duration
	var died time.Time
	if s.h.Victim != nil {
		ttl := s.ttl
		if s.g.DeadHolder == locker.RecoveryAtOnce {
			ttl = s.long // or else the end of the TTL would look like it
		}
		var kill func()
		s.hook(func() { kill = s.h.Victim(s, name, ttl) })
		time.Sleep(s.ttl / 2)
		if _, err := s.tryLock(other, name); !errors.Is(err, locker.ErrHeld) {
			s.broken(fmt.Sprintf("while the victim lived, TryLock of its name returned %v", err),
				"the victim of the harness holds nothing")
		}
		kill()
		died = time.Now()
	} else {
		b, fault := s.cut()
		victim := s.clientOf(b)
		l := s.try(victim, name, locker.TTL(s.ttl))
		time.Sleep(s.ttl / 2)
		both(fault, Drop)
		died = time.Now()
		until = l.Until()
	}
	if s.g.DeadHolder == locker.RecoveryAfterTTL {
		bound = s.life(s.ttl)
	}
	next := s.freeWithin(s.freedWithin(bound), other, name,
		"the lock of a dead holder is kept for longer than is claimed")
	in := time.Now()
	s.Logf("the lock of a holder that died was free after %v", in.Sub(died))
	if in.Before(until) {
		s.broken(fmt.Sprintf("another client got the name %v before the dead holder's lease was over",
			until.Sub(in)), "the service keeps the lock for less than the TTL that it granted")
	}
	s.unlock(next)
}
