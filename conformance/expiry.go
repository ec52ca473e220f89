package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/golockers/locker"
)

func expiryChecks() []Check {
	return []Check{
		{
			Name:    "dead-holder",
			Promise: "The lock of a holder that died is free when DeadHolder and DeadHolderSlack say, and not before its lease is over.",
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
			Name:    "dead-waiter",
			Promise: "A waiter that is cut off in the queue is in the way of those behind it no longer than a dead holder.",
			unasked: noNetwork, missing: needsCut, run: checkDeadWaiter,
		},
		{
			Name:    "cut-off",
			Promise: "A holder that is cut off from the service is told before another gets in (R1, R2).",
			unasked: noNetwork, missing: needsCut, run: checkCutOff,
		},
		{
			Name:    "late-requests",
			Promise: "What a holder sent before it lost its lease does no harm when it arrives (R9, R12).",
			unasked: noNetwork, missing: needsCut, run: checkLateRequests,
		},
		{
			Name:    "renewal-hangs",
			Promise: "A renewal without an answer does not delay the end of a lease (R2), and returns when its context ends (R8).",
			unasked: noNetwork, missing: needsCut, run: checkRenewalHangs,
		},
		{
			Name:    "short-outage",
			Promise: "An outage shorter than the lease costs nothing: a failed renewal is not a loss (R3).",
			unasked: noNetwork, missing: needsCut, run: checkShortOutage,
		},
		{
			Name:    "since",
			Promise: "Validity.Since is read before the request is sent, so that no time on the way counts as held (R1).",
			unasked: noNetwork, missing: needsCut, run: checkSince,
		},
	}
}

