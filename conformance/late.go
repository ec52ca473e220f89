package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/golockers/locker"
)

func lateChecks() []check {
	return []check{
		{
			Name: "late-replies",
			Promise: "To look who holds a lock and to take, renew or remove it are one step: a client " +
				"whose replies are late between two steps would do it to another's (R9, R12).",
			unasked: noNetwork, missing: needsCut, run: checkLateReplies,
		},
	}
}

// twoSteps is what a late reply brings to light.
const twoSteps = "the service is asked who holds the name in one request, and told what to do with it in " +
	"the next: both have to be one script, transaction or conditional write"

// lateTries is how often a busy machine may miss the moment. To miss it proves
// nothing, neither for the backend nor against it.
const lateTries = 3

// checkLateReplies keeps replies from a client back while another has its turn:
// what comes after a reply is then done to what the other has made.
func checkLateReplies(s *trial) {
	b, fault := s.cut()
	other := s.backend()
	for _, what := range []string{"Acquire", "Release", "Renew"} {
		seen := false
		for try := 0; try < lateTries && !seen; try++ {
			s.again(b)
			if what == "Acquire" {
				// The same name again: the first use of one may take steps of its own.
				seen = s.lateAcquire(b, fault, other, s.name("late-Acquire"))
			} else {
				seen = s.lateAtEnd(b, fault, other, s.name(fmt.Sprintf("late-%s-%d", what, try)), what)
			}
		}
		if !seen {
			s.Logf("%s with a late reply: in %d tries it was not seen in one step, and did no harm", what, lateTries)
		}
	}
}

// again returns when b can reach the service: a reply that is too late for it
// may have cost the connection, and that is no harm.
func (s *trial) again(b locker.Backend) {
	s.Helper()
	var err error
	if !s.eventually(s.patience(), func() bool {
		var grant locker.Grant
		if grant, err = s.ask(b, s.name("late-again"), s.ttl); err == nil {
			_ = grant.Hold.Release(s.within(s.patience()))
		}
		return err == nil
	}) {
		s.broken(fmt.Sprintf("after late replies Acquire fails, at last with %v", err),
			"a connection that is broken and never made again")
	}
}

// lateAcquire fails if two are granted the name, one of them after a reply
// that was late. It reports whether the late one was served in one step.
func (s *trial) lateAcquire(b locker.Backend, fault Fault, other locker.Backend, name string) (seen bool) {
	s.Helper()
	type answer struct {
		grant locker.Grant
		err   error
	}
	answers := make(chan answer, 1)
	fault.Replies(Hold)
	s.spawn(func() {
		grant, err := s.askWith(b, s.held(s.request(name, s.long)))
		answers <- answer{grant, err}
	})
	time.Sleep(s.ttl / 10) // for the request to arrive
	next, err := s.ask(other, name, s.long)
	fault.Replies(Pass)
	late := <-answers
	if err == nil {
		if late.err == nil {
			s.broken("Acquire was granted a name that another had been granted while its reply was late", twoSteps)
		}
		s.unharmed(next, "Acquire")
	}
	if late.grant.Hold != nil {
		_ = late.grant.Hold.Undo(s.within(s.patience()))
	}
	return errors.Is(err, locker.ErrHeld)
}

// lateAtEnd calls Release or Renew of a hold that is about to expire, and lets
// the reply pass when another has the lock. It reports whether the call was
// seen to have its effect in one step.
func (s *trial) lateAtEnd(b locker.Backend, fault Fault, other locker.Backend,
	name, what string) (seen bool) {
	s.Helper()
	// A backend has to leave a request TTL/4 for its reply.
	before, after := s.ttl/8, s.ttl/12
	late := s.acquire(b, s.request(name, s.ttl))
	if late.Validity.TTL == 0 {
		return true // it has no end
	}
	expiry := late.Validity.Since.Add(late.Validity.TTL)
	time.Sleep(time.Until(expiry) - before)
	type answer struct {
		validity locker.Validity
		err      error
	}
	answers := make(chan answer, 1)
	fault.Replies(Hold)
	s.spawn(func() {
		ctx, cancel := context.WithTimeout(s.Context(), s.patience())
		defer cancel()
		var a answer
		if what == "Renew" {
			a.validity, a.err = late.Hold.Renew(ctx)
		} else {
			a.err = late.Hold.Release(ctx)
		}
		answers <- a
	})
	var next locker.Grant
	var in time.Time
	take := func() (ok bool) {
		var err error
		next, err = s.ask(other, name, s.long)
		in = time.Now()
		return err == nil
	}
	got := s.eventually(time.Until(expiry)+after, take)
	seen = !got
	if what == "Release" {
		seen = got && in.Before(expiry)
		if !got && s.h.Delete != nil { // a session keeps it
			s.remove(name)
			got = take()
		}
	}
	fault.Replies(Pass)
	a := <-answers
	if !got {
		_ = late.Hold.Release(s.within(s.patience()))
		return seen
	}
	if until := a.validity.Until(); what == "Renew" && a.err == nil && in.Before(until) {
		s.broken(fmt.Sprintf("Renew, whose reply was late, promised a hold for %v after another had been "+
			"granted the name", until.Sub(in)), twoSteps)
	}
	s.unharmed(next, what)
	return seen
}

// unharmed fails if a hold is gone after a reply to another client was late.
func (s *trial) unharmed(next locker.Grant, what string) {
	s.Helper()
	if _, err := next.Hold.Renew(s.within(s.patience())); err != nil {
		s.broken(fmt.Sprintf("after another client's %s whose reply was late, Renew of a hold failed: %v",
			what, err), twoSteps)
	}
	if err := next.Hold.Release(s.within(s.patience())); err != nil {
		s.broken(fmt.Sprintf("after another client's %s whose reply was late, Release of a hold failed: %v",
			what, err), twoSteps)
	}
}

// ask is one Acquire without a wait, also for use in a loop.
func (s *trial) ask(b locker.Backend, name string, ttl time.Duration) (locker.Grant, error) {
	ctx, cancel := context.WithTimeout(s.Context(), s.patience())
	defer cancel()
	return b.Acquire(ctx, s.request(name, ttl))
}
