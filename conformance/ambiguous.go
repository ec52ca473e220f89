package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/golockers/locker"
)

func ambiguousChecks() []Check {
	return []Check{
		{
			Name:    "cancel-in-the-middle",
			Promise: "However early or late a Lock is cancelled, nothing of it is left (R7).",
			run:     checkCancelInTheMiddle,
		},
		{
			Name:    "reply-lost",
			Promise: "A request that was carried out and whose reply was lost leaves nothing behind (R7), and its caller returns in time (R8).",
			unasked: noNetwork, missing: needsCut, run: checkReplyLost,
		},
		{
			Name:    "connection-reset",
			Promise: "A connection that breaks under a request leaves either a lease or nothing (R7, R11).",
			unasked: noNetwork, missing: needsCut, run: checkConnectionReset,
		},
		{
			Name:    "request-late",
			Promise: "A request that arrives after its caller has given up leaves nothing behind (R7).",
			unasked: noNetwork, missing: needsCut, run: checkRequestLate,
		},
		{
			Name:    "request-very-late",
			Promise: "A request that arrives when nobody takes it back any more is in the way for one TTL at most, and never for as long as a session lives (R7).",
			unasked: noNetwork, missing: needsCut, run: checkRequestVeryLate,
		},
		{
			Name:    "unlock-through-outage",
			Promise: "An Unlock that the network swallows is made up for in the background, well before the TTL.",
			unasked: noNetwork, missing: needsCut, run: checkUnlockThroughOutage,
		},
		{
			Name:    "outage",
			Promise: "An outage is ErrUnavailable and never ErrHeld (R17), calls return when their context ends (R8), and after it everything works again.",
			unasked: noNetwork, missing: needsCut, run: checkOutage,
		},
	}
}

const ghost = "Acquire did not return a Hold beside its error, its Release does not find what Acquire has put there, or the take-back uses a context that is over"

func checkCancelInTheMiddle(s *trial) {
	const rounds = 40
	c, other := s.client(), s.client()
	// How long an undisturbed Lock takes says where its middle is.
	l := s.try(c, s.name("measure"), locker.TTL(s.long))
	began := time.Now()
	s.unlock(l)
	usual := max(time.Since(began), 100*time.Microsecond)
	names := make([]string, 4)
	for i := range names {
		names[i] = s.name(fmt.Sprintf("middle-%d", i))
	}
	for i := range rounds {
		ctx, cancel := context.WithCancel(s.Context())
		time.AfterFunc(rand.N(2*usual), cancel)
		l, err := c.Lock(ctx, names[i%len(names)], locker.TTL(s.long))
		cancel()
		switch {
		case err == nil:
			s.unlock(l)
		case !errors.Is(err, context.Canceled):
			s.broken(fmt.Sprintf("a cancelled Lock failed with %v", err), "something of an earlier cancelled Lock is in the way, or Acquire hides why it gave up")
		}
	}
	// And with somebody in the way, so that it is waits that are cancelled.
	held := s.try(other, s.name("middle-held"), locker.TTL(s.long))
	for range rounds / 4 {
		ctx, cancel := context.WithTimeout(s.Context(), rand.N(4*usual))
		if _, err := c.Lock(ctx, s.name("middle-held"), locker.TTL(s.long)); err == nil {
			s.broken("Lock of a held name was granted", "no exclusion at all")
		}
		cancel()
	}
	s.unlock(held)
	for _, name := range append(names, s.name("middle-held")) {
		s.unlock(s.freeWithin(s.soon, other, name, ghost))
		s.nothingLeft(name)
	}
}

