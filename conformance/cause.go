package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/golockers/locker"
)

// Some mistakes show in nearly every check, and look like something else in each. So
// when a check has failed, the suite measures whether it is one of them. What it finds
// is told as the cause, before what the check would guess.

// measured is what was found out about the backend, once for all checks.
type measured struct {
	mu    sync.Mutex
	tries int
	found string
}

// may reports what was found, and whether it may be tried to find something.
func (m *measured) may(first bool) (found string, try bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if try = first && m.found == "" && m.tries < measurings; try {
		m.tries++
	}
	return m.found, try
}

func (m *measured) set(found string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.found = found
}

// measurings is how many failing checks measure until a cause is found.
const measurings = 3

// measuredWithin is how long that may take.
const measuredWithin = 30 * time.Second

// cause returns the cause that was measured before the one that is guessed.
func (s *trial) cause(guess string) string {
	m := s.measured
	if m == nil { // this is the measuring itself
		return guess
	}
	s.measuring <- struct{}{} // goroutines of the check fail at once
	defer func() { <-s.measuring }()
	found, try := m.may(!s.asked)
	if try {
		s.asked = true
		found = s.measure()
		m.set(found)
	}
	if found == "" {
		return guess
	}
	return found + " (as was measured)\nor else: " + guess
}

// measure returns the cause, or nothing if there is no answer in time.
func (s *trial) measure() string {
	r := newRecorder(context.WithoutCancel(s.Context()), s.check.Name)
	found := make(chan string, 1)
	go func() {
		for _, find := range []func(*trial) string{(*trial).otherUnit, (*trial).ownerCut,
			(*trial).ownerIgnored, (*trial).transactionOpen} {
			cause := ""
			_ = r.Do(func() {
				t := newTrial(r, s.h, s.g, check{})
				t.turn, t.state = s.turn, s.state // it may be a mistake of the second state
				t.meetEarlier()
				cause = find(t)
			})
			if cause != "" {
				found <- cause
				break
			}
		}
		r.cancel()
		r.Close()
		close(found)
	}()
	select {
	case cause := <-found:
		return cause
	case <-time.After(measuredWithin):
		r.cancel()
		return ""
	}
}

// askWith asks for name once, and not for long.
func (s *trial) askWith(b locker.Backend, req locker.Request) (locker.Grant, error) {
	ctx, cancel := context.WithTimeout(s.Context(), s.soon)
	defer cancel()
	return b.Acquire(ctx, req)
}

const ownerDigits = 40

// ownerCut finds out whether all digits of an owner are kept and compared.
func (s *trial) ownerCut() string {
	b := s.backend()
	works := func(digits int) error {
		req := s.request(s.name(fmt.Sprintf("digits-%d", digits)), s.long)
		req.Owner = req.Owner[:digits]
		grant, err := s.askWith(b, req)
		if err == nil {
			_, err = grant.Hold.Renew(s.within(s.soon))
			_ = grant.Hold.Release(s.within(s.soon))
		}
		return err
	}
	if err := works(ownerDigits); err != nil {
		if unanswered(err) || works(1) != nil {
			return ""
		}
		digits := ownerDigits - 1
		for works(digits) != nil {
			digits--
		}
		return fmt.Sprintf("an owner of %d digits does not work (%v), and one of %d does: the column or "+
			"field that keeps it is too short", ownerDigits, err, digits)
	}
	req := s.request(s.name("digits"), s.long)
	grant := s.acquire(b, req)
	defer func() { _ = grant.Hold.Release(s.within(s.soon)) }()
	differs := req
	for digits := range ownerDigits {
		other := byte('0')
		if req.Owner[digits] == other {
			other = '1'
		}
		differs.Owner = req.Owner[:digits] + string(other) + req.Owner[digits+1:]
		_, err := s.askWith(b, differs)
		if err == nil && digits > 0 {
			if _, err = grant.Hold.Renew(s.within(s.soon)); err != nil {
				return "" // it has ended
			}
			return fmt.Sprintf("of an owner's %d digits the first %d are compared: the column or field "+
				"that keeps it is too short", ownerDigits, digits)
		}
		if !errors.Is(err, locker.ErrHeld) {
			return ""
		}
	}
	return ""
}

