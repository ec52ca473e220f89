package conformance

import (
	"errors"
	"fmt"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/clock"
)

func holdingChecks() []check {
	return []check{
		{
			Name:    "renewal",
			Promise: "A lease that is renewed lasts longer than its TTL, and nobody gets in meanwhile.",
			run:     checkRenewal,
		},
		{
			Name:    "no-renew",
			Promise: "With NoRenew a lease lasts until Until and no longer, unless its holder renews it.",
			run:     checkNoRenew,
		},
		{
			Name: "max-hold",
			Promise: "MaxHold ends a lease that is renewed, never earlier for others than for its holder, " +
				"and a stuck holder keeps nobody out for ever (R19).",
			run: checkMaxHold,
		},
	}
}

// nobodyGetsIn tries to get name until l says that it is over, or for d if l
// does not. It fails if somebody else gets it before the holder's Until.
func (s *trial) nobodyGetsIn(l *locker.Lease, other *locker.Client, name string,
	d time.Duration, cause string) {
	s.Helper()
	for deadline := time.Now().Add(d); time.Now().Before(deadline) && l.Err() == nil; time.Sleep(s.ttl / 50) {
		got, err := s.tryLock(other, name, locker.TTL(s.long))
		in := time.Now()
		switch {
		case errors.Is(err, locker.ErrHeld):
		case err != nil:
			s.broken(fmt.Sprintf("TryLock of a held name failed: %v", err), ofError(err))
		default:
			// The grant is earlier than in; what counts is that the holder
			// could still act when it had happened for certain.
			until, over := l.Until(), l.Err()
			_ = got.Unlock(s.within(s.patience()))
			if in.Before(until) && (over == nil || !clock.Endless(until)) {
				s.broken(fmt.Sprintf("another client got the name %v before the holder's Until", until.Sub(in)), cause)
			}
			return
		}
	}
}

func checkRenewal(s *trial) {
	const cause = "Renew reports success and does not make the service keep the lock for another TTL"
	name := s.name("renewed")
	l := s.try(s.client(), name, locker.TTL(s.ttl))
	first := l.Until()
	if !time.Now().Before(first) {
		s.broken("a context with the deadline Until ends at once",
			"Validity.Since is not the time before the request was sent")
	}
	s.nobodyGetsIn(l, s.client(), name, 5*s.ttl/2, cause)
	if err := l.Err(); err != nil {
		s.broken(fmt.Sprintf("a lease of %v that is renewed was lost: %v", s.ttl, err),
			"Renew fails, or returns a Validity that does not move on")
	}
	if !clock.Endless(first) && !l.Until().After(first) {
		s.broken("Until has not moved on after several renewals", "Renew returns the Validity of the grant")
	}
	s.renewAtOnce(l)
	s.unlock(l)
}

// renewAtOnce has several callers renew l by hand at the same time.
func (s *trial) renewAtOnce(l *locker.Lease) {
	s.Helper()
	const callers = 8
	ctx, answers := s.within(s.patience()), make(chan error, callers)
	for range callers {
		go func() { answers <- l.Renew(ctx) }()
	}
	for range callers {
		if err := <-answers; err != nil {
			s.broken(fmt.Sprintf("one of %d renewals at the same time failed: %v", callers, err),
				"renewals of one hold that share a request, or that overtake each other, are "+
					"not all answered")
		}
	}
	if err := l.Err(); err != nil {
		s.broken(fmt.Sprintf("after %d renewals at the same time the lease says %v", callers, err),
			"renewals of one hold that share a request are not all answered")
	}
}

func checkNoRenew(s *trial) {
	c, other := s.client(), s.client()
	name := s.name("no-renew")
	l := s.try(c, name, locker.TTL(s.ttl), locker.NoRenew())
	if clock.Endless(l.Until()) {
		s.nobodyGetsIn(l, other, name, 2*s.ttl,
			"the hold is said to have no deadline, and the service lets go of it")
		if err := l.Renew(s.within(s.patience())); err != nil {
			s.broken(fmt.Sprintf("Renew by hand failed: %v", err),
				"Renew of a hold without deadline has to look whether it is still there")
		}
		s.unlock(l)
		return
	}
	if err := l.Renew(s.within(s.patience())); err != nil {
		s.broken(fmt.Sprintf("Renew by hand failed: %v", err), "Renew does not find its own key")
	}
	granted := time.Until(l.Until())
	time.Sleep(granted / 2)
	before := l.Until()
	if err := l.Renew(s.within(s.patience())); err != nil {
		s.broken(fmt.Sprintf("Renew by hand after half of the TTL failed: %v", err),
			"the service keeps the lock for less than the TTL that it granted")
	}
	if moved := l.Until().Sub(before); moved <= 0 {
		s.broken("Renew by hand did not move Until", "Renew returns the Validity of the grant")
	}
	s.nobodyGetsIn(l, other, name, s.long+granted,
		"the service keeps the lock for less than the TTL that Renew returned")
	if s.eventually(s.long+granted, func() bool { return l.Err() != nil }); !errors.Is(l.Err(), locker.ErrLost) {
		s.broken(fmt.Sprintf("after its TTL a lease that nobody renewed says %v", l.Err()),
			"a Validity that moves on by itself")
	}
	s.unlock(s.freeWithin(s.freedWithin(granted), other, name, "the service keeps a lock for longer than "+
		"its TTL, and the take-back of the lost lease finds nothing"))
}

func checkMaxHold(s *trial) {
	// One bound that the first grant alone would pass, one that needs renewals.
	s.together(func() { s.bounded(s.ttl / 2) }, func() { s.bounded(s.ttl + s.ttl/2) })
}

func (s *trial) bounded(bound time.Duration) {
	holder, other := s.client(), s.client()
	name := s.name("max-hold-" + bound.String())
	began := time.Now()
	l := s.try(holder, name, locker.TTL(s.ttl), locker.MaxHold(bound))
	started := time.Now()
	granted := s.life(s.ttl)
	s.nobodyGetsIn(l, other, name, bound+s.long,
		"the service lets go of the lock before the TTL that it granted is over")
	s.eventually(bound+s.soon, func() bool { return l.Err() != nil })
	if !errors.Is(l.Err(), locker.ErrLost) {
		s.broken(fmt.Sprintf("%v after the grant, a lease with a MaxHold of %v says %v",
			time.Since(began), bound, l.Err()), "a Validity whose Since is in the future")
	}
	if past := l.Until().Sub(started.Add(bound)); past > 0 {
		s.broken(fmt.Sprintf("Until passed MaxHold by %v", past), "a Validity whose Since is in the future")
	}
	// The holder is stuck: it never unlocks.
	next := s.freeWithin(s.freedWithin(granted), other, name,
		"a lease that ended by MaxHold is not released: Release does not find its own key")
	if next.Err() != nil {
		s.broken(fmt.Sprintf("the next holder's lease ended at once: %v", next.Err()),
			"the take-back of the lost lease removed the next holder's key (R9)")
	}
	s.unlock(next)
	if err := l.Unlock(s.within(s.patience())); !errors.Is(err, locker.ErrLost) {
		s.broken(fmt.Sprintf("Unlock after the loss returned %v", err),
			"Release reports success for a key that is gone")
	}
}
