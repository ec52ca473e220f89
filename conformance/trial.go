package conformance

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
)

// trial is one run of one check: its harness, its times, its clients.
type trial struct {
	T
	h     Harness
	check check
	g     locker.Guarantees
	size

	ttl  time.Duration // of locks that should expire
	long time.Duration // of locks that should not
	soon time.Duration // prompt, on a busy machine: well before long
	run  string        // makes the names of this trial unique

	told atomic.Int32 // failures
}

const (
	defaultTTL = time.Second
	leastTTL   = 10 * time.Millisecond // that the engine asks for
)

func (h Harness) ttlOrDefault() time.Duration { return cmp.Or(h.TTL, defaultTTL) }

func newTrial(t T, h Harness, g locker.Guarantees, c check, of size) *trial {
	s := &trial{T: t, h: h, check: c, g: g, size: of}
	longest := cmp.Or(s.g.MaxTTL, 24*time.Hour)
	s.ttl = min(max(h.ttlOrDefault(), s.g.MinTTL), longest)
	s.long = min(20*s.ttl, longest)
	s.soon = min(max(s.long/4, time.Second), 3*time.Second)
	var b [6]byte
	_, _ = rand.Read(b[:])
	s.run = hex.EncodeToString(b[:])
	return s
}

// name returns a lock name that nobody else uses.
func (s *trial) name(what string) string { return "conformance-" + s.run + "-" + what }

// client returns a Client with its own backend.
func (s *trial) client() *locker.Client { return s.clientOf(s.backend()) }

// clientOf returns a Client of b, which is closed with the trial.
func (s *trial) clientOf(b driver.Backend) *locker.Client {
	c, err := locker.New(b, &locker.Options{TTL: s.ttl})
	if err != nil {
		s.Errorf("no Client can be made with the backend: %v", err)
		s.FailNow()
	}
	s.Cleanup(func() { _ = c.Close() })
	return c
}

// backend returns another client of the service, without an engine, which is closed with the trial.
func (s *trial) backend() driver.Backend { return s.closed(s.h.New(s)) }

// cut returns a backend whose connection can be broken, and its Fault. The connection is restored
// before the backend is closed.
func (s *trial) cut() (b driver.Backend, f Fault) {
	b, f = s.h.Cut(s)
	s.closed(b)
	s.Cleanup(func() { both(f, Pass) })
	return b, f
}

func (s *trial) closed(b driver.Backend) driver.Backend {
	if b == nil {
		s.broken("the harness returned a nil Backend",
			"New or Cut of the Harness failed and did not say so with t.Errorf and t.FailNow")
	}
	s.Cleanup(func() { _ = b.Close() })
	return b
}

// both sets both directions of a connection.
func both(f Fault, m Mode) {
	f.Requests(m)
	f.Replies(m)
}

// caught returns f with panics turned into failures, as on the check's own goroutine.
func (s *trial) caught(f func()) func() {
	return func() {
		defer func() {
			if p := recover(); p != nil {
				s.report(fmt.Sprintf("panic: %v", p), "see the stack:\n"+string(debug.Stack()))
			}
		}()
		f()
	}
}

// broken ends the check as failed.
func (s *trial) broken(seen, cause string) {
	s.Helper()
	s.report(seen, cause)
	s.FailNow()
}

// mostOfCheck is how many failures of one check are reported.
const mostOfCheck = 5

// report is broken for other goroutines than the check's, and for failures after which the check can
// continue.
func (s *trial) report(seen, cause string) {
	s.Helper()
	if s.told.Add(1) > mostOfCheck {
		return // with many clients, the others say the same again
	}
	s.Errorf("broken promise: %s\nseen: %s\nprobable cause: %s", s.check.Promise, seen, cause)
}

// within returns a context that ends after d, or with the check. It is kept
// until the check ends: not for use in a loop.
func (s *trial) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(s.Context(), d)
	s.Cleanup(cancel)
	return ctx
}

// tryLock is TryLock in an attempt of its own, also for use in a loop.
func (s *trial) tryLock(c *locker.Client, name string, opts ...locker.Option) (*locker.Lease, error) {
	ctx, cancel := context.WithTimeout(s.Context(), s.patience())
	defer cancel()
	return c.TryLock(ctx, name, opts...)
}

// try takes a lock that must be free.
func (s *trial) try(c *locker.Client, name string, opts ...locker.Option) *locker.Lease {
	s.Helper()
	l, err := s.tryLock(c, name, opts...)
	if errors.Is(err, locker.ErrUnavailable) {
		// A service on a busy machine may take longer than a short lease lasts.
		s.eventually(s.soon, func() bool {
			l, err = s.tryLock(c, name, opts...)
			return err == nil
		})
	}
	if err != nil {
		s.broken(fmt.Sprintf("TryLock of a name that nobody had failed: %v", err), ofError(err))
	}
	return l
}

// patience is how long a single healthy call may take.
func (s *trial) patience() time.Duration { return 10*time.Second + 10*s.ttl }

// unlock unlocks a lease that must still be held.
func (s *trial) unlock(l *locker.Lease) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), s.patience())
	defer cancel()
	if err := l.Unlock(ctx); err != nil {
		s.broken(fmt.Sprintf("Unlock of a held lease failed: %v", err), "the key or node was not found: "+
			"another owner value, a TTL that is too short, a name that is encoded in two ways")
	}
}

// eventually waits until cond holds, at most for d, and reports whether it does.
func (s *trial) eventually(d time.Duration, cond func() bool) bool {
	tick := time.Millisecond
	for deadline := time.Now().Add(d); !cond(); time.Sleep(tick) {
		tick = min(2*tick, 20*time.Millisecond)
		if time.Now().After(deadline) || s.Context().Err() != nil {
			return cond()
		}
	}
	return true
}
