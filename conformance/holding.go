package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/golockers/locker"
)

func holdingChecks() []Check {
	return []Check{
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
			Name:    "max-hold",
			Promise: "MaxHold ends a lease that is renewed, never earlier for others than for its holder, and a stuck holder keeps nobody out for ever (R19).",
			run:     checkMaxHold,
		},
		{
			Name:    "unlock",
			Promise: "Unlock frees the name, is idempotent, and returns ErrLost after a loss (R9).",
			run:     checkUnlock,
		},
		{
			Name:    "do",
			Promise: "Do gives the lock back whatever happens to its context or its function, and tells of a loss (R6, R9).",
			run:     checkDo,
		},
		{
			Name:    "hold-contract",
			Promise: "A hold that was released is gone: Release and Renew return ErrLost then, and what was held by one can be had by the next.",
			run:     checkHoldContract,
		},
	}
}

// nobodyGetsIn tries to get name until l says that it is over, or for d if l
// does not. It fails if somebody else gets it before the holder's Until.
func (s *trial) nobodyGetsIn(l *locker.Lease, other *locker.Client, name string, d time.Duration, cause string) {
	s.Helper()
	for deadline := time.Now().Add(d); time.Now().Before(deadline) && l.Err() == nil; time.Sleep(s.ttl / 50) {
		got, err := other.TryLock(s.within(s.patience()), name, locker.TTL(s.long))
		in := time.Now()
		switch {
		case errors.Is(err, locker.ErrHeld):
		case err != nil:
			s.broken(fmt.Sprintf("TryLock of a held name failed: %v", err), "a refusal that does not match ErrHeld")
		default:
			// The grant is earlier than in; what counts is that the holder
			// could still act when it had happened for certain.
			until, over := l.Until(), l.Err()
			_ = got.Unlock(s.within(s.patience()))
			if until.IsZero() && over == nil || in.Before(until) {
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
	s.nobodyGetsIn(l, s.client(), name, 5*s.ttl/2, cause)
	if err := l.Err(); err != nil {
		s.broken(fmt.Sprintf("a lease of %v that is renewed was lost: %v", s.ttl, err), "Renew fails, or returns a Validity that does not move on")
	}
	if !first.IsZero() && !l.Until().After(first) {
		s.broken("Until has not moved on after several renewals", "Renew returns the Validity of the grant")
	}
	s.unlock(l)
}

func checkNoRenew(s *trial) {
	c, other := s.client(), s.client()
	name := s.name("no-renew")
	l := s.try(c, name, locker.TTL(s.ttl), locker.NoRenew())
	if l.Until().IsZero() {
		s.nobodyGetsIn(l, other, name, 2*s.ttl, "the hold is said to have no deadline, and the service lets go of it")
		if err := l.Renew(s.within(s.patience())); err != nil {
			s.broken(fmt.Sprintf("Renew by hand failed: %v", err), "Renew of a hold without deadline has to look whether it is still there")
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
		s.broken(fmt.Sprintf("Renew by hand after half of the TTL failed: %v", err), "the service keeps the lock for less than the TTL that it granted")
	}
	if moved := l.Until().Sub(before); moved <= 0 {
		s.broken("Renew by hand did not move Until", "Renew returns the Validity of the grant")
	}
	s.nobodyGetsIn(l, other, name, s.long+granted, "the service keeps the lock for less than the TTL that Renew returned")
	if s.eventually(s.long+granted, func() bool { return l.Err() != nil }); !errors.Is(l.Err(), locker.ErrLost) {
		s.broken(fmt.Sprintf("after its TTL a lease that nobody renewed says %v", l.Err()), "a Validity that moves on by itself")
	}
	s.unlock(s.freeWithin(s.freedWithin(granted), other, name, "the service keeps a lock for longer than its TTL, and the take-back of the lost lease finds nothing"))
}

func checkMaxHold(s *trial) {
	// One bound that the first grant alone would pass, one that needs renewals.
	for _, bound := range []time.Duration{s.ttl / 2, s.ttl + s.ttl/2} {
		holder, other := s.client(), s.client()
		name := s.name("max-hold-" + bound.String())
		began := time.Now()
		l := s.try(holder, name, locker.TTL(s.ttl), locker.MaxHold(bound))
		started := time.Now()
		granted := s.life(s.ttl)
		s.nobodyGetsIn(l, other, name, bound+s.long, "the service lets go of the lock before the TTL that it granted is over")
		s.eventually(bound+s.soon, func() bool { return l.Err() != nil })
		if !errors.Is(l.Err(), locker.ErrLost) {
			s.broken(fmt.Sprintf("%v after the grant, a lease with a MaxHold of %v says %v", time.Since(began), bound, l.Err()), "a Validity whose Since is in the future")
		}
		if past := l.Until().Sub(started.Add(bound)); past > 0 {
			s.broken(fmt.Sprintf("Until passed MaxHold by %v", past), "a Validity whose Since is in the future")
		}
		// The holder is stuck: it never unlocks.
		next := s.freeWithin(s.freedWithin(granted), other, name, "a lease that ended by MaxHold is not released: Release does not find its own key")
		if next.Err() != nil {
			s.broken(fmt.Sprintf("the next holder's lease ended at once: %v", next.Err()), "the take-back of the lost lease removed the next holder's key (R9)")
		}
		s.unlock(next)
		if err := l.Unlock(s.within(s.patience())); !errors.Is(err, locker.ErrLost) {
			s.broken(fmt.Sprintf("Unlock after the loss returned %v", err), "Release reports success for a key that is gone")
		}
	}
}

func checkUnlock(s *trial) {
	c, other := s.client(), s.client()
	name := s.name("unlock")
	l := s.try(c, name, locker.TTL(s.long))
	s.unlock(l)
	if _, err := other.TryLock(s.within(s.patience()), name, locker.TTL(s.ttl)); err != nil {
		s.broken(fmt.Sprintf("right after Unlock had returned, TryLock of another failed: %v", err), "Release returns before the service has confirmed it, or removes nothing")
	}
	if err := l.Unlock(s.within(s.patience())); err != nil {
		s.broken(fmt.Sprintf("the second Unlock returned %v, and the first nil", err), "an engine that asks the service twice")
	}
	if !errors.Is(l.Err(), locker.ErrUnlocked) {
		s.broken(fmt.Sprintf("after Unlock the lease says %v", l.Err()), "the service told the holder of a loss when it was released")
	}
	select {
	case <-l.Done():
	case <-time.After(s.patience()):
		s.broken("Done is not closed after Unlock", "an engine that forgets")
	}
	// Unlock under a context that is over still releases (R9).
	late := s.name("unlock-late")
	l = s.try(c, late, locker.TTL(s.long))
	over, cancel := context.WithCancel(s.Context())
	cancel()
	_ = l.Unlock(over)
	s.unlock(s.freeWithin(s.soon, other, late, "Release uses a context that is over"))
	s.nothingLeft(late)

	lost := s.name("unlock-lost")
	l = s.try(c, lost, locker.TTL(s.ttl), locker.MaxHold(max(s.ttl/4, 10*time.Millisecond)))
	s.eventually(s.patience(), func() bool { return l.Err() != nil })
	for range 2 {
		if err := l.Unlock(s.within(s.patience())); !errors.Is(err, locker.ErrLost) {
			s.broken(fmt.Sprintf("Unlock after the loss returned %v", err), "a loss that is forgotten")
		}
	}
	s.unlock(s.freeWithin(s.soon, other, lost, "Unlock after a loss did not clear what was its own: Release does not find its key"))
}

func checkDo(s *trial) {
	c, other := s.client(), s.client()
	free := func(name, after string) {
		s.Helper()
		s.unlock(s.freeWithin(s.soon, other, name, "Release uses the context of the request that made the hold, or does not find its key; "+after))
		s.nothingLeft(name)
	}

	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	mine := errors.New("fn's own")
	name := s.name("do-cancelled")
	err := locker.Do(ctx, c, name, func(ctx context.Context, _ *locker.Lease) error {
		cancel()
		<-ctx.Done()
		return mine
	}, locker.TTL(s.long))
	if !errors.Is(err, mine) {
		s.broken(fmt.Sprintf("Do returned %v instead of fn's error", err), "Release failed")
	}
	free(name, "fn's context was cancelled")

	name = s.name("do-panics")
	func() {
		defer func() { _ = recover() }()
		_ = locker.Do(s.Context(), c, name, func(context.Context, *locker.Lease) error { panic("on purpose") }, locker.TTL(s.long))
	}()
	free(name, "fn panicked")

	name = s.name("do-lost")
	var cause error
	err = locker.Do(s.Context(), c, name, func(ctx context.Context, l *locker.Lease) error {
		select {
		case <-ctx.Done():
			cause = context.Cause(ctx)
		case <-time.After(s.patience()):
		}
		return nil
	}, locker.TTL(s.ttl), locker.MaxHold(max(s.ttl/4, 10*time.Millisecond)))
	if !errors.Is(cause, locker.ErrLost) || !errors.Is(err, locker.ErrLost) {
		s.broken(fmt.Sprintf("the lease was lost in fn: its context ended by %v, and Do returned %v", cause, err), "a loss that is not told")
	}
	free(name, "the lease was lost")
}

func checkHoldContract(s *trial) {
	b, other := s.backend(), s.backend()
	name := s.name("contract")
	ctx := s.within(s.patience())
	grant := s.acquire(b, s.request(name, s.long))
	v, err := grant.Hold.Renew(ctx)
	if err != nil {
		s.broken(fmt.Sprintf("Renew of a hold failed: %v", err), "Renew does not find its own key")
	}
	if (v.TTL == 0) != (grant.Validity.TTL == 0) {
		s.broken(fmt.Sprintf("the TTL granted was %v, and renewed %v", grant.Validity.TTL, v.TTL), "a hold has a deadline or has none")
	}
	if v.TTL != 0 && v.TTL < s.long {
		s.broken(fmt.Sprintf("a TTL of %v was asked for and renewed as %v", s.long, v.TTL), "a TTL is never shortened silently (R16)")
	}
	if err := grant.Hold.Release(ctx); err != nil {
		s.broken(fmt.Sprintf("Release of a hold failed: %v", err), "Release does not find its own key")
	}
	if err := grant.Hold.Release(ctx); !errors.Is(err, locker.ErrLost) {
		s.broken(fmt.Sprintf("Release of a hold that was released returned %v", err), "Release does not look whether there was something to remove")
	}
	if _, err := grant.Hold.Renew(ctx); !errors.Is(err, locker.ErrLost) {
		s.broken(fmt.Sprintf("Renew of a hold that was released returned %v", err), "Renew does not look, or puts the key back (R12)")
	}
	next := s.acquire(other, s.request(name, s.long))
	if err := next.Hold.Release(ctx); err != nil {
		s.broken(fmt.Sprintf("Release of the next hold failed: %v", err), "the hold before is still there for the service")
	}
	s.nothingLeft(name)
}