// giveUp calls Lock until its request has been sent, and then cancels it. It
// returns what Lock returned.
func (s *trial) giveUp(c *locker.Client, fault Fault, name string) (*locker.Lease, error) {
	s.Helper()
	type answer struct {
		lease *locker.Lease
		err   error
	}
	answers := make(chan answer, 1)
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	sent := fault.Sent()
	s.spawn(func() {
		l, err := c.Lock(ctx, name, locker.TTL(s.long))
		answers <- answer{l, err}
	})
	if !s.eventually(s.soon, func() bool { return fault.Sent() > sent }) {
		s.broken("Lock has not sent anything that the harness's Fault counts", "Fault.Sent of the harness does not grow, or requests go another way")
	}
	time.Sleep(settle) // the request itself, where something else was sent before
	cancel()
	began := time.Now()
	select {
	case a := <-answers:
		if took := time.Since(began); took > s.soon {
			s.broken(fmt.Sprintf("the cancelled Lock returned after %v", took), "the engine's own answer came late")
		}
		return a.lease, a.err
	case <-time.After(s.patience()):
		s.broken("the cancelled Lock did not return", "the engine waits for Acquire, which does not watch its context")
		return nil, nil
	}
}

func checkReplyLost(s *trial) {
	b, fault := s.cut()
	c, other := s.clientOf(b), s.client()
	s.warm(b)
	name := s.name("reply-lost")
	fault.Replies(Drop)
	if _, err := s.giveUp(c, fault, name); !errors.Is(err, context.Canceled) {
		s.broken(fmt.Sprintf("Lock without a reply, cancelled, returned %v", err), "Acquire makes up an answer")
	}
	both(fault, Pass)
	s.unlock(s.freeWithin(s.long/2, other, name, ghost))
	s.nothingLeft(name)
}

func checkConnectionReset(s *trial) {
	for _, what := range []string{"reply", "request"} {
		b, fault := s.cut()
		c, other := s.clientOf(b), s.client()
		s.warm(b)
		name := s.name("reset-" + what)
		// Carried out and not answered, or not even delivered: then reset.
		if what == "reply" {
			fault.Replies(Hold)
		} else {
			fault.Requests(Hold)
		}
		type answer struct {
			lease *locker.Lease
			err   error
		}
		answers := make(chan answer, 1)
		sent := fault.Sent()
		ctx := s.within(s.long / 4)
		s.spawn(func() {
			l, err := c.TryLock(ctx, name, locker.TTL(s.long))
			answers <- answer{l, err}
		})
		s.eventually(s.soon, func() bool { return fault.Sent() > sent })
		time.Sleep(settle)
		both(fault, Reset)
		time.Sleep(settle)
		both(fault, Pass)
		a := <-answers
		switch {
		case a.err == nil:
			s.unlock(a.lease)
		case errors.Is(a.err, locker.ErrHeld):
			s.broken(fmt.Sprintf("the connection broke under the %s, nobody held the name, and TryLock failed with %v", what, a.err), "a repeated request found its own key and took it for another's (R11), or an outage is reported as held (R17)")
		case !errors.Is(a.err, locker.ErrUnavailable) && !errors.Is(a.err, context.DeadlineExceeded):
			s.broken(fmt.Sprintf("the connection broke under the %s, and TryLock failed with %q, which does not match ErrUnavailable", what, a.err), "errors of the network have to be wrapped with ErrUnavailable")
		}
		s.unlock(s.freeWithin(s.long/2, other, name, ghost))
		s.nothingLeft(name)
	}
}

func checkRequestLate(s *trial) {
	b, fault := s.cut()
	c, other := s.clientOf(b), s.client()
	s.warm(b)
	name := s.name("request-late")
	fault.Requests(Hold)
	if _, err := s.giveUp(c, fault, name); !errors.Is(err, context.Canceled) {
		s.broken(fmt.Sprintf("Lock without a reply, cancelled, returned %v", err), "Acquire makes up an answer")
	}
	both(fault, Pass) // now it arrives
	time.Sleep(settle)
	s.unlock(s.freeWithin(s.long/2, other, name, ghost))
	s.nothingLeft(name)
}

func checkRequestVeryLate(s *trial) {
	b, fault := s.cut()
	c, other := s.clientOf(b), s.client()
	s.warm(b)
	name := s.name("very-late")
	life := s.life(s.ttl)
	fault.Requests(Hold)
	ctx := s.within(s.ttl / 2)
	_, err := c.Lock(ctx, name, locker.TTL(s.ttl))
	if !errors.Is(err, context.DeadlineExceeded) {
		s.broken(fmt.Sprintf("Lock without a reply returned %v", err), "Acquire makes up an answer")
	}
	time.Sleep(life + s.ttl)
	both(fault, Pass)
	time.Sleep(settle)
	// The client lives on, and works: what keeps its session alive must not
	// keep the ghost alive.
	s.warm(b)
	s.unlock(s.freeWithin(s.freedWithin(life), other, name, "the late request made a key that lives as long as its client's session: it has to be made impossible, or the session retired"))
	s.nothingLeft(name)
}

