package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/golockers/locker"
)

// refusalChecks are what all others rest on.
func refusalChecks() []check {
	return []check{
		{
			Name:    "trylock-held",
			Promise: "TryLock of a name that another holds returns ErrHeld without waiting, and nothing of it stays.",
			run:     checkTryLockHeld,
		},
		{
			Name:    "no-reentrancy",
			Promise: "Nothing is reentrant: a client that holds a name is refused like everybody else (R10).",
			run:     checkNoReentrancy,
		},
	}
}

func exclusionChecks() []check {
	return []check{
		{
			Name:    "exclusion",
			Promise: "Of clients that contend for a name, one holds it at a time.",
			Once:    true, run: checkExclusion,
		},
		{
			Name: "handover",
			Promise: "However a hold ends, by its release, a deletion or a Break, while some wait and others come: " +
				"one of them has the name at a time, and each gets it.",
			Once: true, run: checkHandover,
		},
		{
			Name:    "independent-names",
			Promise: "Whoever waits for one name is not in the way of callers for other names.",
			run:     checkIndependentNames,
		},
	}
}

// checkExclusion lets clients raise a counter in the way that loses updates
// unless one of them does it at a time.
func checkExclusion(s *trial) {
	const clients, rounds = 8, 10
	const cause = "the service grants a name that is taken: the look and the taking are not one step, or " +
		"the key of one client is not that of another"
	name := s.name("counter")
	var counter, inside atomic.Int64
	ctx := s.within(3 * s.patience())
	all := s.group()
	for i := range clients {
		c := s.client()
		all.Go(func() {
			for range rounds {
				l, err := c.Lock(ctx, name, locker.TTL(s.long))
				if errors.Is(err, context.DeadlineExceeded) {
					s.report(fmt.Sprintf("client %d did not get its turn: %v", i, err),
						"a waiter that is forgotten: see the checks wake-up and drain")
					return
				}
				if err != nil {
					s.report(fmt.Sprintf("client %d: Lock failed under contention: %v", i, err), ofError(err))
					return
				}
				if n := inside.Add(1); n != 1 {
					s.report(fmt.Sprintf("%d clients held the name at once", n), cause)
				}
				// Read, pause, write: whoever else is inside meanwhile loses this update.
				n := counter.Load()
				time.Sleep(200 * time.Microsecond)
				counter.Store(n + 1)
				inside.Add(-1)
				if err := l.Unlock(s.Context()); err != nil {
					s.report(fmt.Sprintf("client %d: Unlock failed: %v", i, err),
						"a lock that ends early, or one that was taken from its holder")
					return
				}
			}
		})
	}
	all.Wait()
	if n := counter.Load(); n != clients*rounds && !s.failed.Load() {
		s.broken(fmt.Sprintf("%d updates of %d were lost", clients*rounds-n, clients*rounds), cause)
	}
}

// checkHandover ends holds in all ways that there are, many at a time.
func checkHandover(s *trial) {
	const rounds = 4
	holder := s.client()
	clients := []*locker.Client{s.client(), s.client(), s.client(), s.client(), s.client()}
	ends := map[string]func(name string) bool{
		"released": func(string) bool { return false },
		"broken": func(name string) bool {
			st, err := clients[0].Inspect(s.within(s.patience()), name)
			return err == nil && st.Held && clients[0].Break(s.within(s.patience()), st) == nil
		},
	}
	if s.h.Delete != nil {
		ends["deleted"] = func(name string) bool { s.remove(name); return true }
	}
	var parts []func()
	for how, end := range ends {
		for round := range rounds {
			parts = append(parts, func() {
				s.handOver(holder, clients,
					s.name(fmt.Sprintf("%s-%d", how, round)), how, end)
			})
		}
	}
	s.together(parts...)
}

// handOver lets all but two of the clients wait, and those two come when the hold has
// ended. If somebody has ended it, its holder lets go when another has the name.
func (s *trial) handOver(holder *locker.Client, clients []*locker.Client, name, how string,
	end func(name string) (ended bool)) {
	l := s.try(holder, name, locker.TTL(s.ttl)) // the next poll comes when that is over, if nothing else does
	var inside atomic.Int32
	through := make(chan struct{})
	all := s.group()
	turn := func(c *locker.Client) {
		got, err := c.Lock(s.within(s.long+s.patience()), name, locker.TTL(s.long))
		if err != nil {
			s.report(fmt.Sprintf("after a hold was %s, a caller did not get the name: %v", how, err),
				"a waiter that is forgotten when what it waits for goes away")
			return
		}
		if n := inside.Add(1); n > 1 {
			s.report(fmt.Sprintf("after a hold was %s, %d clients held the name at once", how, n),
				"who waits for a file, node or row goes on to wait for it when it was removed, "+
					"and another comes in by a new one: when it has the lock, it has to look whether that "+
					"is still the one")
		}
		<-through
		time.Sleep(settle / 20)
		inside.Add(-1)
		if err := got.Unlock(s.Context()); err != nil {
			s.report(fmt.Sprintf("after the hold before was %s, Unlock failed: %v", how, err),
				"a lock that is taken from its holder")
		}
	}
	for _, c := range clients[2:] {
		all.Go(func() { turn(c) })
	}
	s.eventually(s.patience(), func() bool {
		for _, c := range clients[2:] {
			if !slices.ContainsFunc(c.Waits(), func(w locker.Wait) bool { return w.Name == name }) {
				return false
			}
		}
		return true
	})
	time.Sleep(settle)
	ended := end(name)
	for _, c := range clients[:2] {
		all.Go(func() { turn(c) })
	}
	if ended {
		s.eventually(s.soon, func() bool { return inside.Load() > 0 })
	}
	_ = l.Unlock(s.within(s.patience()))
	time.Sleep(settle / 2) // for one that must not come in
	close(through)
	all.Wait()
}

