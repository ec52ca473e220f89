package conformance

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/golockers/locker"
)

func waitingChecks() []check {
	return []check{
		{
			Name:    "wake-up",
			Promise: "A release wakes a waiter of another client well before the TTL.",
			Once:    true, run: checkWakeUp,
		},
		{
			Name:    "drain",
			Promise: "Of many clients that wait for a name, each gets its turn and none hangs.",
			Once:    true, run: checkDrain,
		},
		{
			Name: "cancel",
			Promise: "A cancelled Lock returns at once with context.Canceled, and nothing of it is in " +
				"the way of others.",
			run: checkCancel,
		},
		{
			Name: "deadline",
			Promise: "A Lock whose deadline passes while another holds the name matches " +
				"context.DeadlineExceeded and ErrHeld, also behind another caller of its client.",
			run: checkDeadline,
		},
		{
			Name:    "nothing-piles-up",
			Promise: "Waits that are over leave no goroutines behind while the client lives.",
			Once:    true, run: checkNothingPilesUp,
		},
		{
			Name: "context-at-backend",
			Promise: "Acquire returns when its context ends, grants nothing under one that is over, and " +
				"what it granted does not end with it.",
			run: checkContextAtBackend,
		},
	}
}

// wakeUpRounds allows one slow round: a busy machine, or a message that was
// lost. A wake-up that does not work is slow in all of them.
const wakeUpRounds = 4

func checkWakeUp(s *trial) {
	holder, other := s.client(), s.client()
	slow := 0
	for round := range wakeUpRounds {
		name := s.name(fmt.Sprintf("wake-%d", round))
		held := s.try(holder, name, locker.TTL(s.long))
		var in time.Time
		all := s.group()
		all.Go(func() {
			l, err := other.Lock(s.within(s.long+s.patience()), name, locker.TTL(s.long))
			if err != nil {
				s.report(fmt.Sprintf("the waiter did not get the released name: %v", err), "a waiter that is forgotten")
				return
			}
			in = time.Now()
			_ = l.Unlock(s.Context())
		})
		s.isWaiting(other, 1)
		s.unlock(held)
		freed := time.Now()
		all.Wait()
		if in.Sub(freed) > s.prompt() {
			s.Logf("round %d: the waiter got the name %v after its release", round, in.Sub(freed))
			slow++
		}
	}
	if slow > 1 {
		s.broken(fmt.Sprintf("in %d of %d rounds the waiter came later than %v after the release, with a "+
			"TTL of %v", slow, wakeUpRounds, s.prompt(), s.long),
			"the wake-up does not arrive: it goes to another channel or name, is sent before the key is "+
				"gone, or nobody listens; what helped was the poll")
	}
}

// prompt is what a wake-up may take. It is less than the engine's poll behind
// a Notifier, so that the poll cannot stand in for it.
func (s *trial) prompt() time.Duration { return min(2*time.Second, s.soon) }

func checkDrain(s *trial) {
	const clients = 20
	const cause = "a waiter that is forgotten, by a queue that loses its place or a wake-up that " +
		"nothing backs (R14)"
	name := s.name("drain")
	held := s.try(s.client(), name, locker.TTL(s.long))
	ctx := s.within(s.long + 3*s.patience())
	all := s.group()
	waiters := make([]*locker.Client, clients)
	for i := range waiters {
		waiters[i] = s.client()
		all.Go(func() {
			l, err := waiters[i].Lock(ctx, name, locker.TTL(s.long))
			if err != nil {
				s.report(fmt.Sprintf("client %d of %d did not get its turn: %v", i, clients, err), cause)
				return
			}
			if err := l.Unlock(s.Context()); err != nil {
				s.report(fmt.Sprintf("client %d: Unlock failed: %v", i, err), "a lock that ends early")
			}
		})
	}
	for _, c := range waiters {
		s.isWaiting(c, 1)
	}
	s.unlock(held)
	freed := time.Now()
	all.Wait()
	s.Logf("%d clients had their turn within %v", clients, time.Since(freed))
	s.nothingLeft(name)
}

