package conformance

import (
	"errors"
	"fmt"
	"time"

	"github.com/golockers/locker"
)

func closeChecks() []check {
	return []check{
		{
			Name: "close",
			Promise: "Close ends waits in ErrClosed and frees what is held for others at once; it can be " +
				"called twice, and nothing is granted after it.",
			run: checkClose,
		},
		{
			Name: "close-given",
			Promise: "Close ends nothing that the backend's user has given it: another backend that was " +
				"made of the same goes on.",
			unasked: func(s subject) string {
				if s.Pair == nil {
					return "the harness has no Pair: its backends are made of nothing that is their user's"
				}
				return ""
			},
			run: checkCloseGiven,
		},
		{
			Name:    "close-cut-off",
			Promise: "Close returns although the service is silent, and leaves no goroutine.",
			unasked: noNetwork, missing: needsCut, run: checkCloseCutOff,
		},
	}
}

func checkClose(s *trial) {
	b, other := s.backend(), s.client()
	c := s.clientOf(b)
	mine, others := s.name("mine"), s.name("others")
	held := s.try(other, others, locker.TTL(s.long))
	s.try(c, mine, locker.TTL(s.long))
	const waiters = 3
	answers := make([]error, waiters)
	all := s.group()
	for i := range answers {
		all.Go(func() { _, answers[i] = c.Lock(s.Context(), others, locker.TTL(s.long)) })
	}
	s.isWaiting(c, waiters)

	began := time.Now()
	if err := c.Close(); err != nil {
		s.broken(fmt.Sprintf("Close of a Client failed: %v", err),
			"Release fails, or Acquire does not return when its context ends")
	}
	if took := time.Since(began); took > s.soon {
		s.broken(fmt.Sprintf("Close of a Client took %v", took), "Acquire does not return when its context ends")
	}
	all.Wait()
	for _, err := range answers {
		if !errors.Is(err, locker.ErrClosed) {
			s.broken(fmt.Sprintf("Close ended a wait with %v", err),
				"Acquire makes up an answer when its context ends")
		}
	}
	s.unlock(s.freeWithin(s.soon, other, mine, "the lease was not released"))
	s.unlock(held)
	s.unlock(s.freeWithin(s.soon, other, others,
		"a waiter that Close ended left its place, its node or its key"))
	s.nothingLeft(mine)
	s.nothingLeft(others)

	// The backend is its creator's: it still works for others until it is closed.
	s.unlock(s.try(s.clientOf(b), mine, locker.TTL(s.long)))
	open := s.acquire(b, s.request(s.name("open"), s.long))
	closed := make(chan error, 2)
	for range 2 {
		s.spawn(func() { closed <- b.Close() })
	}
	for range 2 {
		select {
		case err := <-closed:
			if err != nil {
				s.broken(fmt.Sprintf("Close of a Backend failed: %v", err),
					"Close is not prepared to be called twice, or with a hold that was not released")
			}
		case <-time.After(s.patience()):
			s.broken("Close of a Backend does not return", "it waits for a hold that nobody releases, or for itself")
		}
	}
	grant, err := b.Acquire(s.within(s.patience()), s.request(s.name("closed"), s.long))
	if !errors.Is(err, locker.ErrClosed) || grant.Hold != nil {
		s.broken(fmt.Sprintf("Acquire of a closed Backend returned %v, with a Hold: %t", err, grant.Hold != nil),
			"Close does not mark the Backend as closed")
	}
	if open.Session {
		s.unlock(s.freeWithin(s.soon, other, s.name("open"),
			"Close does not give the session back, which keeps its locks until it ends by itself"))
	}
	// What they return is not promised, but that they return is.
	_, _ = open.Hold.Renew(s.within(s.ttl))
	_ = open.Hold.Release(s.within(s.ttl))
}

func checkCloseGiven(s *trial) {
	const cause = "Close closes the driver's client, pool or connection that the backend was made of, and " +
		"not only what it has made itself"
	var a, b locker.Backend
	s.hook(func() { a, b = s.h.Pair(s) })
	s.closed(a)
	s.closed(b)
	s.release(s.acquire(a, s.request(s.name("given-a"), s.long)).Hold)
	held := s.acquire(b, s.request(s.name("given-b"), s.long))
	if err := a.Close(); err != nil {
		s.broken(fmt.Sprintf("Close of a Backend failed: %v", err), "")
	}
	if _, err := held.Hold.Renew(s.within(s.patience())); err != nil {
		s.broken(fmt.Sprintf("one of two backends on one client was closed, and Renew by the other "+
			"failed: %v", err), cause)
	}
	s.release(held.Hold)
	grant, err := s.ask(b, s.name("given-later"), s.long)
	if err != nil {
		s.broken(fmt.Sprintf("one of two backends on one client was closed, and Acquire by the other "+
			"failed: %v", err), cause)
	}
	s.release(grant.Hold)
}

// patienceOfClose is what the engine gives a silent service, and some more.
const patienceOfClose = 12 * time.Second

func checkCloseCutOff(s *trial) {
	b, fault := s.cut()
	c := s.clientOf(b)
	held := s.name("held")
	s.try(s.client(), held, locker.TTL(s.long))
	s.try(c, s.name("mine"), locker.TTL(s.long))
	answer := make(chan error, 1)
	s.spawn(func() {
		_, err := c.Lock(s.Context(), held, locker.TTL(s.long))
		answer <- err
	})
	s.isWaiting(c, 1)
	both(fault, Drop)
	began := time.Now()
	closed := make(chan struct{})
	s.spawn(func() {
		defer close(closed)
		_ = c.Close()
		_ = b.Close()
	})
	select {
	case <-closed:
	case <-time.After(patienceOfClose + s.patience()):
		s.broken("Close does not return while the service is silent",
			"Release or Close waits for an answer, whatever its context says")
	}
	if took := time.Since(began); took > patienceOfClose+s.soon {
		s.broken(fmt.Sprintf("Close took %v while the service was silent", took),
			"Release or Close waits for an answer for longer than its context allows")
	}
	if err := <-answer; !errors.Is(err, locker.ErrClosed) {
		s.broken(fmt.Sprintf("Close ended a wait with %v", err), "Acquire makes up an answer when its context ends")
	}
}
