package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/golockers/locker"
)

func sinceChecks() []check {
	return []check{
		{
			Name: "since",
			Promise: "Validity.Since is read before the request is sent, so that no time on the way " +
				"counts as held (R1).",
			unasked: noNetwork, missing: needsCut, run: checkSince,
		},
		{
			Name:    "client-clock",
			Promise: "No clock of a client decides when another's lock is over.",
			unasked: func(s subject) string {
				if s.Scope < locker.ScopeNetwork {
					return fmt.Sprintf("within one %v there is one clock", s.Scope)
				}
				return ""
			},
			missing: func(s subject) string {
				if s.OffClock == nil {
					return "OffClock"
				}
				return ""
			},
			rare: true, run: checkClientClock,
		},
	}
}

// checkSince keeps replies back for a while: what is granted by them must be
// counted from before it. A new connection that has to be made first is a
// good excuse once, not every time.
func checkSince(s *trial) {
	s.together(s.sinceOfRequests, s.sinceOfWait)
}

// sinceOfWait keeps back what tells a waiter of its grant, and then cuts it off. Its hold
// may count from later than the grant if it has asked once more; but it has to be over
// before the service gives the lock to another.
func (s *trial) sinceOfWait() {
	b, fault := s.cut()
	if !b.Guarantees().Queue {
		return
	}
	s.warm(b)
	earlier, other, name := s.backend(), s.client(), s.name("since-wait")
	before, err := s.ask(earlier, name, s.long)
	if err != nil {
		s.broken(fmt.Sprintf("Acquire of a free name failed: %v", err), ofError(err))
	}
	req, queued := s.held(s.request(name, s.ttl)), make(chan struct{})
	req.Wait, req.Queued = true, sync.OnceFunc(func() { close(queued) })
	grants := make(chan locker.Grant, 1)
	s.spawn(func() {
		grant, _ := b.Acquire(s.within(s.patience()), req)
		grants <- grant
	})
	s.returns(s.soon, func() { <-queued })
	fault.Replies(Hold)
	s.release(before.Hold)
	time.Sleep(s.ttl / 5)
	fault.Replies(Pass)
	grant := <-grants
	both(fault, Drop)
	if grant.Validity.TTL == 0 {
		return // it was not granted
	}
	l := s.freeWithin(s.freedWithin(grant.Validity.TTL), other, name, "the lock does not expire")
	if early := time.Until(grant.Validity.Until()); early > 0 {
		s.broken(fmt.Sprintf("a waiter was told late of its grant and then cut off, and another got in %v "+
			"before its Until", early),
			"the service counts from the grant, and Since is read when the waiter is told of it (R1)")
	}
	s.unlock(l)
}

func (s *trial) sinceOfRequests() {
	const tries = 4
	b, fault := s.cut()
	pause := s.ttl / 5
	measure := func(what string, prepare func(), ask func() (locker.Validity, error)) {
		s.Helper()
		var late time.Duration
		for range tries {
			prepare()
			fault.Replies(Hold)
			held := time.Now()
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
			case a.err != nil && passed.Sub(held) >= s.ttl/4: // on a busy machine
				s.Logf("%s failed when its reply took %v, which is more than it has to be given: %v",
					what, passed.Sub(held), a.err)
				continue
			case a.err != nil:
				s.broken(fmt.Sprintf("%s failed when its reply took %v: %v", what, pause, a.err),
					"the backend gives its requests less time than the harness has to leave them: TTL/4")
			case a.v.Since.After(time.Now()):
				s.broken(fmt.Sprintf("%s returned a Since in the future", what),
					"Since is not a reading of the local clock")
			}
			if late = a.v.Since.Sub(passed); late < 0 {
				return
			}
		}
		s.broken(fmt.Sprintf("%s waited %v for its reply, and its Since is %v after that", what, pause, late),
			"Since is read when the reply has come (R1)")
	}
	var grant locker.Grant
	measure("Acquire", func() {
		if grant.Hold != nil {
			_ = grant.Hold.Release(s.within(s.patience()))
		}
		s.warm(b)
	}, func() (v locker.Validity, err error) {
		grant, err = b.Acquire(s.within(s.patience()), s.held(s.request(s.name("since"), s.long)))
		return grant.Validity, err
	})
	if grant.Validity.TTL == 0 {
		s.broken("a lock that is held over a network has no deadline",
			"Validity.TTL is 0: nothing then tells a holder that is cut off")
	}
	measure("Renew", func() { s.warm(b) }, func() (locker.Validity, error) {
		return grant.Hold.Renew(s.within(s.patience()))
	})
	if _, ok := grant.Hold.(locker.Passer); ok && s.state != together {
		measure("Pass", func() { s.warm(b) }, func() (locker.Validity, error) {
			next, err := grant.Hold.(locker.Passer).Pass(s.within(s.patience()),
				s.request(s.name("since"), s.long), false)
			if err == nil {
				grant = next
			}
			return next.Validity, err
		})
	}
	s.sinceOfBeats(b, fault, pause)
	_ = grant.Hold.Release(s.within(s.patience()))
}

