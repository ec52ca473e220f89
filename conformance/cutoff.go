package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/clock"
)

func cutOffChecks() []check {
	return []check{
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
			Name: "renewal-hangs",
			Promise: "A renewal without an answer does not delay the end of a lease (R2), and returns when " +
				"its context ends (R8).",
			unasked: noNetwork, missing: needsCut, run: checkRenewalHangs,
		},
		{
			Name:    "short-outage",
			Promise: "An outage shorter than the lease costs nothing: a failed renewal is not a loss (R3).",
			unasked: noNetwork, missing: needsCut, run: checkShortOutage,
		},
	}
}

// theCut is what both checks of a cut-off holder have in common: a holder that
// renews is cut off while another waits. It returns the holder, its lease and
// that of the next, and fails if they overlap.
func (s *trial) theCut(name string, mode Mode) (holder *locker.Client, fault Fault,
	lost, next *locker.Lease) {
	s.Helper()
	const cause = "the lease counts from the answer and not from before the request was sent (R1), or the " +
		"service's TTL is shorter than was granted"
	b, fault := s.cut()
	holder = s.clientOf(b)
	other := s.client()
	lost = s.try(holder, name, locker.TTL(s.ttl))
	if clock.Endless(lost.Until()) {
		s.broken("a lock that is held over a network has no deadline",
			"Validity.TTL is 0: nothing then tells a holder that is cut off")
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
		s.broken(fmt.Sprintf("the name of a holder that was cut off did not become free: %v", e.err),
			"the lock does not expire")
	case e.at.Before(lost.Until()):
		s.broken(fmt.Sprintf("another got in %v before the holder's Until", lost.Until().Sub(e.at)), cause)
	case !errors.Is(e.late, locker.ErrLost):
		s.broken(fmt.Sprintf("when another got in, the lease of the holder that was cut off said %v", e.late),
			cause)
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
		s.broken("Done of the lost lease was not closed when another had got in",
			"a Validity that lasts longer than the service's TTL")
	}
	return holder, fault, lost, e.lease
}

func checkCutOff(s *trial) {
	name := s.name("cut-off")
	_, _, lost, next := s.theCut(name, Drop)
	if err := lost.Unlock(s.within(s.soon)); !errors.Is(err, locker.ErrLost) {
		s.broken(fmt.Sprintf("Unlock of the lost lease returned %v", err), "a loss that is forgotten")
	}
	s.unlock(next)
}

func checkLateRequests(s *trial) {
	name := s.name("late")
	_, fault, lost, next := s.theCut(name, Hold)
	defer func() { _ = lost.Unlock(s.within(s.patience())) }()
	third := s.client()
	// Now all that the lost holder has sent arrives: renewals and releases.
	both(fault, Pass)
	s.nobodyGetsIn(next, third, name, 2*s.ttl,
		"a late release or renewal of the holder before does not compare the whole owner value (R9)")
	if err := next.Err(); err != nil {
		s.broken(fmt.Sprintf("late requests of the holder before ended the next one's lease: %v", err),
			"a late release or renewal of the holder before does not compare the whole owner value, or "+
				"puts its key back (R9, R12)")
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
		s.broken(fmt.Sprintf("a holder whose renewals get no answer was not told of a loss: its lease "+
			"says %v", l.Err()), "Renew makes up a Validity without having heard from the service")
	case told.Sub(until) > s.soon:
		s.broken(fmt.Sprintf("the holder was told %v after its Until", told.Sub(until)),
			"a renewal that hangs delays the end")
	}
	for what, call := range map[string]func(context.Context) error{
		"Renew":   func(ctx context.Context) error { _, err := raw.Hold.Renew(ctx); return err },
		"Release": raw.Hold.Release,
	} {
		if !s.returns(s.ttl/4+s.soon, func() { _ = call(s.within(s.ttl / 4)) }) {
			s.broken(fmt.Sprintf("%s did not return within %v after its context had ended", what, s.soon),
				"it waits for the network, whatever its context says: a driver that ignores the deadline "+
					"has to be left behind")
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
	s.inModes(func(mode Mode) {
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
			s.broken(fmt.Sprintf("an outage (%v) of half a TTL cost the lease: %v", mode, err),
				"a failed Renew returns ErrLost, or the connection is not made again in time")
		}
		s.unlock(l)
	})
}