func checkCancel(s *trial) {
	holder, waiter, behind := s.client(), s.client(), s.client()
	name := s.name("cancel")
	held := s.try(holder, name, locker.TTL(s.long))
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	answer := make(chan error, 1)
	s.spawn(func() {
		l, err := waiter.Lock(ctx, name, locker.TTL(s.long))
		if err == nil {
			_ = l.Unlock(s.Context())
		}
		answer <- err
	})
	s.isWaiting(waiter, 1)
	// One that waits behind must neither be kept by the one that leaves, nor
	// lose the wake-up that was meant for both.
	all := s.group()
	all.Go(func() {
		l, err := behind.Lock(s.within(s.long/2+s.soon), name, locker.TTL(s.long))
		if err != nil {
			s.report(fmt.Sprintf("the waiter behind a cancelled one did not get the name: %v", err),
				"the cancelled one left its place, its node or its key")
			return
		}
		_ = l.Unlock(s.Context())
	})
	s.isWaiting(behind, 1)
	began := time.Now()
	cancel()
	err := <-answer
	if took := time.Since(began); took > s.soon {
		s.broken(fmt.Sprintf("the cancelled Lock returned after %v", took), "Acquire does not watch its context")
	}
	switch {
	case err == nil:
		s.broken("a cancelled Lock of a held name was granted", "no exclusion at all")
	case !errors.Is(err, context.Canceled):
		s.broken(fmt.Sprintf("the cancelled Lock failed with %q, which does not match context.Canceled", err),
			"Acquire hides why it gave up: wrap ctx.Err()")
	case held.Err() != nil:
		s.broken(fmt.Sprintf("the holder's lease ended when a waiter left: %v", held.Err()),
			"the take-back of the waiter removed the holder's key (R9)")
	}
	s.unlock(held)
	all.Wait()
	s.nothingLeft(name)
	s.leaveTheMiddle()
}

// leaveTheMiddle lets the third of four that wait leave.
func (s *trial) leaveTheMiddle() {
	s.Helper()
	name := s.name("cancel-third")
	held := s.try(s.client(), name, locker.TTL(s.long))
	all := s.group()
	third, leave := context.WithCancel(s.Context())
	defer leave()
	left := make(chan struct{})
	for i := range 4 {
		c, ctx := s.client(), s.within(s.long/2+s.soon)
		if i == 2 {
			ctx = third
		}
		all.Go(func() {
			l, err := c.Lock(ctx, name, locker.TTL(s.long))
			switch {
			case err == nil:
				_ = l.Unlock(s.Context())
			case i != 2:
				s.report(fmt.Sprintf("the third of four that waited left, and number %d did not get the "+
					"name: %v", i+1, err), "the one that left kept its place, its node or its key")
			}
			if i == 2 {
				close(left)
			}
		})
		s.isWaiting(c, 1)
	}
	leave()
	<-left
	time.Sleep(settle) // its place is cleared in the background
	s.unlock(held)
	all.Wait()
	s.nothingLeft(name)
}

// deadlineTries allows for a poll that is under way at the deadline: its driver
// may call it unanswered before the context says that the time is up.
const deadlineTries = 3

func checkDeadline(s *trial) {
	holder, waiter := s.client(), s.client()
	name := s.name("deadline")
	held := s.try(holder, name, locker.TTL(s.long))
	// Longer than the TTL asked for: TTL and waiting time are two things (R15).
	wait := s.ttl + s.ttl/2
	var err error
	var took time.Duration
	for try := 0; try == 0 || try < deadlineTries && unanswered(err); try++ {
		began := time.Now()
		_, err = waiter.Lock(s.within(wait), name, locker.TTL(s.ttl))
		took = time.Since(began)
	}
	switch {
	case err == nil:
		s.broken("Lock of a held name was granted", "no exclusion at all")
	case !errors.Is(err, context.DeadlineExceeded):
		s.broken(fmt.Sprintf("Lock failed with %q, which does not match context.DeadlineExceeded", err),
			"Acquire hides why it gave up: wrap ctx.Err()")
	case !errors.Is(err, locker.ErrHeld):
		s.broken(fmt.Sprintf("Lock failed with %q, which does not match ErrHeld", err),
			"Acquire waited in its queue and does not say that the name was held: join ErrHeld and ctx.Err()")
	case took < wait:
		s.broken(fmt.Sprintf("Lock gave up after %v of %v", took, wait),
			"Acquire has a limit of its own on waiting")
	case took > wait+s.soon:
		s.broken(fmt.Sprintf("Lock returned %v after its deadline", took-wait),
			"Acquire does not watch its context")
	}
	s.deadlineBehind(waiter, name)
	s.unlock(held)
	s.unlock(s.freeWithin(s.soon, s.client(), name,
		"the waiter that gave up left its place, its node or its key"))
	s.nothingLeft(name)
}

// deadlineBehind fails if who waits behind another caller of c is not told that
// the name is held.
func (s *trial) deadlineBehind(c *locker.Client, name string) {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	all := s.group()
	all.Go(func() {
		if l, err := c.Lock(ctx, name, locker.TTL(s.ttl)); err == nil {
			s.report("Lock of a held name was granted", "no exclusion at all")
			_ = l.Unlock(s.Context())
		}
	})
	s.isWaiting(c, 1)
	var err error
	for try := 0; try == 0 || try < deadlineTries && !errors.Is(err, locker.ErrHeld); try++ {
		_, err = c.Lock(s.within(s.ttl), name, locker.TTL(s.ttl)) // by then the first has its answer
	}
	cancel()
	all.Wait()
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, locker.ErrHeld) {
		s.broken(fmt.Sprintf("behind another caller of its client Lock failed with %q, which does not "+
			"match context.DeadlineExceeded and ErrHeld", err),
			"Acquire waits in its queue and does not call Request.Queued")
	}
}

