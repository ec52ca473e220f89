package conformance

import (
	"fmt"
)

func checkCloseGiven(s *trial) {
	const cause = "Close closes the driver's client, pool or connection that the backend was made of, and " +
		"not only what it has made itself"
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
	grant, err := b.Acquire(s.within(s.patience()), s.request(s.name("given-later"), s.long))
	if err != nil {
		s.broken(fmt.Sprintf("one of two backends on one client was closed, and Acquire by the other "+
			"failed: %v", err), cause)
	}
	s.release(grant.Hold)
}
