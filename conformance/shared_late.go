package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/golockers/locker"
)

func checkSharedLate(s *trial) {
	parts := []func(){s.lateKinds, s.lateEnds, func() { s.deadWaits(locker.Shared()) }}
	for _, how := range [][2]bool{{true, true}, {false, true}, {false, false}} {
		parts = append(parts, func() { s.sharerGivenUp(how[0], how[1]) })
	}
	s.together(parts...)
}

// lateKinds keeps the reply to a reader's request back while a writer asks, and the other
// way round: both can be granted only if the late one takes two steps.
func (s *trial) lateKinds() {
	b, fault := s.cut()
	other, name := s.backend(), s.name("kinds")
	kinds := map[string]func(string, time.Duration) locker.Request{"reader": s.shares, "writer": s.request}
	for first, ask := range kinds {
		for second, next := range kinds {
			if first == second {
				continue
			}
			seen := false
			for try := 0; try < lateTries && !seen; try++ {
				s.again(b)
				late := make(chan locker.Grant, 1)
				fault.Replies(Hold)
				s.spawn(func() {
					grant, err := s.askWith(b, ask(name, s.long))
					if err != nil && grant.Hold != nil {
						_ = grant.Hold.Undo(s.within(s.patience()))
						grant.Hold = nil
					}
					late <- grant
				})
				time.Sleep(s.ttl / 10) // for the request to arrive
				got, err := s.askWith(other, next(name, s.long))
				fault.Replies(Pass)
				grant := <-late
				if err == nil && grant.Hold != nil {
					s.broken(fmt.Sprintf("a %s was granted a name that a %s had been granted while its "+
						"reply was late", first, second), twoSteps)
				}
				seen = errors.Is(err, locker.ErrHeld)
				for _, hold := range []locker.Hold{got.Hold, grant.Hold} {
					if hold != nil {
						_ = hold.Undo(s.within(s.patience()))
					}
				}
			}
		}
	}
}

// sharerGivenUp lets a reader give up whose request, or reply, is kept back; and then a
// writer comes, or if it is among others, leaves them as they are.
func (s *trial) sharerGivenUp(replies, among bool) {
	b, fault := s.cut()
	c, stays, other, third := s.clientOf(b), s.backend(), s.client(), s.backend()
	s.warm(b)
	name := s.name(fmt.Sprintf("given-up-%t-%t", replies, among))
	var before locker.Grant
	if among {
		before = s.share(stays, name, s.long)
	}
	if replies {
		fault.Replies(Drop)
	} else {
		fault.Requests(Hold)
	}
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	answers := make(chan error, 1)
	sent := fault.Sent()
	s.spawn(func() {
		_, err := c.Lock(ctx, name, locker.Shared(), locker.TTL(s.long))
		answers <- err
	})
	s.eventually(s.soon, func() bool { return fault.Sent() > sent })
	time.Sleep(settle)
	cancel()
	if err := <-answers; !errors.Is(err, context.Canceled) && !unanswered(err) {
		s.broken(fmt.Sprintf("Lock of a reader without a reply, cancelled, returned %v", err),
			"Acquire makes up an answer")
	}
	var writer *locker.Lease
	if !replies && !among { // the request arrives when a writer has the name
		writer = s.freeWithin(s.soon, other, name, ghost)
	}
	both(fault, Pass)
	time.Sleep(settle)
	if writer != nil {
		s.refuse(third, s.shares(name, s.long),
			"while a writer held the name, and the late request of a sharer had arrived", besideWriter)
		if err := writer.Renew(s.within(s.patience())); err != nil {
			s.broken(fmt.Sprintf("after the late request of a sharer, Renew of a writer failed: %v", err),
				twoSteps)
		}
		s.unlock(writer)
		s.release(s.acquireNow(third, s.request(name, s.long),
			"when the writer had unlocked, with the late request of a sharer that had come meanwhile"))
	}
	if among {
		if _, err := before.Hold.Renew(s.within(s.patience())); err != nil {
			s.broken(fmt.Sprintf("a sharer held the name, and another was taken back: Renew of the first "+
				"failed: %v", err), "a take-back removes the sharers of a name, and not the one with its "+
				"owner")
		}
		s.refuse(third, s.request(name, s.long), "while a sharer held the name, and another was taken back",
			"a take-back removes the sharers of a name, and not the one with its owner")
		s.release(before.Hold)
	}
	s.unlock(s.freeWithin(s.soon, other, name, ghost))
	s.nothingLeft(name)
}

// acquireNow fails if the request is not granted at once.
func (s *trial) acquireNow(b locker.Backend, req locker.Request, when string) locker.Hold {
	s.Helper()
	grant, err := s.askWith(b, req)
	if err != nil {
		s.broken(fmt.Sprintf("%s, Acquire returned %v (shared: %t)", when, err, req.Shared), ghost)
	}
	return grant.Hold
}

// lateEnds lets the renewal, and the release, of a reader arrive when a writer is in.
func (s *trial) lateEnds() {
	var parts []func()
	for _, what := range []string{"Renew", "Release"} {
		parts = append(parts, func() {
			name := s.name("late-" + what)
			b, fault := s.cut()
			other, third := s.client(), s.backend()
			s.warm(b)
			reader := s.share(b, name, s.ttl)
			both(fault, Hold)
			done := make(chan error, 1)
			var renewed locker.Validity
			s.spawn(func() {
				var err error
				ctx, cancel := context.WithTimeout(s.Context(), s.patience())
				defer cancel()
				if what == "Renew" {
					renewed, err = reader.Hold.Renew(ctx)
				} else {
					err = reader.Hold.Release(ctx)
				}
				done <- err
			})
			writer := s.freeWithin(s.freedWithin(s.life(s.ttl)), other, name,
				"a sharer that nobody renews has no end")
			in := time.Now()
			both(fault, Pass)
			if err := <-done; err == nil && what == "Renew" && in.Before(renewed.Until()) {
				s.broken("Renew of a sharer succeeded that arrived when a writer had the name",
					"it puts its entry back (R12)")
			}
			for range 2 {
				s.refuse(third, s.shares(name, s.long),
					fmt.Sprintf("while a writer held the name, and a late %s of a sharer had arrived", what),
					besideWriter)
				if err := writer.Renew(s.within(s.patience())); err != nil {
					s.broken(fmt.Sprintf("after a late %s of a sharer, Renew of a writer failed: %v", what,
						err), "it removes what has its name, and not what has its owner (R9)")
				}
			}
			s.unlock(writer)
			s.release(s.acquireNow(third, s.request(name, s.long),
				fmt.Sprintf("when the writer had unlocked, after a late %s of a sharer", what)))
		})
	}
	s.together(parts...)
}
