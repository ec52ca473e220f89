package conformance

import (
	"errors"
	"fmt"
	"strings"

	"github.com/golockers/locker"
)

func checkURL(s *trial) {
	ctx := s.within(s.patience())
	c, err := s.h.Open(ctx, s.h.URL, nil)
	if err != nil {
		s.broken(fmt.Sprintf("Open failed: %v", err), "the harness's URL is wrong for the service")
	}
	s.Cleanup(func() { _ = c.Close() })
	name := s.name("url")
	other := s.client()
	l := s.try(other, name, locker.TTL(s.long))
	if _, err := c.TryLock(ctx, name, locker.TTL(s.ttl)); !errors.Is(err, locker.ErrHeld) {
		s.broken(fmt.Sprintf("a client of New holds a name, and TryLock of "+
			"one opened by URL returned %v", err),
			"it opens another server, database or directory, or adds another prefix of its own")
	}
	s.unlock(l)
	s.try(c, name, locker.TTL(s.long))
	if err := c.Close(); err != nil {
		s.broken(fmt.Sprintf("Close failed: %v", err), "the backend cannot be closed")
	}
	s.unlock(s.freeWithin(s.soon, other, name, "Close of the Client did not release its lease"))
	sep := "?"
	if strings.Contains(s.h.URL, "?") {
		sep = "&"
	}
	wrong, err := s.h.Open(ctx, s.h.URL+sep+"no_such_parameter=1", nil)
	if err == nil {
		_ = wrong.Close()
		s.broken("an unknown parameter was accepted", "an engine that does not check")
	}
	if !errors.Is(err, locker.ErrInvalid) || !strings.Contains(err.Error(), "unknown parameter") {
		s.broken(fmt.Sprintf("an unknown parameter was refused with %v", err),
			"the URL is used before u.Check is called")
	}
	if g, want := c.Guarantees().Backend, s.g.Backend; g != want {
		s.broken(fmt.Sprintf("by URL the backend is %q, by New %q", g, want), "it is another backend")
	}
}