func checkTryLockHeld(s *trial) {
	holder, other, raw := s.client(), s.client(), s.backend()
	name := s.name("held")
	l := s.try(holder, name, locker.TTL(s.long))
	began := time.Now()
	got, err := s.tryLock(other, name, locker.TTL(s.long))
	switch took := time.Since(began); {
	case err == nil:
		s.broken("TryLock of a held name was granted", "no exclusion at all")
	case got != nil:
		s.broken("TryLock returned an error and a lease", "both must never be")
	case !errors.Is(err, locker.ErrHeld):
		s.broken(fmt.Sprintf("TryLock of a held name failed with %q, which does not match ErrHeld", err),
			"Acquire has to answer a refusal by ErrHeld or a *HeldError")
	case took > s.soon:
		s.broken(fmt.Sprintf("TryLock of a held name took %v", took),
			"Acquire waits although Request.Wait is not set")
	}
	// What a refusal returns beside its error would be taken back by the
	// engine, for nothing, after every refusal.
	grant, _, err := s.askUndoubted(raw, s.request(name, s.long))
	if !errors.Is(err, locker.ErrHeld) {
		s.broken(fmt.Sprintf("Acquire of a held name returned the error %v", err),
			"Acquire has to answer a refusal by ErrHeld or a *HeldError")
	}
	var held *locker.HeldError
	if errors.As(err, &held) && held.Remaining > s.life(s.long) {
		s.broken(fmt.Sprintf("of a lock with a TTL of %v, a refusal says that %v remain", s.long, held.Remaining),
			"another unit of time: waiters then poll too late")
	}
	if grant.Hold != nil {
		s.broken("Acquire returned a Hold beside a refusal, three times in a row",
			"the Hold beside an error is for unknown outcomes")
	}
	if l.Err() != nil {
		s.broken(fmt.Sprintf("the holder's lease ended when others tried: %v", l.Err()),
			"a refused attempt must not touch the holder's key")
	}
	s.unlock(l)
	s.unlock(s.try(other, name, locker.TTL(s.long)))
	s.nothingLeft(name)
}

// askUndoubted asks again where a Hold came beside a refusal: a driver that has sent a request twice, over a
// connection that broke, does not know what becomes of the first copy. took is the last answer's time.
func (s *trial) askUndoubted(b locker.Backend, req locker.Request) (
	grant locker.Grant, took time.Duration, err error,
) {
	for range 3 {
		began := time.Now()
		grant, err = s.askWith(b, req)
		if took = time.Since(began); !errors.Is(err, locker.ErrHeld) || grant.Hold == nil {
			break
		}
		s.Logf("Acquire returned a Hold beside a refusal; its Undo returned %v",
			grant.Hold.Undo(s.within(s.patience())))
		req.Owner = owner()
	}
	return grant, took, err
}

func checkNoReentrancy(s *trial) {
	const cause = "the owner value is that of the session or the client, and not fresh for each attempt"
	b := s.backend()
	c := s.clientOf(b)
	name := s.name("twice")
	l := s.try(c, name, locker.TTL(s.long))
	if _, err := s.tryLock(c, name); !errors.Is(err, locker.ErrHeld) {
		s.broken(fmt.Sprintf("a second TryLock through the same client returned %v", err), cause)
	}
	// The engine's line refuses that by itself. A second Client of the same
	// backend has a line of its own.
	second := s.clientOf(b)
	if _, err := s.tryLock(second, name, locker.TTL(s.long)); !errors.Is(err, locker.ErrHeld) {
		s.broken(fmt.Sprintf("a second TryLock through the same backend returned %v", err), cause)
	}
	if l.Err() != nil {
		s.broken(fmt.Sprintf("the first lease ended: %v", l.Err()), cause)
	}
	s.unlock(l)
	s.unlock(s.try(second, name, locker.TTL(s.long)))
}

func checkIndependentNames(s *trial) {
	const names = 30
	b := s.backend()
	c := s.clientOf(b, func(o *locker.Options) { o.TTL = s.long })
	blocked := s.try(s.client(), s.name("blocked"), locker.TTL(s.long))
	waiting := s.within(3 * s.patience()) // longer than the others, who are the ones to look at
	var waiter *locker.Lease
	var waiterErr error
	all := s.group()
	all.Go(func() { waiter, waiterErr = c.Lock(waiting, s.name("blocked")) })
	s.isWaiting(c, 1)

	others := s.group()
	for i := range names {
		others.Go(func() {
			name := s.name(fmt.Sprintf("other-%d", i))
			l, err := c.Lock(s.within(s.patience()), name)
			if err != nil {
				cause := "Acquire keeps something to itself while it waits: a mutex, the only connection"
				if !unanswered(err) {
					cause = ofError(err)
				}
				s.report(fmt.Sprintf("while a caller waited for one name, Lock of another failed: %v", err), cause)
				return
			}
			if err := l.Unlock(s.Context()); err != nil {
				s.report(fmt.Sprintf("Unlock of %q failed: %v", name, err),
					"locks of several names in one client are mixed up")
			}
		})
	}
	others.Wait()
	if err := blocked.Unlock(s.within(s.patience())); err != nil {
		s.report(fmt.Sprintf("Unlock failed: %v", err), "locks of several names in one client are mixed up")
	}
	all.Wait()
	if waiterErr != nil {
		s.broken(fmt.Sprintf("the waiter did not get its turn: %v", waiterErr), "a waiter that is forgotten")
	}
	s.unlock(waiter)
}
