package conformance

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
)

// checkClose closes a client that has held a lock and, if the backend has a queue, waits for one.
func checkClose(s *trial) {
	const cause = "the driver's client is closed twice, or used after it was closed: let Close set a flag that the " +
		"other methods check"
	b, name := s.backend(), s.name("close")
	gone := s.acquire(b, s.request(name, s.ttl)).Hold
	s.release(gone)
	waited, queue := make(chan error, 1), driver.HasQueue(b)
	if queue {
		held := s.acquire(s.backend(), s.request(name, s.long))
		defer func() { s.release(held.Hold) }()
		queued, req := make(chan struct{}), s.request(name, s.long)
		req.Wait, req.Queued = true, sync.OnceFunc(func() { close(queued) })
		go s.caught(func() {
			_, err := acquire(s.within(s.patience()), b, req)
			waited <- err
		})()
		await(s.soon, queued)
	}
	for _, which := range []string{"Close", "the second Close"} {
		s.caught(func() {
			if err := b.Close(); err != nil {
				s.report(fmt.Sprintf("%s failed: %v", which, err), cause)
			}
		})()
	}
	closed := func(what string, err error) {
		if !errors.Is(err, locker.ErrClosed) {
			s.report(fmt.Sprintf("%s returned %v, which does not match ErrClosed", what, err), cause)
		}
	}
	s.caught(func() {
		_, err := acquire(s.within(s.patience()), b, s.request(name, s.ttl))
		closed("Acquire of a closed Backend", err)
	})()
	s.caught(func() { // they may say that the hold is gone, or that its client is closed
		began := time.Now()
		_, _ = gone.Renew(s.within(s.soon))
		_, _ = gone.Release(s.within(s.soon), 0), gone.Undo(s.within(s.soon))
		if took := time.Since(began); took > s.patience() {
			s.report(fmt.Sprintf("Renew, Release and Undo of a hold took %v after Close", took), cause)
		}
	})()
	if queue {
		select {
		case err := <-waited:
			closed("Acquire that waited when its Backend was closed", err)
		case <-time.After(s.soon):
			s.report("Acquire that waited when its Backend was closed does not return", cause)
		}
	}
}

func checkCloseGiven(s *trial) {
	const cause = "Close closes the driver's client, pool or connection that the backend was made from, and " +
		"not only what it has created itself"
	a, b := s.h.Pair(s)
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
	grant, err := acquire(s.within(s.patience()), b, s.request(s.name("given-later"), s.long))
	if err != nil {
		s.broken(fmt.Sprintf("one of two backends on one client was closed, and Acquire by the other "+
			"failed: %v", err), cause)
	}
	s.release(grant.Hold)
}
