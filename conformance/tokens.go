package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/golockers/locker"
)

func tokenChecks() []check {
	return []check{
		{
			Name: "tokens",
			Promise: "Tokens rise from holder to holder, over contention, cancels, expiry and deletion, " +
				"and none is given twice; where Fencing is none, there are none.",
			alone: true, run: checkTokens,
		},
		{
			Name: "raise-token",
			Promise: "Once RaiseToken has returned, the next holder's token is greater, also that of one " +
				"who waited already; without the lock it is refused.",
			unasked: func(s subject) string {
				if s.Fencing == locker.FencingNone {
					return "Fencing is none"
				}
				return ""
			},
			run: checkRaiseToken,
		},
		{
			Name: "token-order",
			Promise: "A token is drawn in the step that grants its lock: however late the reply, it is " +
				"less than those of all later holders.",
			unasked: func(s subject) string {
				if s.Fencing == locker.FencingNone {
					return "Fencing is none"
				}
				return noNetwork(s)
			},
			missing: func(s subject) string {
				if s.Delete == nil {
					return "Delete"
				}
				return needsCut(s)
			},
			run: checkTokenOrder,
		},
		{
			Name:    "tokens-restart",
			Promise: "Tokens go on rising when the service was restarted.",
			unasked: func(s subject) string {
				switch {
				case s.Fencing == locker.FencingNone:
					return "Fencing is none"
				case s.Scope < locker.ScopeNetwork:
					return fmt.Sprintf("no server is restarted within the scope of one %v", s.Scope)
				case s.Fencing < locker.FencingUnlessRewind && !s.SurvivesRestart:
					return "tokens need the service's data, which a restart may lose"
				}
				return ""
			},
			missing: needsRestart,
			Once:    true, run: func(s *trial) { s.tokensRiseOver("a restart", s.h.Restart) },
		},
		{
			Name:    "tokens-failover",
			Promise: "Tokens go on rising when another server has taken over.",
			unasked: func(s subject) string {
				switch {
				case s.Fencing == locker.FencingNone:
					return "Fencing is none"
				case !s.SurvivesFailover:
					return "SurvivesFailover is false"
				}
				return ""
			},
			missing: needsFailover,
			Once:    true, run: func(s *trial) { s.tokensRiseOver("a fail-over", s.h.Failover) },
		},
		{
			Name: "tokens-cut-off",
			Promise: "Tokens go on rising when a holder was cut off for so long that the service has ended " +
				"its lease, or its session.",
			unasked: func(s subject) string {
				if s.Fencing == locker.FencingNone {
					return "Fencing is none"
				}
				return noNetwork(s)
			},
			missing: needsCut,
			alone:   true, run: checkTokensCutOff,
		},
	}
}

// fence is the resource that tokens protect: it refuses those that have not risen.
type fence struct {
	mu   sync.Mutex
	last uint64
	seen int
}

// pass takes the token of the present holder.
func (f *fence) pass(token uint64) (last uint64, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	last, ok = f.last, token > f.last
	f.last = max(f.last, token)
	f.seen++
	return last, ok
}

const tokenCause = "the counter is not raised in the same step as the grant, is kept with the lock and " +
	"goes with it, or is kept per client"

// admit takes a lease to the fence, and returns it.
func (s *trial) admit(f *fence, l *locker.Lease, when string) *locker.Lease {
	token, has := l.Token()
	switch {
	case s.g.Fencing == locker.FencingNone:
		if has || token != 0 {
			s.report(fmt.Sprintf("Fencing is none, and a lease has the token %d", token),
				"claim it, or return none: a token that nothing is promised of is worse than none")
		}
	case !has:
		s.report(fmt.Sprintf("Fencing is %q, and %s a lease had no token", s.g.Fencing, when), "Grant.Token is 0")
	default:
		if last, ok := f.pass(token); !ok {
			s.report(fmt.Sprintf("%s a holder got token %d after token %d", when, token, last), tokenCause)
		}
	}
	return l
}