// warm makes a client have a connection that is ready, so that the next thing
// it sends is a request and not a greeting.
func (s *trial) warm(b locker.Backend) {
	s.Helper()
	s.warmed++
	grant := s.acquire(b, s.request(s.name(fmt.Sprintf("warm-%d", s.warmed)), s.long))
	if _, err := grant.Hold.Renew(s.within(s.patience())); err != nil {
		s.broken(fmt.Sprintf("Renew of a hold failed: %v", err), "Renew does not find its own key")
	}
	if err := grant.Hold.Release(s.within(s.patience())); err != nil {
		s.broken(fmt.Sprintf("Release of a hold failed: %v", err), "Release does not find its own key")
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
		kill := s.h.Victim(s, name, ttl)
		time.Sleep(s.ttl / 2)
		if _, err := other.TryLock(s.within(s.patience()), name); !errors.Is(err, locker.ErrHeld) {
			s.broken(fmt.Sprintf("while the victim lived, TryLock of its name returned %v", err), "the victim of the harness holds nothing")
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
	next := s.freeWithin(s.freedWithin(bound), other, name, "the lock of a dead holder is kept for longer than is claimed")
	in := time.Now()
	s.Logf("the lock of a holder that died was free after %v", in.Sub(died))
	if in.Before(until) {
		s.broken(fmt.Sprintf("another client got the name %v before the dead holder's lease was over", until.Sub(in)), "the service keeps the lock for less than the TTL that it granted")
	}
	s.unlock(next)
}

func checkDeadWaiter(s *trial) {
	holder, behind := s.client(), s.client()
	b, fault := s.cut()
	dead := s.clientOf(b)
	s.warm(b)
	name := s.name("dead-waiter")
	held := s.try(holder, name, locker.TTL(s.long))
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	s.spawn(func() {
		if l, err := dead.Lock(ctx, name, locker.TTL(s.ttl)); err == nil {
			_ = l.Unlock(s.Context())
		}
	})
	s.isWaiting(dead, 1)
	in := make(chan error, 1)
	wait := s.within(2*s.long + s.patience())
	s.spawn(func() {
		l, err := behind.Lock(wait, name, locker.TTL(s.long))
		if err == nil {
			defer l.Unlock(s.Context())
		}
		in <- err
	})
	s.isWaiting(behind, 1)
	both(fault, Drop)
	s.unlock(held)
	freed := time.Now()
	if err := <-in; err != nil {
		s.broken(fmt.Sprintf("the waiter behind a dead one did not get the name: %v", err), "the dead waiter keeps its place for ever")
	}
	// The dead one may be granted the lock, and then keeps it for its TTL.
	if took, bound := time.Since(freed), s.freedWithin(s.life(s.ttl)); took > bound {
		s.broken(fmt.Sprintf("the waiter behind a dead one got the name after %v, the bound is %v", took, bound), "the place of a dead waiter lives for longer than its TTL")
	}
}

// theCut is what both checks of a cut-off holder have in common: a holder that
// renews is cut off while another waits. It returns the holder's lease and
// that of the next, and fails if they overlap.
func (s *trial) theCut(name string, mode Mode) (fault Fault, lost, next *locker.Lease) {
	s.Helper()
	const cause = "the lease counts from the answer and not from before the request was sent (R1), or the service's TTL is shorter than was granted"
	b, fault := s.cut()
	holder, other := s.clientOf(b), s.client()
	lost = s.try(holder, name, locker.TTL(s.ttl))
	if lost.Until().IsZero() {
		s.broken("a lock that is held over a network has no deadline", "Validity.TTL is 0: nothing then tells a holder that is cut off")
	}
	type entered struct {
		lease *locker.Lease
		at    time.Time
		late  error // what the lost lease said at that moment
		err   error
	}
	in := make(chan entered, 1)
	wait := s.within(s.long + s.patience())
	s.spawn(func() {
		var e entered
		e.lease, e.err = other.Lock(wait, name, locker.TTL(s.ttl))
		e.at, e.late = time.Now(), lost.Err()
		in <- e
	})
	s.isWaiting(other, 1)
	time.Sleep(s.ttl / 2) // so that it is renewals that count
	both(fault, mode)
	e := <-in
	switch {
	case e.err != nil:
		s.broken(fmt.Sprintf("the name of a holder that was cut off did not become free: %v", e.err), "the lock does not expire")
	case e.at.Before(lost.Until()):
		s.broken(fmt.Sprintf("another got in %v before the holder's Until", lost.Until().Sub(e.at)), cause)
	case !errors.Is(e.late, locker.ErrLost):
		s.broken(fmt.Sprintf("when another got in, the lease of the holder that was cut off said %v", e.late), cause)
	}
	// The holder that does not ask but listens is told in time, but for what
	// a busy machine takes to run its goroutine.
	if told := s.eventually(s.soon, func() bool {
		select {
		case <-lost.Done():
			return true
		default:
			return false
		}
	}); !told {
		s.broken("Done of the lost lease was not closed when another had got in", "a Validity that lasts longer than the service's TTL")
	}
	return fault, lost, e.lease
}

func checkCutOff(s *trial) {
	name := s.name("cut-off")
	_, lost, next := s.theCut(name, Drop)
	if err := lost.Unlock(s.within(s.soon)); !errors.Is(err, locker.ErrLost) {
		s.broken(fmt.Sprintf("Unlock of the lost lease returned %v", err), "a loss that is forgotten")
	}
	s.unlock(next)
}

func checkLateRequests(s *trial) {
	name := s.name("late")
	fault, lost, next := s.theCut(name, Hold)
	defer func() { _ = lost.Unlock(s.within(s.patience())) }()
	third := s.client()
	// Now all that the lost holder has sent arrives: renewals and releases.
	both(fault, Pass)
	s.nobodyGetsIn(next, third, name, 2*s.ttl, "a late release or renewal of the holder before does not compare the whole owner value (R9)")
	if err := next.Err(); err != nil {
		s.broken(fmt.Sprintf("late requests of the holder before ended the next one's lease: %v", err), "a late release or renewal of the holder before does not compare the whole owner value, or puts its key back (R9, R12)")
	}
	s.unlock(next)
	s.unlock(s.freeWithin(s.soon, third, name, "a late renewal of a lost holder put its key back (R12)"))
	s.nothingLeft(name)
}

func checkRenewalHangs(s *trial) {
	b, fault := s.cut()
	name := s.name("hangs")
	s.warm(b)
	raw := s.acquire(b, s.request(s.name("raw"), s.long))
	l := s.try(s.clientOf(b), name, locker.TTL(s.ttl))
	time.Sleep(s.ttl / 2)
	// The service gets every renewal, and the holder no answer.
	fault.Replies(Hold)
	until := l.Until()
	over := s.eventually(s.long+s.patience(), func() bool {
		select {
		case <-l.Done():
			return true
		default:
			until = later(until, l.Until())
			return false
		}
	})
	told := time.Now()
	switch {
	case !over || !errors.Is(l.Err(), locker.ErrLost):
		s.broken(fmt.Sprintf("a holder whose renewals get no answer was not told of a loss: its lease says %v", l.Err()), "Renew makes up a Validity without having heard from the service")
	case told.Sub(until) > s.soon:
		s.broken(fmt.Sprintf("the holder was told %v after its Until", told.Sub(until)), "a renewal that hangs delays the end")
	}
	for what, call := range map[string]func(context.Context) error{
		"Renew":   func(ctx context.Context) error { _, err := raw.Hold.Renew(ctx); return err },
		"Release": raw.Hold.Release,
	} {
		if !s.returns(s.ttl/4+s.soon, func() { _ = call(s.within(s.ttl / 4)) }) {
			s.broken(fmt.Sprintf("%s did not return within %v after its context had ended", what, s.soon), "it waits for the network, whatever its context says: a driver that ignores the deadline has to be left behind")
		}
	}
	both(fault, Pass)
	_ = raw.Hold.Release(s.within(s.patience()))
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func checkShortOutage(s *trial) {
	for _, mode := range []Mode{Reset, Drop} {
		b, fault := s.cut()
		holder, other := s.clientOf(b), s.client()
		name := s.name("outage-" + mode.String())
		ttl := min(3*s.ttl, s.long)
		l := s.try(holder, name, locker.TTL(ttl))
		both(fault, mode)
		// Long enough for a renewal to fail; short enough for another to follow.
		s.nobodyGetsIn(l, other, name, ttl/2, "a renewal that failed gave the lock up")
		both(fault, Pass)
		s.nobodyGetsIn(l, other, name, ttl, "after an outage, renewals do not find the way to the service again")
		if err := l.Err(); err != nil {
			s.broken(fmt.Sprintf("an outage (%v) of half a TTL cost the lease: %v", mode, err), "a failed Renew returns ErrLost, or the connection is not made again in time")
		}
		s.unlock(l)
	}
}

// checkSince keeps replies back for a while: what is granted by them must be
// counted from before it. A new connection that has to be made first is a
// good excuse once, not every time.
func checkSince(s *trial) {
	const tries = 4
	b, fault := s.cut()
	pause := s.ttl / 5
	measure := func(what string, prepare func(), ask func() (locker.Validity, error)) {
		s.Helper()
		var late time.Duration
		for range tries {
			prepare()
			fault.Replies(Hold)
			type answer struct {
				v   locker.Validity
				err error
			}
			answers := make(chan answer, 1)
			s.spawn(func() {
				v, err := ask()
				answers <- answer{v, err}
			})
			time.Sleep(pause)
			passed := time.Now()
			fault.Replies(Pass)
			a := <-answers
			switch {
			case a.err != nil:
				s.broken(fmt.Sprintf("%s failed when its reply took %v: %v", what, pause, a.err), "the backend gives its requests less time than the harness has to leave them: TTL/4")
			case a.v.Since.After(time.Now()):
				s.broken(fmt.Sprintf("%s returned a Since in the future", what), "Since is not a reading of the local clock")
			}
			if late = a.v.Since.Sub(passed); late < 0 {
				return
			}
		}
		s.broken(fmt.Sprintf("%s waited %v for its reply, and its Since is %v after that", what, pause, late), "Since is read when the reply has come (R1)")
	}
	var grant locker.Grant
	measure("Acquire", func() {
		if grant.Hold != nil {
			_ = grant.Hold.Release(s.within(s.patience()))
		}
		s.warm(b)
	}, func() (v locker.Validity, err error) {
		grant, err = b.Acquire(s.within(s.patience()), s.request(s.name("since"), s.long))
		return grant.Validity, err
	})
	if grant.Validity.TTL == 0 {
		s.broken("a lock that is held over a network has no deadline", "Validity.TTL is 0: nothing then tells a holder that is cut off")
	}
	measure("Renew", func() { s.warm(b) }, func() (locker.Validity, error) {
		return grant.Hold.Renew(s.within(s.patience()))
	})
	_ = grant.Hold.Release(s.within(s.patience()))
}
