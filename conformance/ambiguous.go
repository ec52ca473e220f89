package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/golockers/locker"
)

func ambiguousChecks() []check {
	return []check{
		{
			Name:    "cancel-in-the-middle",
			Promise: "However early or late a Lock is cancelled, nothing of it is left (R7).",
			Once:    true, run: checkCancelInTheMiddle,
		},
		{
			Name: "reply-lost",
			Promise: "A request that was carried out and whose reply was lost leaves nothing behind (R7), " +
				"and its caller returns in time (R8).",
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
			Name: "take-back-overtakes",
			Promise: "A take-back that arrives before the request leaves the request in the way for one " +
				"TTL at most (R7).",
			unasked: noNetwork, missing: needsCut, run: checkTakeBackOvertakes,
		},
		{
			Name: "request-very-late",
			Promise: "A request that arrives when nobody takes it back any more is in the way for one TTL " +
				"at most, and never for as long as a session lives (R7).",
			unasked: noNetwork, missing: needsCut, run: checkRequestVeryLate,
		},
	}
}

const ghost = "Acquire did not return a Hold beside its error, its Release does not find what Acquire has " +
	"put there, or the take-back uses a context that is over"

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
			s.broken(fmt.Sprintf("a cancelled Lock failed with %v", err),
				"something of an earlier cancelled Lock is in the way, or Acquire hides why it gave up")
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
	var parts []func()
	for i := range 4 {
		parts = append(parts, func() {
			s.cancelAtGrant(s.client(), other,
				s.name(fmt.Sprintf("middle-handed-%d", i)), usual, nil, nil)
		})
	}
	s.together(parts...)
}

// cancelAtGrant cancels waits at the moment at which the lock is handed on, and requests
// at that of their reply: a little before and a little after, as often as time allows.
// before and waits are the options of who has the lock, and of who waits for it.
func (s *trial) cancelAtGrant(c, other *locker.Client, name string, usual time.Duration, before,
	waits []locker.Option) {
	waits = slices.Clip(waits)
	const most = 750 // a leak was seen in 4 of 3,000 tries
	for i, end := 0, time.Now().Add(2*s.ttl); i < most && time.Now().Before(end); i++ {
		held := s.freeWithin(s.soon, other, name, ghost, before...)
		if i%8 == 7 { // and one that does not wait
			s.unlock(held)
		}
		ctx, cancel := context.WithCancel(s.Context())
		asked := make(chan struct{})
		s.spawn(func() {
			defer close(asked)
			if l, err := c.Lock(ctx, name, append(waits, locker.TTL(s.long))...); err == nil {
				_ = l.Unlock(s.Context())
			}
		})
		if i%8 == 7 {
			time.AfterFunc(rand.N(2*usual), cancel)
		} else {
			s.eventually(s.patience(), func() bool { return c.Stats().Waiting > 0 })
			time.Sleep(rand.N(2 * usual)) // for the service to hear of it
			switch i % 4 {
			case 0:
				cancel()
			case 1:
				s.spawn(cancel)
			default:
				time.AfterFunc(rand.N(2*usual), cancel)
			}
			s.unlock(held)
		}
		<-asked
		cancel()
	}
	s.unlock(s.freeWithin(s.soon, other, name, ghost))
	s.nothingLeft(name)
}

// unanswered reports whether err is what a caller may get from a service that
// gives no answer: that it could not be asked, or that the caller's own time
// was up. Which of them is first is a matter of luck where a driver has the
// deadline of the context for its connection, too. A refusal is never right.
func unanswered(err error) bool {
	return !errors.Is(err, locker.ErrHeld) &&
		(errors.Is(err, locker.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded))
}