func checkUnlockThroughOutage(s *trial) {
	for _, mode := range []Mode{Drop, Reset} {
		b, fault := s.cut()
		c, other := s.clientOf(b), s.client()
		name := s.name("unlock-" + mode.String())
		l := s.try(c, name, locker.TTL(s.long))
		both(fault, mode)
		began := time.Now()
		err := l.Unlock(s.within(s.ttl / 2))
		switch {
		case err == nil:
			s.broken("Unlock was confirmed by a service that could not be reached", "Release reports success without having heard from the service")
		case errors.Is(err, locker.ErrLost):
			s.broken(fmt.Sprintf("Unlock during an outage (%v) returned %v", mode, err), "Release takes an outage for a loss")
		case time.Since(began) > s.ttl/2+s.soon:
			s.broken(fmt.Sprintf("Unlock returned %v after its deadline", time.Since(began)-s.ttl/2), "the engine waits for Release, which does not watch its context")
		}
		both(fault, Pass)
		s.unlock(s.freeWithin(s.long/2, other, name, "Release reports an end where it has not heard from the service, so that it is not tried again"))
		s.nothingLeft(name)
	}
}

func checkOutage(s *trial) {
	b, fault := s.cut()
	c, other := s.clientOf(b), s.client()
	s.warm(b)
	held := s.name("outage-held")
	s.try(other, held, locker.TTL(s.long))
	for _, mode := range []Mode{Reset, Drop} {
		both(fault, mode)
		for _, name := range []string{held, s.name("outage-free")} {
			// At the backend, and not only behind the engine, which returns
			// in time whatever its backend does.
			var grant locker.Grant
			var err error
			returned := s.returns(s.ttl/2+s.soon, func() { grant, err = b.Acquire(s.within(s.ttl/2), s.request(name, s.long)) })
			if returned && grant.Hold != nil {
				s.spawn(func() { _ = grant.Hold.Release(s.within(s.patience())) })
			}
			switch {
			case !returned:
				s.broken(fmt.Sprintf("in an outage (%v), Acquire did not return within %v after its context had ended", mode, s.soon), "it waits for the network, whatever its context says (R8)")
			case err == nil:
				s.broken(fmt.Sprintf("in an outage (%v), Acquire succeeded", mode), "it did not ask the service")
			case errors.Is(err, locker.ErrHeld):
				s.broken(fmt.Sprintf("in an outage (%v), Acquire failed with %q, which matches ErrHeld", mode, err), "every failure is taken for a refusal (R17)")
			case !errors.Is(err, locker.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded):
				s.broken(fmt.Sprintf("in an outage (%v), Acquire failed with %q, which does not match ErrUnavailable", mode, err), "errors of the network have to be wrapped with ErrUnavailable")
			}
			_, err = c.TryLock(s.within(s.ttl/2), name)
			if errors.Is(err, locker.ErrHeld) || !errors.Is(err, locker.ErrUnavailable) {
				s.broken(fmt.Sprintf("in an outage (%v), TryLock failed with %v instead of ErrUnavailable", mode, err), "an outage is reported as something else (R17)")
			}
		}
		both(fault, Pass)
		if !s.eventually(s.patience(), func() bool {
			l, err := c.TryLock(s.within(s.soon), s.name("outage-after"), locker.TTL(s.long))
			if err == nil {
				s.unlock(l)
			}
			return err == nil
		}) {
			s.broken(fmt.Sprintf("after an outage (%v) the client did not find the way to the service again", mode), "a connection that is broken and never made again")
		}
	}
	s.unlock(s.freeWithin(s.long/2, other, s.name("outage-free"), ghost))
}
