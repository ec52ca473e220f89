package conformance

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
)

// owner returns an owner value as the engine makes them.
func owner() string {
	var b [20]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// request is a request as the engine would make it.
func (s *trial) request(name string, ttl time.Duration) driver.Request {
	return driver.Request{Name: name, Owner: owner(), Label: "conformance", TTL: ttl, Lost: func() {}}
}

// isWaiting returns when n callers of c wait and, as far as visible, the service knows. c has had no
// other refusals in the check.
func (s *trial) isWaiting(c *locker.Client, n int) {
	s.Helper()
	if !s.eventually(s.patience(), func() bool { return c.Stats().Waiting >= n }) {
		s.broken(fmt.Sprintf("%d callers of Lock should wait, and %d do", n, c.Stats().Waiting),
			"Lock of a held name does not wait")
	}
	// A service with a queue does not answer before the lock is free: the arrival of the request is
	// then not visible, so allow it some time.
	s.eventually(settle, func() bool { return c.Stats().Refused > 0 })
}

// settle is the time allowed if there is nothing to wait for.
const settle = 100 * time.Millisecond

// freeWithin fails if other cannot get name within d.
func (s *trial) freeWithin(d time.Duration, other *locker.Client, name, cause string) *locker.Lease {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), d)
	defer cancel()
	l, err := other.Lock(ctx, name, locker.TTL(s.long))
	if err != nil {
		s.broken(fmt.Sprintf("the name was not free within %v: %v", d, err), cause)
	}
	return l
}

// acquire asks a backend for a free name.
func (s *trial) acquire(b driver.Backend, req driver.Request) driver.Grant {
	s.Helper()
	grant, err := acquire(s.within(s.patience()), b, req)
	if err != nil || grant.Hold == nil {
		s.broken(fmt.Sprintf("Acquire of a free name failed: %v", err), ofError(err))
	}
	return grant
}

// ofError is the cause of the error of a request for a name that is free, or soon will be.
func ofError(err error) string {
	if errors.Is(err, locker.ErrHeld) {
		return "something of an earlier holder is left"
	}
	return "the service cannot be reached, or its own error is the cause: after a conflict of requests (a " +
		"deadlock, a serialization failure), Acquire must repeat its request"
}

// release releases a hold that must still exist.
func (s *trial) release(h driver.Hold) {
	s.Helper()
	if err := h.Release(s.within(s.patience()), 0); err != nil {
		s.broken(fmt.Sprintf("Release of a hold failed: %v", err), "Release does not find its own key")
	}
}
