package conformance

import (
	"errors"
	"fmt"
	"time"

	"github.com/golockers/locker"
)

func minHoldChecks() []check {
	return []check{
		{
			Name: "min-hold",
			Promise: "A lock with MinHold is kept for that long, without its client and whatever renewals " +
				"and releases do, and not much longer; " +
				"a take-back removes it at once; a backend that cannot keep it says ErrUnsupported.",
			run: checkMinHold,
		},
	}
}

func checkMinHold(s *trial) {
	b := s.backend()
	longest := b.Guarantees().MaxMinHold
	if longest == 0 {
		_, err := s.tryLock(s.client(), s.name("min-hold"), locker.MinHold(time.Second))
		if !errors.Is(err, errors.ErrUnsupported) {
			s.broken(fmt.Sprintf("a lock with MinHold, on a backend that keeps none, returned %v", err),
				"an engine that does not ask the backend")
		}
		return
	}
	keep := min(3*s.ttl, longest)
	request := func(name string) locker.Request {
		req := s.request(name, s.ttl)
		req.MinHold = keep
		return req
	}
	var parts []func()
	// A hold without a deadline ends by its release alone: with its process.
	hold := s.acquire(b, s.request(s.name("min-hold-deadline"), s.ttl))
	endless := hold.Validity.TTL == 0
	session := hold.Session
	s.release(hold.Hold)
	for what, hold := range map[string]func(b locker.Backend, name string){
		"abandoned": func(b locker.Backend, name string) { s.acquire(b, request(name)) },
		"renewed":   func(b locker.Backend, name string) { s.renew(s.acquire(b, request(name)).Hold) },
		"passed": func(b locker.Backend, name string) {
			p, first := s.passer(b, name)
			if p == nil {
				first = s.acquire(b, request(name))
				s.renew(first.Hold)
				return
			}
			next, err := p.Pass(s.within(s.patience()), request(name), false)
			if err != nil || next.Hold == nil {
				s.broken(fmt.Sprintf("Pass to a caller with MinHold failed: %v", err), "Pass knows no MinHold")
			}
			s.renew(next.Hold)
		},
		"unlocked": func(b locker.Backend, name string) {
			s.unlock(s.try(s.clientOf(b), name, locker.TTL(s.ttl), locker.MinHold(keep)))
		},
	} {
		if endless && what != "unlocked" {
			continue
		}
		name, backend := s.name("min-hold-"+what), s.backend()
		parts = append(parts, func() {
			s.keptFor(keep, name, "was "+what, func() {
				hold(backend, name)
				if session && what != "unlocked" {
					_ = backend.Close() // which ends the session
				}
			})
		})
	}
	if s.h.OffClock != nil && !endless {
		for _, off := range []time.Duration{2 * s.long, -2 * s.long} {
			name, backend := s.name(fmt.Sprintf("min-hold-%v", off)), s.offClock(off)
			parts = append(parts, func() {
				s.keptFor(keep, name, fmt.Sprintf("was asked for by a client whose clock is %v ahead", off), func() {
					s.acquire(backend, request(name))
					_ = backend.Close()
				})
			})
		}
	}
	// Nobody holds what is taken back.
	s.together(append(parts, func() {
		name := s.name("min-hold-undone")
		if err := s.acquire(b, request(name)).Hold.Undo(s.within(s.patience())); err != nil {
			s.broken(fmt.Sprintf("the take-back of a lock with MinHold failed: %v", err),
				"Release looks whether MinHold is over: the engine does")
		}
		s.unlock(s.freeWithin(keep/2, s.client(), name,
			"a take-back keeps the lock for its MinHold, although nobody was told that it holds"))
	})...)
}

// keptFor fails if what hold makes is not kept for its MinHold, or for much longer.
func (s *trial) keptFor(keep time.Duration, name, what string, hold func()) {
	s.Helper()
	other, began := s.client(), time.Now()
	hold()
	granted := time.Now()
	l := s.freeWithin(s.freedWithin(max(keep, s.ttl)+keep), other, name,
		"MinHold is kept for too long: its unit, its sum with the TTL, or a clock that is not the service's")
	in := time.Now()
	s.unlock(l)
	if early := keep - in.Sub(began); early > 0 {
		s.broken(fmt.Sprintf("a lock with a MinHold of %v that %s was free %v before its time", keep, what, early),
			"MinHold is not looked at, or in another unit, or by a clock that is not the service's, or the "+
				"time that a renewal or a pass sets replaces it")
	}
	if late := in.Sub(granted) - s.freedWithin(max(keep, s.ttl)+keep/3); late > 0 {
		s.broken(fmt.Sprintf("a lock with a MinHold of %v that %s was free only after %v",
			keep, what, in.Sub(granted)), "it is kept for the sum of several times")
	}
}
