package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/golockers/locker"
)

// What a hold promises that is a [locker.Passer]. Whether it is one is seen when
// there is one; a backend without passes these checks.
func passChecks() []check {
	return []check{
		{
			Name: "pass",
			Promise: "Pass ends one hold and begins another that has an owner and a token of its own, in " +
				"one step; or, with yield, lets another client have it.",
			Once: true, run: checkPass,
		},
		{
			Name: "pass-exclusion",
			Promise: "Of clients that contend for a name and pass it on among their callers, one caller " +
				"holds it at a time, and everybody gets it.",
			Once: true, run: checkPassExclusion,
		},
		{
			Name: "pass-reply-lost",
			Promise: "A Pass whose reply was lost, or whose next caller has left meanwhile, leaves nothing " +
				"of either (R7, R8).",
			unasked: noNetwork, missing: needsCut, Once: true, run: checkPassReplyLost,
		},
	}
}

// passer acquires name by b, and returns what came of it; nil: its holds cannot be
// passed on.
func (s *trial) passer(b locker.Backend, name string) (locker.Passer, locker.Grant) {
	s.Helper()
	grant := s.acquire(b, s.request(name, s.long))
	p, ok := grant.Hold.(locker.Passer)
	if !ok || s.state == together {
		s.Logf("a hold of the backend is no Passer")
		s.release(grant.Hold)
		return nil, grant
	}
	return p, grant
}

// wholeTTL fails if what is passed on late in a hold's life lasts for less than it says.
func (s *trial) wholeTTL(b, other locker.Backend, name string) {
	s.Helper()
	first := s.acquire(b, s.request(name, s.ttl))
	time.Sleep(s.ttl * 2 / 3)
	next, err := first.Hold.(locker.Passer).Pass(s.within(s.patience()), s.request(name, s.ttl), false)
	if errors.Is(err, locker.ErrLost) { // on a busy machine
		return
	}
	if err != nil || next.Hold == nil {
		s.broken(fmt.Sprintf("Pass of a hold failed: %v", err), "Pass does not find its own key")
	}
	for until := next.Validity.Until(); time.Now().Before(until); time.Sleep(s.ttl / 50) {
		grant, err := other.Acquire(s.within(s.patience()), s.request(name, s.ttl))
		if err == nil && time.Now().Before(until) {
			s.broken(fmt.Sprintf("another client got a name %v before the end of a hold that came by Pass",
				time.Until(until)),
				"Pass leaves the time that remained of the hold before, or its validity is made up")
		}
		if grant.Hold != nil {
			s.release(grant.Hold)
			return
		}
	}
	_ = next.Hold.Release(s.within(s.patience()))
}

func checkPass(s *trial) {
	name := s.name("pass")
	b, other := s.backend(), s.backend()
	p, first := s.passer(b, name)
	if p == nil {
		return
	}
	before := time.Now()
	second, err := p.Pass(s.within(s.patience()), s.request(name, s.long), true)
	if err != nil || second.Hold == nil {
		s.broken(fmt.Sprintf("Pass of a hold, with nobody else waiting, failed: %v", err),
			"Pass does not find its own key, or yields to nobody")
	}
	if since := second.Validity.Since; since.After(time.Now()) || since.Before(before) {
		s.broken(fmt.Sprintf("what was passed on counts from %v before the request", before.Sub(since)),
			"the validity is that of the hold before: each holder's is its own")
	}
	if first.Token != 0 && second.Token <= first.Token {
		s.broken(fmt.Sprintf("after token %d, a holder got token %d by Pass", first.Token, second.Token),
			"what is passed on is the hold, and not a new grant (R13)")
	}
	if _, err := first.Hold.Renew(s.within(s.patience())); !errors.Is(err, locker.ErrLost) {
		s.broken(fmt.Sprintf("Renew of a hold that was passed on returned %v instead of ErrLost", err),
			"the next one has the same owner (R10)")
	}
	for what, call := range map[string]func() error{
		"Release": func() error { return first.Hold.Release(s.within(s.patience())) },
		"Pass": func() error {
			_, err := p.Pass(s.within(s.patience()), s.request(name, s.long), false)
			return err
		},
	} {
		if err := call(); !errors.Is(err, locker.ErrLost) {
			s.broken(fmt.Sprintf("%s of a hold that was passed on returned %v instead of ErrLost", what, err),
				"it does not look whose the lock is")
		}
	}
	if _, err := second.Hold.Renew(s.within(s.patience())); err != nil {
		s.broken(fmt.Sprintf("Renew of a hold that came by Pass failed: %v", err),
			"its key was taken by who had it before (R9), or was never there")
	}
	if _, err = other.Acquire(s.within(s.patience()), s.request(name, s.long)); !errors.Is(err, locker.ErrHeld) {
		s.broken(fmt.Sprintf("Acquire of a name that was passed on returned %v", err),
			"Pass sets nothing in the service")
	}
	s.release(second.Hold)
	// What is gone is not passed on, and nobody gets it by that.
	grant, err := second.Hold.(locker.Passer).Pass(s.within(s.patience()), s.request(name, s.long), false)
	if !errors.Is(err, locker.ErrLost) || grant.Hold != nil {
		s.broken(fmt.Sprintf("Pass of a hold that was released returned %v instead of ErrLost", err),
			"it does not look whether the lock is there: the next one would hold by a right that was over")
	}
	s.release(s.acquire(other, s.request(name, s.long)).Hold)
	s.wholeTTL(b, other, s.name("pass-late"))
	if _, ok := other.(locker.Notifier); !ok {
		return
	}
	// Another client waits, and gets it when it is to.
	p, _ = s.passer(b, name)
	told, stop := s.listen(other, name)
	defer stop()
	s.refusedWaiting(other, name)
	if grant, err = p.Pass(s.within(s.patience()), s.request(name, s.long), true); err != nil ||
		grant.Hold != nil {
		s.broken(fmt.Sprintf("Pass with yield, while another client waited, passed the lock on all the "+
			"same (error %v)", err), "it does not ask who waits: a busy client keeps the lock for ever")
	}
	if !s.eventually(s.prompt(), told) {
		s.broken(fmt.Sprintf("%v after a Pass that yields, wake was not called", s.prompt()),
			"it does not tell those who wait")
	}
	req := s.request(name, s.long)
	req.Wait = true
	s.release(s.acquire(other, req).Hold)
}