// sinceOfBeats keeps the replies to a session's own renewals back, where Renew
// sends nothing and tells of those.
func (s *trial) sinceOfBeats(b locker.Backend, fault Fault, pause time.Duration) {
	s.Helper()
	hold := s.acquire(b, s.request(s.name("beats"), s.ttl)).Hold
	since := func() time.Time {
		ctx, cancel := context.WithTimeout(s.Context(), s.patience())
		defer cancel()
		v, err := hold.Renew(ctx)
		if err != nil && unanswered(err) { // on a busy machine, a pause is longer than was meant
			return time.Time{}
		}
		if err != nil {
			s.broken(fmt.Sprintf("Renew of a hold failed: %v", err), "Renew does not find its own key")
		}
		// Its age may stand in Drift, beside the allowance for clocks.
		return v.Until().Add(-v.TTL + v.TTL/100 + 2*time.Millisecond)
	}
	shared := false
	for try := 0; try < 5 && !shared; try++ {
		sent := fault.Sent()
		since()
		shared = fault.Sent() == sent
	}
	if !shared {
		_ = hold.Release(s.within(s.patience()))
		return
	}
	const tries = 4
	var late time.Duration
	counted := 0
	for range tries {
		before, sent := since(), fault.Sent()
		if before.IsZero() {
			continue
		}
		fault.Replies(Hold)
		s.eventually(s.ttl, func() bool { return fault.Sent() > sent })
		time.Sleep(pause)
		passed := time.Now()
		fault.Replies(Pass)
		var now time.Time
		if !s.eventually(pause/2, func() bool { now = since(); return now.Sub(before) > time.Millisecond }) {
			continue // it was something else that was sent
		}
		if late = now.Sub(passed); late < 0 {
			_ = hold.Release(s.within(s.patience()))
			return
		}
		counted++
	}
	if counted > 1 {
		s.broken(fmt.Sprintf("the reply to a session's renewal was kept back for %v, and its holds' Since "+
			"is %v after that", pause, late), "the session counts from the reply (R1)")
	}
	s.Logf("no reply to a session's renewal was seen to be kept back in %d tries", tries)
}

// checkClientClock lets clients contend whose clocks are far apart.
func checkClientClock(s *trial) {
	const cause = "the time at which a lock ends is written or compared by the clock of a client: only the " +
		"service's own clock may do both"
	for _, off := range []time.Duration{2 * s.long, -2 * s.long} {
		there, here := s.clientOf(s.offClock(off)), s.client()
		for what, pair := range map[string][2]*locker.Client{"asks": {here, there}, "holds": {there, here}} {
			name := s.name(fmt.Sprintf("clock-%s-%v", what, off))
			held := s.try(pair[0], name, locker.TTL(s.long))
			if _, err := s.tryLock(pair[1], name, locker.TTL(s.long)); !errors.Is(err, locker.ErrHeld) {
				s.broken(fmt.Sprintf("a client whose clock is %v ahead %s, and TryLock of a held name "+
					"returned %v", off, what, err), cause)
			}
			s.unlock(held)
			s.unlock(s.freeWithin(s.soon, pair[1], name, cause))
		}
	}
}

// offClock is backend, on a machine whose clock is off.
func (s *trial) offClock(off time.Duration) (b locker.Backend) {
	s.hook(func() { b = s.h.OffClock(s, off) })
	return s.experienced(s.closed(b))
}