// checkNothingPilesUp looks for what each wait adds to a client that lives on: a
// watch, a listener, a subscription that nobody ends.
func checkNothingPilesUp(s *trial) {
	const rounds, spare = 60, 20
	holder, waiter := s.client(), s.client()
	held := s.try(holder, s.name("piles"), locker.TTL(s.long))
	wait := func(rounds int) {
		for range rounds {
			ctx, cancel := context.WithTimeout(s.Context(), settle/5)
			if l, err := waiter.Lock(ctx, held.Name(), locker.TTL(s.long)); err == nil {
				_ = l.Unlock(s.Context())
				s.broken("Lock of a held name was granted", "no exclusion at all, or a lock that ends early")
			}
			cancel()
		}
	}
	wait(3) // what the first of them needs may stay
	before := runtime.NumGoroutine()
	wait(rounds)
	after := 0
	if !s.eventually(s.soon, func() bool { after = runtime.NumGoroutine(); return after < before+spare }) {
		s.broken(fmt.Sprintf("%d waits that were given up have left %d goroutines", rounds, after-before),
			"a watch, a listener or a request that lives as long as the client, and not as long as the wait")
	}
	s.unlock(held)
}

func checkContextAtBackend(s *trial) {
	b, other := s.backend(), s.client()
	name := s.name("context")

	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	grant, err := b.Acquire(ctx, s.held(s.request(name, s.long)))
	if err != nil || grant.Hold == nil {
		s.broken(fmt.Sprintf("Acquire of a free name failed: %v", err), ofError(err))
	}
	cancel()
	time.Sleep(settle)
	if _, err := s.tryLock(other, name); !errors.Is(err, locker.ErrHeld) {
		s.broken(fmt.Sprintf("after the context of a granted Acquire had ended, TryLock of another "+
			"returned %v", err), "the hold lives on the context of the request that made it")
	}
	if _, err := grant.Hold.Renew(s.within(s.patience())); err != nil {
		s.broken(fmt.Sprintf("Renew failed after the context of Acquire had ended: %v", err),
			"the hold uses the context of the request that made it")
	}
	if err := grant.Hold.Release(s.within(s.patience())); err != nil {
		s.broken(fmt.Sprintf("Release failed after the context of Acquire had ended: %v", err),
			"the hold uses the context of the request that made it")
	}

	over, end := context.WithCancel(s.Context())
	end()
	grant, err = b.Acquire(over, s.held(s.request(name, s.long)))
	if !errors.Is(err, context.Canceled) {
		s.broken(fmt.Sprintf("Acquire with a cancelled context returned the error %v", err),
			"Acquire does not look at its context")
	}
	if grant.Hold != nil {
		_ = grant.Hold.Undo(s.within(s.patience()))
	}
	s.unlock(s.freeWithin(s.soon, other, name,
		"Acquire sent its request under a cancelled context and said nothing of what may be left"))

	// With Wait, a service with a queue waits; it must leave when told to.
	held := s.try(other, name, locker.TTL(s.long))
	req := s.request(name, s.long)
	req.Wait = true
	answer := make(chan error, 1)
	ctx = s.within(s.ttl / 2)
	s.spawn(func() {
		grant, err := b.Acquire(ctx, req)
		if grant.Hold != nil {
			_ = grant.Hold.Release(context.WithoutCancel(ctx))
		}
		answer <- err
	})
	select {
	case err := <-answer:
		if !errors.Is(err, locker.ErrHeld) {
			s.broken(fmt.Sprintf("Acquire of a held name with Wait returned the error %v", err),
				"a wait that ends, and one that is not possible, both have to match ErrHeld")
		}
		if b.Guarantees().Queue && !errors.Is(err, context.DeadlineExceeded) {
			s.broken(fmt.Sprintf("Acquire waited in its queue until its context ended, and returned %q, "+
				"which does not match context.DeadlineExceeded", err),
				"the error of a wait that ends says why: join ErrHeld and ctx.Err()")
		}
	case <-time.After(s.ttl/2 + s.soon):
		s.broken(fmt.Sprintf("Acquire did not return within %v after its context had ended", s.soon),
			"Acquire does not watch its context while it waits")
	}
	s.unlock(held)
	s.unlock(s.freeWithin(s.soon, other, name, "the wait that ended left its place, its node or its key"))
	s.nothingLeft(name)
}