// giveUp calls Lock until its request has been sent, and then cancels it. It
// fails if Lock does not say that there was no answer.
func (s *trial) giveUp(c *locker.Client, fault Fault, name string) {
	s.Helper()
	answers := make(chan error, 1)
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	sent := fault.Sent()
	s.spawn(func() {
		_, err := c.Lock(ctx, name, s.opts(locker.TTL(s.long))...)
		answers <- err
	})
	if !s.eventually(s.soon, func() bool { return fault.Sent() > sent }) {
		s.broken("Lock has not sent anything that the harness's Fault counts",
			"Fault.Sent of the harness does not grow, or requests go another way")
	}
	time.Sleep(settle) // the request itself, where something else was sent before
	cancel()
	began := time.Now()
	select {
	case err := <-answers:
		if took := time.Since(began); took > s.soon {
			s.broken(fmt.Sprintf("the cancelled Lock returned after %v", took),
				"the engine's own answer came late")
		}
		// A backend that bounds its requests may have ended it before.
		if !errors.Is(err, context.Canceled) && !unanswered(err) {
			s.broken(fmt.Sprintf("Lock without a reply, cancelled, returned %v", err),
				"Acquire makes up an answer")
		}
	case <-time.After(s.patience()):
		s.broken("the cancelled Lock did not return",
			"the engine waits for Acquire, which does not watch its context")
	}
}

func checkReplyLost(s *trial) {
	b, fault := s.cut()
	c, other := s.clientOf(b), s.client()
	s.warm(b)
	name := s.name("reply-lost")
	fault.Replies(Drop)
	s.giveUp(c, fault, name)
	both(fault, Pass)
	s.unlock(s.freeWithin(s.long/2, other, name, ghost))
	s.nothingLeft(name)
}

func checkConnectionReset(s *trial) {
	s.together(func() { s.reset("reply") }, func() { s.reset("request") })
}

// reset breaks a connection under the request, or the reply, of a TryLock.
func (s *trial) reset(what string) {
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
		l, err := c.TryLock(ctx, name, s.opts(locker.TTL(s.long))...)
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
		s.broken(fmt.Sprintf("the connection broke under the %s, nobody held the name, and TryLock failed "+
			"with %v", what, a.err), "a repeated request found its own key and took it for another's "+
			"(R11), or an outage is reported as held (R17)")
	case !unanswered(a.err):
		s.broken(fmt.Sprintf("the connection broke under the %s, and TryLock failed with %q, which does "+
			"not match ErrUnavailable", what, a.err),
			"errors of the network have to be wrapped with ErrUnavailable")
	}
	s.unlock(s.freeWithin(s.long/2, other, name, ghost))
	s.nothingLeft(name)
}

func checkRequestLate(s *trial) {
	b, fault := s.cut()
	c, other := s.clientOf(b), s.client()
	s.warm(b)
	name := s.name("request-late")
	fault.Requests(Hold)
	s.giveUp(c, fault, name)
	both(fault, Pass) // now it arrives
	time.Sleep(settle)
	s.unlock(s.freeWithin(s.long/2, other, name, ghost))
	s.nothingLeft(name)
}

// checkTakeBackOvertakes holds a request back on its connection, while what
// follows finds another: finding nothing to take back is no proof then.
func checkTakeBackOvertakes(s *trial) { s.lateRequest(s.name("overtaken"), HoldOpen) }

func checkRequestVeryLate(s *trial) { s.lateRequest(s.name("very-late"), Hold) }

// lateRequest delivers a request long after its caller has given up. The client
// lives on.
func (s *trial) lateRequest(name string, mode Mode) {
	s.Helper()
	b, fault := s.cut()
	c, other := s.clientOf(b), s.client()
	s.warm(b)
	life := s.life(s.ttl)
	fault.Requests(mode)
	ctx := s.within(s.ttl / 2)
	l, err := c.Lock(ctx, name, s.opts(locker.TTL(s.ttl))...)
	switch {
	case err == nil && mode == HoldOpen:
		s.unlock(l) // it has asked again, on another connection; what was held must not come back
	case !unanswered(err):
		s.broken(fmt.Sprintf("Lock without a reply returned %v", err), "Acquire makes up an answer")
	}
	time.Sleep(life + s.ttl)
	both(fault, Pass)
	time.Sleep(settle)
	// The client lives on, and works: what keeps its session alive must not
	// keep the ghost alive.
	s.warm(b)
	s.unlock(s.freeWithin(s.freedWithin(life), other, name, "the late request made a key that lives as "+
		"long as its client's session: it has to be made impossible, or the session retired"))
	s.nothingLeft(name)
}