// ownerIgnored finds out whether a hold that is gone takes part in another's.
func (s *trial) ownerIgnored() string {
	name := s.name("ignored")
	b, other := s.backend(), s.backend()
	gone := s.acquire(b, s.request(name, s.long)).Hold
	s.release(gone)
	grant, err := s.ask(other, name, s.long)
	if err != nil {
		return ""
	}
	next := grant.Hold
	if _, err := next.Renew(s.within(s.soon)); err != nil {
		return ""
	}
	_ = gone.Release(s.within(s.soon))
	if _, err := next.Renew(s.within(s.soon)); errors.Is(err, locker.ErrLost) {
		return "Release of a hold that is gone removes the next one's lock: it does not compare the whole owner"
	}
	s.release(next)
	return ""
}

// ofError is the cause of an error that a request for a name has got that is free, or
// soon will be.
func ofError(err error) string {
	switch {
	case errors.Is(err, locker.ErrHeld):
		return "something of an earlier holder is left"
	case err == nil || unanswered(err):
		return "the service cannot be reached, or takes too long"
	}
	return "the service's own error is the cause: if it is for requests that collide (a deadlock, a " +
		"serialization failure), Acquire has to repeat its request"
}

// transactionOpen finds out who keeps a name locked after a call has returned: others
// are not refused then, but get no answer.
func (s *trial) transactionOpen() string {
	const open = " leaves its transaction open, and others wait for it: commit, or roll back, before each return"
	a, b, c := s.backend(), s.backend(), s.backend()
	name := s.name("transaction")
	// locked reports whether err is for want of an answer that b gets for other names.
	locked := func(b locker.Backend, err error) bool {
		s.release(s.acquire(b, s.request(s.name(fmt.Sprintf("free-%d", s.number())), s.long)).Hold)
		return unanswered(err)
	}
	hold := s.acquire(a, s.request(name, s.long)).Hold
	_, err := s.askWith(b, s.request(name, s.long))
	if locked(b, err) {
		return "an Acquire that is granted" + open
	}
	err = hold.Release(s.within(s.soon))
	if locked(a, err) {
		return "an Acquire that is refused" + open
	}
	_, err = s.askWith(c, s.request(name, s.long))
	if locked(c, err) {
		return "a Release" + open
	}
	return ""
}

// otherUnit finds out how long a lock is kept that nobody renews.
func (s *trial) otherUnit() string {
	const unit = "the TTL is sent in one unit of time and taken in another"
	holder, other := s.backend(), s.backend()
	// kept returns how long other was refused what holder had been granted for ttl.
	kept := func(ttl, patience time.Duration) (refused, ended bool, took, told time.Duration) {
		name := s.name("unit-" + ttl.String())
		grant := s.acquire(holder, s.request(name, ttl))
		if grant.Session || grant.Validity.TTL == 0 {
			s.FailNow() // it does not end by itself
		}
		began := time.Now()
		ended = s.eventually(patience, func() bool {
			next, err := s.askWith(other, s.request(name, s.ttl))
			took = time.Since(began)
			if err == nil {
				_ = next.Hold.Release(s.within(s.soon))
				return true
			}
			if unanswered(err) {
				s.FailNow()
			}
			var held *locker.HeldError
			if refused = true; errors.As(err, &held) {
				told = max(told, held.Remaining)
			}
			return false
		})
		return refused, ended, took, told
	}
	least := max(s.g.MinTTL, engineMin)
	if _, ended, took, told := kept(least, 10*least+s.g.DeadHolderSlack+settle); !ended {
		if told > 10*least {
			return fmt.Sprintf("a TTL of %v keeps a lock for %v, %.0f times as long: %s",
				least, told, told.Seconds()/least.Seconds(), unit)
		}
		return fmt.Sprintf("a lock with a TTL of %v that nobody renews is still held after %v: %s, or "+
			"locks do not end by themselves", least, took, unit)
	}
	// What is over before the first look may be seen with a TTL that is longer.
	for ttl := s.long; s.g.MaxTTL == 0 && ttl < engineMax/10 || ttl <= s.g.MaxTTL; ttl *= 10 {
		if refused, ended, took, _ := kept(ttl, 2*settle); refused && ended {
			return fmt.Sprintf("a TTL of %v keeps a lock for %v: %s", ttl, took, unit)
		} else if refused {
			break
		}
	}
	return ""
}
