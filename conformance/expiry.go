package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
		{
			Name: "dead-waiter",
			Promise: "A waiter that is cut off in the queue is in the way of those behind it no longer " +
				"than a dead holder.",
			unasked: noNetwork, missing: needsCut, run: checkDeadWaiter,
		},
		{
			Name: "dead-asker",
			Promise: "A client that dies between its request and the reply leaves nothing that outlives a " +
				"dead holder's lock.",
			unasked: func(s subject) string {
				if s.DeadHolder == locker.RecoveryNone {
					return "DeadHolder is none"
				}
				return noNetwork(s)
			},
			missing: needsCut, run: checkDeadAsker,
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

func checkDeadWaiter(s *trial) { s.deadWaits() }

// deadWaits cuts one that waits, with those options, off from the queue.
func (s *trial) deadWaits(opts ...locker.Option) {
	holder, behind := s.client(), s.client()
	b, fault := s.cut()
	dead := s.clientOf(b)
	s.warm(b)
	name := s.name("dead-waiter")
	held := s.try(holder, name, locker.TTL(s.long))
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	s.spawn(func() {
		if l, err := dead.Lock(ctx, name, append(slices.Clip(opts), locker.TTL(s.ttl))...); err == nil {
			_ = l.Unlock(s.Context())
		}
	})
	s.isWaiting(dead, 1)
	in := make(chan error, 1)
	wait := s.within(2*s.long + s.patience())
	s.spawn(func() {
		l, err := behind.Lock(wait, name, locker.TTL(s.long))
		if err == nil {
			_ = l.Unlock(s.Context())
		}
		in <- err
	})
	s.isWaiting(behind, 1)
	both(fault, Drop)
	s.unlock(held)
	freed := time.Now()
	if err := <-in; err != nil {
		s.broken(fmt.Sprintf("the waiter behind a dead one did not get the name: %v", err),
			"the dead waiter keeps its place for ever")
	}
	// The dead one may be granted the lock, and then keeps it for its TTL.
	if took, bound := time.Since(freed), s.freedWithin(s.life(s.ttl)); took > bound {
		s.broken(fmt.Sprintf("the waiter behind a dead one got the name after %v, the bound is %v",
			took, bound), "the place of a dead waiter lives for longer than its TTL")
	}
}

func checkDeadAsker(s *trial) {
	b, fault := s.cut()
	raw, other := s.backend(), s.client()
	s.warm(b)
	s.warm(raw)
	name, life := s.name("dead-asker"), s.life(s.ttl)
	fault.Replies(Drop)
	// What is sent is carried out, and nothing can follow that builds on the reply.
	if _, err := b.Acquire(s.within(s.ttl/4), s.held(s.request(name, s.ttl))); err == nil {
		s.broken("Acquire succeeded without a reply", "Acquire makes up an answer")
	}
	both(fault, Drop)
	s.unlock(s.freeWithin(s.freedWithin(life), other, name, "the key gets its TTL in a request of its own, "+
		"which a client that dies in between never sends: both have to be one step"))
	s.nothingLeft(name)

	// Others die in the middle, with a part of the replies, if there are several.
	const parts = 8
	began := time.Now()
	held := s.acquire(raw, s.request(s.name("usual"), s.long))
	usual := time.Since(began)
	s.release(held.Hold)
	var names []string
	for i := range parts {
		b, fault := s.cut()
		s.warm(b)
		name := s.name(fmt.Sprintf("dead-asker-%d", i))
		names = append(names, name)
		time.AfterFunc(usual*time.Duration(i)/parts, func() { both(fault, Drop) })
		s.spawn(func() { _, _ = b.Acquire(s.Context(), s.held(s.request(name, s.ttl))) })
	}
	time.Sleep(usual)
	for _, name := range names {
		s.unlock(s.freeWithin(s.freedWithin(life), other, name,
			"a transaction stays open over several round trips, and its row is locked until the server "+
				"gives up a client that is gone, which takes hours: make it one statement, or one round trip"))
	}
}