func checkTokens(s *trial) {
	name := s.name("tokens")
	var f fence
	a, b := s.client(), s.client()
	for range 3 {
		s.unlock(s.admit(&f, s.try(a, name), "in turns"))
		s.unlock(s.admit(&f, s.try(b, name), "in turns"))
	}

	// Contention, with callers that give up in between.
	const clients, rounds = 4, 6
	all := s.group()
	for range clients {
		c := s.client()
		all.Go(func() {
			for i := range rounds {
				ctx, cancel := s.Context(), context.CancelFunc(func() {})
				if i%2 == 1 {
					ctx, cancel = context.WithTimeout(ctx, s.ttl/100)
				}
				l, err := c.Lock(ctx, name, locker.TTL(s.long))
				cancel()
				if err != nil {
					if s.Context().Err() == nil && !errors.Is(err, context.DeadlineExceeded) {
						s.report(fmt.Sprintf("Lock failed under contention: %v", err), ofError(err))
						return
					}
					continue
				}
				s.admit(&f, l, "under contention")
				if err := l.Unlock(s.Context()); err != nil {
					s.report(fmt.Sprintf("Unlock failed: %v", err), "a lock that ends early")
					return
				}
			}
		})
	}
	all.Wait()

	// What those who gave up may have left is being taken back.
	s.unlock(s.admit(&f, s.freeWithin(s.soon, a, name, ghost), "after cancels"))

	// A hold that expires, and one that ends by MaxHold.
	raw := s.backend()
	var grant locker.Grant
	var err error
	if !s.eventually(s.soon, func() bool {
		grant, err = raw.Acquire(s.Context(), s.request(name, s.ttl))
		return err == nil
	}) {
		s.broken(fmt.Sprintf("Acquire of a free name failed: %v", err), ghost)
	}
	if t := grant.Token; s.g.Fencing != locker.FencingNone {
		if last, ok := f.pass(t); !ok {
			s.broken(fmt.Sprintf("Acquire got token %d after token %d", t, last), tokenCause)
		}
	}
	if grant.Session || grant.Validity.TTL == 0 {
		_ = grant.Hold.Release(s.within(s.patience())) // it does not expire
	}
	var l *locker.Lease
	l, err = a.Lock(s.within(s.freedWithin(grant.Validity.TTL)), name, locker.TTL(s.long))
	if err != nil { // a session keeps it
		_ = grant.Hold.Release(s.within(s.patience()))
		l = s.lock(a, name, locker.TTL(s.long))
	}
	s.unlock(s.admit(&f, l, "after an expiry"))
	lost := s.admit(&f, s.lock(b, name, locker.TTL(s.ttl), locker.MaxHold(max(s.ttl/4, 10*time.Millisecond))),
		"after an expiry")
	s.eventually(s.patience(), func() bool { return lost.Err() != nil })
	_ = lost.Unlock(s.within(s.patience()))
	s.unlock(s.admit(&f, s.lock(a, name, locker.TTL(s.long)), "after a loss"))

	if s.h.Delete != nil {
		for range 2 {
			s.admit(&f, s.try(a, name, locker.TTL(s.long)), "after a deletion")
			s.remove(name)
			l := s.admit(&f, s.freeWithin(s.soon+s.ttl, b, name, "the harness's Delete removed nothing"),
				"after a deletion")
			s.unlock(l)
			a = s.client() // the line of the one before stands until it knows of its loss
		}
	}
	if s.g.Fencing != locker.FencingNone {
		s.Logf("%d tokens, the last is %d", f.seen, f.last)
	}
}

func checkRaiseToken(s *trial) {
	name := s.name("raised")
	a, b := s.client(), s.client()
	l := s.try(a, name, locker.TTL(s.long))
	for round := range 3 {
		token, _ := l.Token()
		far := token + 1<<36 // above a token made of a clock, for a while
		next := make(chan *locker.Lease, 1)
		if round > 0 {
			s.spawn(func() {
				waited, err := b.Lock(s.Context(), name, locker.TTL(s.long))
				if err != nil {
					s.report(fmt.Sprintf("Lock failed: %v", err), "")
				}
				next <- waited
			})
		}
		for _, to := range []uint64{far, far, 1} {
			err := l.RaiseToken(s.within(s.patience()), to)
			if round == 0 && errors.Is(err, errors.ErrUnsupported) {
				s.unlock(l)
				return
			}
			if err != nil {
				s.broken(fmt.Sprintf("RaiseToken(%d) of a holder with token %d failed: %v", to, token, err),
					"a lower one is nothing to do, and the same one twice is a request that was sent again")
			}
		}
		s.unlock(l)
		if round == 0 {
			next <- s.try(b, name, locker.TTL(s.long))
		}
		if l = <-next; l == nil {
			return
		}
		if token, _ = l.Token(); token <= far {
			s.broken(fmt.Sprintf("tokens were raised to %d, and the next holder has %d", far, token),
				"what was raised is not read at the moment of the grant, or is kept with the lock")
		}
		a, b = b, a
	}
	s.unlock(l)

	// What was raised outlives its holder, and tokens rise from there.
	raw := s.backend()
	var f fence
	var grant locker.Grant
	for round := range 4 {
		ttl := s.long
		if round == 1 {
			ttl = s.ttl
		}
		if !s.eventually(s.freedWithin(s.ttl), func() bool {
			var err error
			grant, err = raw.Acquire(s.Context(), s.request(name, ttl))
			return err == nil
		}) {
			s.broken("a name whose holder is gone was not free", "RaiseToken makes the lock last for longer")
		}
		if last, ok := f.pass(grant.Token); !ok {
			s.broken(fmt.Sprintf("after tokens were raised, token %d came after token %d", grant.Token, last),
				"the next token is what was raised, and not above what was given since")
		}
		switch {
		case round == 1:
			if err := grant.Hold.(locker.TokenRaiser).RaiseToken(s.within(s.patience()),
				grant.Token+1<<37); err != nil {
				s.broken(fmt.Sprintf("RaiseToken of a holder failed: %v", err), "")
			}
			f.pass(grant.Token + 1<<37)
			// The holder is gone, and what it raised is not.
			if grant.Session || grant.Validity.TTL == 0 {
				_ = grant.Hold.Undo(s.within(s.patience())) // it does not expire
			}
		case round < 3:
			s.release(grant.Hold)
		}
	}
	if err := grant.Hold.Release(s.within(s.patience())); err != nil {
		s.broken(fmt.Sprintf("Release failed: %v", err), "")
	}
	if r, ok := grant.Hold.(locker.TokenRaiser); ok {
		if err := r.RaiseToken(s.within(s.patience()), grant.Token+1<<37); !errors.Is(err, locker.ErrLost) {
			s.broken(fmt.Sprintf("RaiseToken after Release returned %v instead of ErrLost", err),
				"the owner is not compared")
		}
	}
}

