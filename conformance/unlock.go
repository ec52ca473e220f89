package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/golockers/locker"
)

func unlockChecks() []check {
	return []check{
		{
			Name:    "unlock",
			Promise: "Unlock frees the name, is idempotent, and returns ErrLost after a loss (R9).",
			run:     checkUnlock,
		},
		{
			Name: "do",
			Promise: "Do gives the lock back whatever happens to its context or its function, and tells of " +
				"a loss (R6, R9).",
			run: checkDo,
		},
		{
			Name: "hold-contract",
			Promise: "A hold that was released is gone: Release and Renew return ErrLost then, and what " +
				"was held by one can be had by the next.",
			run: checkHoldContract,
		},
	}
}

func checkUnlock(s *trial) {
	c, other := s.client(), s.client()
	name := s.name("unlock")
	l := s.try(c, name, locker.TTL(s.long))
	s.unlock(l)
	if _, err := s.tryLock(other, name, locker.TTL(s.ttl)); err != nil {
		s.broken(fmt.Sprintf("right after Unlock had returned, TryLock of another failed: %v", err),
			"Release returns before the service has confirmed it, or removes nothing")
	}
	if err := l.Unlock(s.within(s.patience())); err != nil {
		s.broken(fmt.Sprintf("the second Unlock returned %v, and the first nil", err),
			"an engine that asks the service twice")
	}
	if !errors.Is(l.Err(), locker.ErrUnlocked) {
		s.broken(fmt.Sprintf("after Unlock the lease says %v", l.Err()),
			"the service told the holder of a loss when it was released")
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
	s.unlock(s.freeWithin(s.soon, other, lost,
		"Unlock after a loss did not clear what was its own: Release does not find its key"))
}

func checkDo(s *trial) {
	c, other := s.client(), s.client()
	free := func(name, after string) {
		s.Helper()
		s.unlock(s.freeWithin(s.soon, other, name,
			"Release uses the context of the request that made the hold, or does not find its key; "+after))
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
		_ = locker.Do(s.Context(), c, name, func(context.Context, *locker.Lease) error {
			panic("on purpose")
		}, locker.TTL(s.long))
	}()
	free(name, "fn panicked")

	name = s.name("do-lost")
	var cause error
	err = locker.Do(s.Context(), c, name, func(ctx context.Context, _ *locker.Lease) error {
		select {
		case <-ctx.Done():
			cause = context.Cause(ctx)
		case <-time.After(s.patience()):
		}
		return nil
	}, locker.TTL(s.ttl), locker.MaxHold(max(s.ttl/4, 10*time.Millisecond)))
	if !errors.Is(cause, locker.ErrLost) || !errors.Is(err, locker.ErrLost) {
		s.broken(fmt.Sprintf("the lease was lost in fn: its context ended by %v, and Do returned %v",
			cause, err), "a loss that is not told")
	}
	free(name, "the lease was lost")
}

func checkHoldContract(s *trial) {
	b, other := s.backend(), s.backend()
	name := s.name("contract")
	ctx := s.within(s.patience())
	grant := s.acquire(b, s.request(name, s.long))
	v := s.renew(grant.Hold)
	if (v.TTL == 0) != (grant.Validity.TTL == 0) {
		s.broken(fmt.Sprintf("the TTL granted was %v, and renewed %v", grant.Validity.TTL, v.TTL),
			"a hold has a deadline or has none")
	}
	if v.TTL != 0 && v.TTL < s.long {
		s.broken(fmt.Sprintf("a TTL of %v was asked for and renewed as %v", s.long, v.TTL),
			"a TTL is never shortened silently (R16)")
	}
	s.release(grant.Hold)
	if err := grant.Hold.Release(ctx); !errors.Is(err, locker.ErrLost) {
		s.broken(fmt.Sprintf("Release of a hold that was released returned %v", err),
			"Release does not look whether there was something to remove")
	}
	if _, err := grant.Hold.Renew(ctx); !errors.Is(err, locker.ErrLost) {
		s.broken(fmt.Sprintf("Renew of a hold that was released returned %v", err),
			"Renew does not look, or puts the key back (R12)")
	}
	next := s.acquire(other, s.request(name, s.long))
	if err := next.Hold.Release(ctx); err != nil {
		s.broken(fmt.Sprintf("Release of the next hold failed: %v", err),
			"the hold before is still there for the service")
	}
	s.nothingLeft(name)
	for range 10 {
		s.renewedWhileReleased(b, other, name)
	}
	s.nothingLeft(name)
}

// renewedWhileReleased fails if a renewal that is under way during a release
// brings the lock back.
func (s *trial) renewedWhileReleased(b, other locker.Backend, name string) {
	s.Helper()
	ctx := s.within(s.patience())
	grant := s.acquire(b, s.request(name, s.long))
	all := s.group()
	for range 3 {
		// What it returns depends on which of them was first.
		all.Go(func() { _, _ = grant.Hold.Renew(ctx) })
	}
	all.Go(func() {
		if err := grant.Hold.Release(ctx); err != nil {
			s.report(fmt.Sprintf("Release during a Renew failed: %v", err),
				"the methods of a hold cannot be called at the same time")
		}
	})
	all.Wait()
	next, err := other.Acquire(ctx, s.request(name, s.long))
	if err != nil {
		s.broken(fmt.Sprintf("after a Release with renewals under way, Acquire of another failed: %v", err),
			"Renew puts back a key that is gone (R12)")
	}
	if err := next.Hold.Release(ctx); err != nil {
		s.broken(fmt.Sprintf("Release of the next hold failed: %v", err),
			"the hold before is still there for the service")
	}
}
