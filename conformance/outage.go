package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/golockers/locker"
)

func outageChecks() []check {
	return []check{
		{
			Name:    "unlock-through-outage",
			Promise: "An Unlock that the network swallows is made up for in the background, well before the TTL.",
			unasked: noNetwork, missing: needsCut, run: checkUnlockThroughOutage,
		},
		{
			Name: "outage",
			Promise: "An outage is ErrUnavailable and never ErrHeld (R17), calls return when their context " +
				"ends (R8), and after it everything works again.",
			unasked: noNetwork, missing: needsCut, run: checkOutage,
		},
	}
}

// inModes runs part in each kind of outage, side by side.
func (s *trial) inModes(part func(Mode)) {
	s.together(func() { part(Reset) }, func() { part(Drop) })
}

func checkUnlockThroughOutage(s *trial) {
	s.inModes(func(mode Mode) {
		b, fault := s.cut()
		c, other := s.clientOf(b), s.client()
		name := s.name("unlock-" + mode.String())
		l := s.try(c, name, locker.TTL(s.long))
		both(fault, mode)
		began := time.Now()
		err := l.Unlock(s.within(s.ttl / 2))
		switch {
		case err == nil:
			s.broken("Unlock was confirmed by a service that could not be reached",
				"Release reports success without having heard from the service")
		case errors.Is(err, locker.ErrLost):
			s.broken(fmt.Sprintf("Unlock during an outage (%v) returned %v", mode, err),
				"Release takes an outage for a loss")
		case time.Since(began) > s.ttl/2+s.soon:
			s.broken(fmt.Sprintf("Unlock returned %v after its deadline", time.Since(began)-s.ttl/2),
				"the engine waits for Release, which does not watch its context")
		}
		both(fault, Pass)
		s.unlock(s.freeWithin(s.long/2, other, name,
			"Release reports an end where it has not heard from the service, so that it is not tried again"))
		s.nothingLeft(name)
	})
}

// takeBack clears up after an Acquire whose outcome is not known, as the engine
// does: what was sent may arrive later than an Undo that finds nothing.
func (s *trial) takeBack(h locker.Hold) {
	for s.Context().Err() == nil {
		ctx, cancel := context.WithTimeout(s.Context(), s.soon)
		err := h.Undo(ctx)
		cancel()
		if err == nil {
			return
		}
		select {
		case <-time.After(s.ttl / 20):
		case <-s.Context().Done():
		}
	}
}

func checkOutage(s *trial) {
	other, held := s.client(), s.name("outage-held")
	s.try(other, held, locker.TTL(s.long))
	s.together(
		func() { s.outage(Reset, other, held) },
		func() { s.outage(Drop, other, held) },
		func() { s.slow(held) },
		func() { s.slow(s.name("slow-free")) },
	)
}

// slow keeps a reply back for longer than a backend may want to wait for it.
func (s *trial) slow(name string) {
	b, fault := s.cut()
	s.warm(b)
	fault.Replies(Hold)
	grant, err := b.Acquire(s.within(4*s.ttl), s.held(s.request(name, s.long)))
	if grant.Hold != nil {
		s.spawn(func() { s.takeBack(grant.Hold) })
	}
	switch both(fault, Pass); {
	case err == nil:
		s.broken("Acquire succeeded without a reply", "it did not ask the service")
	case !unanswered(err):
		s.broken(fmt.Sprintf("the reply to Acquire did not come, and it failed with %q, which matches "+
			"ErrHeld or does not match ErrUnavailable", err),
			"a time-out of the backend, its driver or its server is taken for a refusal (R17)")
	}
}

// outage asks for a name that other holds, and for one that is free.
func (s *trial) outage(mode Mode, other *locker.Client, held string) {
	b, fault := s.cut()
	c, free := s.clientOf(b), s.name("outage-free-"+mode.String())
	s.warm(b)
	both(fault, mode)
	for _, name := range []string{held, free} {
		// At the backend, and not only behind the engine, which returns
		// in time whatever its backend does.
		var grant locker.Grant
		var err error
		returned := s.returns(s.ttl/2+s.soon, func() {
			grant, err = b.Acquire(s.within(s.ttl/2), s.held(s.request(name, s.long)))
		})
		if returned && grant.Hold != nil {
			s.spawn(func() { s.takeBack(grant.Hold) })
		}
		switch {
		case !returned:
			s.broken(fmt.Sprintf("in an outage (%v), Acquire did not return within %v after its context "+
				"had ended", mode, s.soon), "it waits for the network, whatever its context says (R8)")
		case err == nil:
			s.broken(fmt.Sprintf("in an outage (%v), Acquire succeeded", mode), "it did not ask the service")
		case errors.Is(err, locker.ErrHeld):
			s.broken(fmt.Sprintf("in an outage (%v), Acquire failed with %q, which matches ErrHeld",
				mode, err), "every failure is taken for a refusal (R17)")
		case !unanswered(err):
			s.broken(fmt.Sprintf("in an outage (%v), Acquire failed with %q, which does not match "+
				"ErrUnavailable", mode, err), "errors of the network have to be wrapped with ErrUnavailable")
		}
		_, err = c.TryLock(s.within(s.ttl/2), name, s.opts()...)
		if !unanswered(err) {
			s.broken(fmt.Sprintf("in an outage (%v), TryLock failed with %v instead of ErrUnavailable",
				mode, err), "an outage is reported as something else (R17)")
		}
	}
	both(fault, Pass)
	if !s.eventually(s.patience(), func() bool {
		ctx, cancel := context.WithTimeout(s.Context(), s.soon)
		defer cancel()
		l, err := c.TryLock(ctx, s.name("outage-after-"+mode.String()), locker.TTL(s.long))
		if err == nil {
			s.unlock(l)
		}
		return err == nil
	}) {
		s.broken(fmt.Sprintf("after an outage (%v) the client did not find the way to the service again",
			mode), "a connection that is broken and never made again")
	}
	s.unlock(s.freeWithin(s.long/2, other, free, ghost))
}