// checkTokenOrder ends a hold whose reply is late, and lets another have the name.
func checkTokenOrder(s *trial) {
	b, fault := s.cut()
	other, name := s.backend(), s.name("token-order") // the first use of a name may take steps of its own
	for range lateTries {
		s.again(b)
		type answer struct {
			grant locker.Grant
			err   error
		}
		answers := make(chan answer, 1)
		fault.Replies(Hold)
		s.spawn(func() {
			grant, err := s.ask(b, name, s.long)
			answers <- answer{grant, err}
		})
		time.Sleep(s.ttl / 10) // for the request to arrive
		next, err := s.ask(other, name, s.long)
		seen := errors.Is(err, locker.ErrHeld)
		if seen {
			s.remove(name)
			s.eventually(s.soon, func() bool {
				next, err = s.ask(other, name, s.long)
				return err == nil
			})
		}
		fault.Replies(Pass)
		late := <-answers
		if seen && err == nil && late.err == nil && late.grant.Token >= next.Token {
			s.broken(fmt.Sprintf("a holder with token %d was deleted and another got token %d, and then "+
				"came the reply with the token of the first: %d",
				late.grant.Token, next.Token, late.grant.Token), "the token is drawn in a request after "+
				"the grant: between the two another can be granted the lock")
		}
		for _, h := range []locker.Hold{late.grant.Hold, next.Hold} {
			if h != nil {
				_ = h.Undo(s.within(s.patience()))
			}
		}
		if seen && late.err == nil {
			return
		}
	}
}

// tokensRiseOver fails if tokens do not rise over what happens to the servers.
func (s *trial) tokensRiseOver(what string, happen func(T)) {
	name, held := s.name("tokens-over"), s.name("tokens-over-held")
	var f, g fence
	c := s.client()
	for range 5 {
		s.unlock(s.admit(&f, s.try(c, name, locker.TTL(s.long)), "before "+what))
	}
	l := s.admit(&g, s.try(c, held, locker.TTL(s.ttl), locker.NoRenew()), "before "+what)
	happen(s)
	c = s.client()
	for range 2 {
		s.unlock(s.admit(&f, s.comesBack(c, name), "after "+what))
	}
	_ = l.Unlock(s.within(s.patience()))
	s.unlock(s.admit(&g, s.comesBack(c, held), "after "+what))
}

func checkTokensCutOff(s *trial) {
	name := s.name("tokens-cut")
	var f fence
	holder, fault, lost, next := s.theCut(name, Drop)
	s.admit(&f, lost, "before the cut")
	s.unlock(s.admit(&f, next, "after the holder was cut off"))
	both(fault, Pass)
	_ = lost.Unlock(s.within(s.patience()))
	s.unlock(s.admit(&f, s.comesBack(holder, name), "after the connection was back"))
}

// comesBack locks name through an outage that is about to end.
func (s *trial) comesBack(c *locker.Client, name string) (l *locker.Lease) {
	s.Helper()
	var err error
	if !s.eventually(s.long+s.patience(), func() bool {
		l, err = c.Lock(s.within(s.patience()), name, locker.TTL(s.long))
		return err == nil
	}) {
		s.broken(fmt.Sprintf("after the servers had come back, Lock failed: %v", err),
			"a connection that is broken and never made again, or a lock that nobody removes")
	}
	return l
}