func checkPassExclusion(s *trial) {
	const clients, callers, rounds = 3, 4, 8
	name := s.name("pass-counter")
	if p, grant := s.passer(s.backend(), name); p == nil {
		return
	} else {
		s.release(grant.Hold)
	}
	var inside, turns atomic.Int64
	var highest atomic.Uint64
	ctx := s.within(3 * s.patience())
	all := s.group()
	for range clients {
		c := s.client()
		for range callers {
			all.Go(func() {
				for range rounds {
					l, err := c.Lock(ctx, name, locker.TTL(s.long))
					if err != nil {
						s.report(fmt.Sprintf("a caller did not get its turn: %v", err),
							"the lock is passed on for ever, or to somebody who does not hear of it")
						return
					}
					if n := inside.Add(1); n != 1 {
						s.report(fmt.Sprintf("%d callers held the name at once", n),
							"Pass grants what the old holder does not have")
					}
					if token, ok := l.Token(); ok && highest.Swap(token) >= token {
						s.report(fmt.Sprintf("token %d came after one that was not less", token),
							"Pass draws its token from elsewhere than Acquire")
					}
					time.Sleep(200 * time.Microsecond)
					inside.Add(-1)
					turns.Add(1)
					if err := l.Unlock(s.Context()); err != nil {
						s.report(fmt.Sprintf("Unlock failed: %v", err), "Pass does not say that the hold was there")
					}
				}
			})
		}
	}
	all.Wait()
	if n := turns.Load(); n != clients*callers*rounds {
		s.report(fmt.Sprintf("%d turns of %d", n, clients*callers*rounds), "")
	}
}

const ghostOfPass = "Pass did not return a Hold of what is next beside its error, or its Release does not " +
	"find what Pass has put there"

func checkPassReplyLost(s *trial) {
	s.together(func() { s.passReplyLost(false) }, func() { s.passReplyLost(true) })
}

// passReplyLost cuts a Pass off, and if the next caller leaves, that meanwhile.
func (s *trial) passReplyLost(leaves bool) {
	b, fault := s.cut()
	c, other := s.clientOf(b), s.client()
	s.warm(b)
	name := s.name(fmt.Sprintf("pass-lost-%v", leaves))
	if p, grant := s.passer(b, name); p == nil {
		return
	} else {
		s.release(grant.Hold)
	}
	l := s.try(c, name, locker.TTL(s.long))
	ctx, cancel := context.WithCancel(s.Context())
	next := make(chan error, 1)
	s.spawn(func() {
		got, err := c.Lock(ctx, name, locker.TTL(s.long))
		if err == nil {
			err = got.Unlock(s.Context())
		}
		next <- err
	})
	s.eventually(s.patience(), func() bool { return c.Stats().Waiting == 1 })
	fault.Replies(Hold)
	if !leaves {
		fault.Replies(Drop)
	}
	sent := fault.Sent()
	s.spawn(func() { _ = l.Unlock(s.within(s.ttl)) })
	s.eventually(s.soon, func() bool { return fault.Sent() > sent })
	time.Sleep(settle)
	if leaves {
		cancel()
		select {
		case err := <-next:
			if !errors.Is(err, context.Canceled) {
				s.broken(fmt.Sprintf("a Lock that was cancelled while the lock was passed to it returned %v", err), "")
			}
		case <-time.After(s.soon):
			s.broken("a Lock that was cancelled while the lock was passed to it did not return",
				"it waits for the request of another (R8)")
		}
	} else {
		time.Sleep(s.ttl + settle) // the Unlock has given up
	}
	both(fault, Pass)
	if !leaves {
		// Who was next asks for itself.
		select {
		case err := <-next:
			if err != nil {
				s.broken(fmt.Sprintf("the next caller did not get the lock: %v", err), ghostOfPass)
			}
		case <-time.After(s.long / 2):
			s.broken(fmt.Sprintf("the next caller did not get the lock within %v", s.long/2), ghostOfPass)
		}
	}
	s.unlock(s.freeWithin(s.long/2, other, name, ghostOfPass))
	cancel()
}
