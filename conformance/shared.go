package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/golockers/locker"
)

// What Guarantees.Shared claims. A sharer, or reader, asks with Shared; a writer without.
// A sharer's hold is no Passer, so its checks go through the states by themselves.
func sharedChecks() []check {
	checks := []check{
		{
			Name: "shared-together",
			Promise: "Sharers of one client and of several hold a name together, and nobody else does " +
				"until the last of them has ended.",
			run: checkSharedTogether,
		},
		{
			Name: "shared-lives",
			Promise: "Each sharer has a life of its own: what releases, renews or outlives one does " +
				"nothing to another, " +
				"and a dead one ends after its TTL while others live on (R9, R12).",
			run: checkSharedLives,
		},
		{
			Name:    "shared-exclusion",
			Promise: "Of readers and writers that contend for a name, no writer holds it beside anybody.",
			run:     checkSharedExclusion,
		},
		{
			Name: "shared-gate",
			Promise: "A writer that waits keeps new sharers out and gets its turn; those before it stay; " +
				"one that has left keeps nobody out, and one that has died not for long.",
			run: checkSharedGate,
		},
		{
			Name: "shared-order",
			Promise: "A run of sharers that wait gets in together; where the order is FIFO, also between " +
				"readers and writers.",
			run: checkSharedOrder,
		},
		{
			Name: "shared-cancel",
			Promise: "A reader or writer that is cancelled at the very moment of its grant leaves nothing " +
				"(R7).",
			run: checkSharedCancel,
		},
		{
			Name: "shared-tokens",
			Promise: "Sharers that hold together have one token, greater than that of each writer before, " +
				"and less than that of each after; " +
				"or none, if that is claimed.",
			run: checkSharedTokens,
		},
		{
			Name: "shared-late",
			Promise: "What a sharer sent before it was given up, or was over, lets it in beside no writer " +
				"and harms nobody when it arrives (R7, R9).",
			unasked: noNetwork, missing: needsCut, run: checkSharedLate,
		},
		{
			Name: "shared-names",
			Promise: "No name or owner is taken for a part of what a service keeps for the sharers of " +
				"another name (R18).",
			run: checkSharedNames,
		},
		{
			Name: "shared-operate",
			Promise: "Inspect, List, Break and Notify know of all sharers, and each that is broken or " +
				"deleted is told.",
			run: checkSharedOperate,
		},
	}
	for i := range checks {
		more := checks[i].unasked
		checks[i].Once = true
		checks[i].unasked = func(s subject) string {
			switch {
			case s.Shared == locker.SharingNone:
				return "Shared is none"
			case more != nil:
				return more(s)
			}
			return ""
		}
	}
	return checks
}

const (
	besideSharers = "the request of a writer does not look for sharers, or in another place than where " +
		"they are"
	besideWriter = "the request of a sharer does not look for a writer, or in another place than where it is"
)

// shares is a sharer's request.
func (s *trial) shares(name string, ttl time.Duration) locker.Request {
	req := s.request(name, ttl)
	req.Shared = true
	return req
}

// waits is a writer's request that waits.
func (s *trial) waits(name string, ttl time.Duration) locker.Request {
	req := s.request(name, ttl)
	req.Wait, req.Queued = true, func() {}
	return req
}

// share returns the hold of a sharer whom nothing is in the way of.
func (s *trial) share(b locker.Backend, name string, ttl time.Duration) locker.Grant {
	s.Helper()
	grant, err := s.askWith(b, s.shares(name, ttl))
	if err != nil || grant.Hold == nil {
		s.broken(fmt.Sprintf("Acquire of a sharer, with nobody but sharers before it, failed: %v", err),
			"something that a writer, or a refused attempt, has left; or sharers exclude each other")
	}
	if v := grant.Validity.TTL; v != 0 && v < ttl {
		s.broken(fmt.Sprintf("a sharer asked for a TTL of %v, and was granted %v", ttl, v),
			"the TTL of the others is taken for its own")
	}
	return grant
}

// join is share with a Client.
func (s *trial) join(c *locker.Client, name string, opts ...locker.Option) *locker.Lease {
	s.Helper()
	opts = append([]locker.Option{locker.TTL(s.long), locker.Shared()}, opts...)
	l, err := c.Lock(s.within(s.soon), name, opts...)
	if err != nil {
		s.broken(fmt.Sprintf("Lock of a sharer, with nobody but sharers before it, failed: %v", err),
			"sharers exclude each other, or something that a writer has left")
	}
	return l
}

// refuse is refusal for those to whom the answer is all the same.
func (s *trial) refuse(b locker.Backend, req locker.Request, when, cause string) {
	s.Helper()
	_ = s.refusal(b, req, when, cause)
}

// refusal fails if the request is not refused as one is whose name is held.
func (s *trial) refusal(b locker.Backend, req locker.Request, when, cause string) *locker.HeldError {
	s.Helper()
	grant, took, err := s.askUndoubted(b, req)
	if err == nil {
		s.broken(fmt.Sprintf("%s, Acquire of another was granted (shared: %t)", when, req.Shared), cause)
	}
	held := &locker.HeldError{}
	_ = errors.As(err, &held)
	switch {
	case !errors.Is(err, locker.ErrHeld):
		s.broken(fmt.Sprintf("%s, Acquire of another returned %v", when, err),
			"Acquire has to answer a refusal by ErrHeld or a *HeldError")
	case grant.Hold != nil:
		s.broken(fmt.Sprintf("%s, Acquire returned a Hold beside a refusal, three times in a row", when),
			"the Hold beside an error is for unknown outcomes")
	case took > s.soon:
		s.broken(fmt.Sprintf("%s, a refusal took %v", when, took),
			"Acquire waits although Request.Wait is not set")
	case held.Remaining > s.long && held.Remaining > s.life(s.long):
		s.broken(fmt.Sprintf("%s, a refusal says that %v remain, with TTLs of at most %v", when,
			held.Remaining, s.long), "another unit of time, or the sum of several lives")
	}
	return held
}

func checkSharedTogether(s *trial) {
	name := s.name("together")
	a, b, raw, other := s.client(), s.client(), s.backend(), s.client()
	var all []*locker.Lease
	for i, c := range []*locker.Client{a, a, b, other, a, b} {
		if i%2 == 0 {
			all = append(all, s.join(c, name))
			continue
		}
		l, err := s.tryLock(c, name, locker.TTL(s.long), locker.Shared())
		if err != nil {
			s.broken(fmt.Sprintf("TryLock of sharer %d, with nobody but sharers before it, failed: %v", i+1,
				err), "sharers exclude each other")
		}
		all = append(all, l)
	}
	alone := func(when string) {
		s.Helper()
		s.refuse(raw, s.request(name, s.long), when, besideSharers)
		for _, c := range []*locker.Client{a, s.client()} {
			if l, err := s.tryLock(c, name, locker.TTL(s.long)); l != nil || !errors.Is(err, locker.ErrHeld) {
				s.broken(fmt.Sprintf("%s, TryLock of a writer returned %v", when, err), besideSharers)
			}
		}
	}
	for i, l := range all {
		left := len(all) - i
		alone(fmt.Sprintf("while %d sharers held the name", left))
		// Who asks and does not wait is nobody's turn.
		s.release(s.share(raw, name, s.long).Hold)
		s.unlock(l)
		for _, l := range all[i+1:] {
			if err := l.Renew(s.within(s.patience())); err != nil {
				s.broken(fmt.Sprintf("after one of %d sharers had unlocked, Renew of another failed: %v",
					left, err), "a release removes the sharers of a name, and not the one with its owner")
			}
		}
	}
	for _, c := range []*locker.Client{other, a} {
		w, err := s.tryLock(c, name, locker.TTL(s.long))
		if err != nil {
			s.broken(fmt.Sprintf("when the last sharer had unlocked, TryLock of a writer returned %v", err),
				"Release of a sharer returns before the service has confirmed it, or leaves something")
		}
		s.refuse(raw, s.shares(name, s.long), "while a writer held the name", besideWriter)
		for _, c := range []*locker.Client{a, b, other} {
			if l, err := s.tryLock(c, name, locker.TTL(s.long), locker.Shared()); l != nil || !errors.Is(err,
				locker.ErrHeld) {
				s.broken(fmt.Sprintf("while a writer held the name, TryLock of a sharer returned %v", err),
					besideWriter)
			}
		}
		if err := w.Renew(s.within(s.patience())); err != nil {
			s.broken(fmt.Sprintf("Renew of a writer failed after sharers had been refused: %v", err),
				"a refused attempt must not touch the holder's key")
		}
		s.unlock(w)
	}
	s.release(s.share(raw, name, s.long).Hold)
	s.nothingLeft(name)
}

// checkSharedExclusion is checkExclusion with two readers for each writer.
func checkSharedExclusion(s *trial) {
	const clients, rounds = 9, 10
	// Longer than the pause of a caller that only tries, so that such a caller tries while a writer is inside.
	// Who is let in wrongly may come after the other, or before it: both look when they come and when they
	// leave.
	const inside = 2 * time.Millisecond
	name := s.name("shared-counter")
	var readers, writers, most, counter atomic.Int32
	ctx := s.within(3 * s.patience())
	enter := func(c *locker.Client, try bool, opts ...locker.Option) (l *locker.Lease, err error) {
		opts = append(opts, locker.TTL(s.long))
		for try && (l == nil && err == nil || errors.Is(err, locker.ErrHeld)) && ctx.Err() == nil {
			l, err = s.tryLock(c, name, opts...)
			time.Sleep(time.Millisecond)
		}
		if try {
			return l, err
		}
		return c.Lock(ctx, name, opts...)
	}
	turn := func(c *locker.Client, writes, try bool) error {
		if !writes {
			l, err := enter(c, try, locker.Shared())
			if err != nil {
				return err
			}
			if n := readers.Add(1); n > most.Load() {
				most.Store(n)
			}
			before, n := counter.Load(), writers.Load()
			time.Sleep(inside)
			if n = max(n, writers.Load()); n != 0 || counter.Load() != before {
				s.report(fmt.Sprintf("beside a reader there were %d writers, and what it read changed by %d",
					n, counter.Load()-before), besideSharers+"; or: "+besideWriter)
			}
			readers.Add(-1)
			return l.Unlock(s.Context())
		}
		l, err := enter(c, try)
		if err != nil {
			return err
		}
		n, beside := writers.Add(1)-1, readers.Load()
		counter.Add(1)
		time.Sleep(inside)
		if beside = max(beside, readers.Load()); n != 0 || beside != 0 {
			s.report(fmt.Sprintf("beside a writer there were %d other writers and %d readers", n, beside),
				besideSharers+"; or: "+besideWriter)
		}
		writers.Add(-1)
		return l.Unlock(s.Context())
	}
	all := s.group()
	for i := range clients {
		c := s.client()
		all.Go(func() {
			for round := range rounds {
				// Writers that only try have no turn of their own among so many.
				writes := (i+round)%3 == 0
				if err := turn(c, writes, !writes && i%2 == 0); err != nil {
					s.report(fmt.Sprintf("client %d, round %d, writes %t: %v", i, round, writes, err),
						"a waiter that is forgotten: see the checks shared-order and drain; or a lock "+
							"that ends early")
					return
				}
			}
		})
	}
	all.Wait()
	if s.failed.Load() {
		s.FailNow()
	}
	s.Logf("at most %d readers held the name together", most.Load())
	s.nothingLeft(name)
}

// checkSharedOrder lets readers and writers wait for one that holds the name alone.
func checkSharedOrder(s *trial) {
	one, two, three := s.client(), s.client(), s.client()
	each := func(int) *locker.Client { return s.client() }
	parts := []func(){
		func() { s.sharedInOrder("one client", "RRWRRW", func(int) *locker.Client { return one }) },
		func() { s.sharedInOrder("run", "RRRR", each) },
		func() {
			s.sharedInOrder("run of two", "RRRRR",
				func(i int) *locker.Client { return []*locker.Client{two, three}[i/3] })
		},
	}
	if s.g.Order == locker.OrderFIFO {
		parts = append(parts, func() { s.sharedInOrder("clients", "RRWRRW", each) })
	}
	s.together(parts...)
}

// sharedInOrder lets callers wait in that order, R a reader and W a writer, and fails if
// they do not get in so: a run of readers together, and each run when the one before it
// has left.
func (s *trial) sharedInOrder(what, want string, client func(i int) *locker.Client) {
	s.Helper()
	var got string
	for try := range orderTries {
		if got = s.sharedOrder(s.name(fmt.Sprintf("order %s %d", what, try)), want, client); got == want {
			return
		}
		s.Logf("%s, try %d: callers who asked in the order %s got in as %s", what, try, want, got)
	}
	s.broken(fmt.Sprintf("callers who asked in the order %s got in as %s (%s; a run of readers is RR, and "+
		"readers one after the other R-R)", want, got, what),
		"a grant looks only at the first in the queue, and wakes one reader of a run; or readers overtake "+
			"a writer that waits before them")
}

// sharedOrder returns in which order callers get in; a reader that is alone has a "-"
// behind it if readers beside it should have come.
func (s *trial) sharedOrder(name, want string, client func(i int) *locker.Client) string {
	s.Helper()
	held := s.try(s.client(), name, locker.TTL(s.long))
	type caller struct {
		reads bool
		in    chan struct{}
	}
	entered := make(chan caller, len(want))
	all := s.group()
	ctx := s.within(s.long + s.patience())
	for i, kind := range want {
		c := client(i)
		before := c.Stats().Waiting
		me := caller{reads: kind == 'R', in: make(chan struct{})}
		opts := []locker.Option{locker.TTL(s.long)}
		if me.reads {
			opts = append(opts, locker.Shared())
		}
		var over atomic.Bool
		all.Go(func() {
			defer over.Store(true)
			l, err := c.Lock(ctx, name, opts...)
			if err != nil {
				s.report(fmt.Sprintf("caller %d of %s did not get its turn: %v", i+1, want, err),
					"a waiter that is forgotten")
				entered <- me
				return
			}
			entered <- me
			select {
			case <-me.in:
			case <-ctx.Done():
			}
			if err := l.Unlock(s.Context()); err != nil {
				s.report(fmt.Sprintf("Unlock of caller %d of %s failed: %v", i+1, want, err),
					"a lock that ends early")
			}
		})
		s.eventually(s.patience(), func() bool { return c.Stats().Waiting > before || over.Load() })
		s.inQueue(c, name, i+1)
	}
	s.unlock(held)
	got := ""
	for left := len(want); left > 0; {
		// The next run: as many as should be in it, or who comes before the time is over.
		run := 1
		for at := len(want) - left; want[at] == 'R' && at+run < len(want) && want[at+run] == 'R'; {
			run++
		}
		var in []caller
		for late := ctx.Done(); len(in) < run; late = s.within(s.soon + s.g.DeadHolderSlack).Done() {
			select {
			case c := <-entered:
				in = append(in, c)
				continue
			case <-late:
			}
			break
		}
		if len(in) == 0 {
			break
		}
		left -= len(in)
		for i, c := range in {
			if got += "W"; c.reads {
				got = got[:len(got)-1] + "R"
				if len(in) < run && i == len(in)-1 && left > 0 {
					got += "-"
				}
			}
			close(c.in)
		}
	}
	all.Wait()
	return got
}

// checkSharedCancel is cancelAtGrant for each kind of who waits, and of whom for.
func checkSharedCancel(s *trial) {
	c, name := s.client(), s.name("usual")
	began := time.Now()
	s.unlock(s.join(c, name))
	usual := max(time.Since(began), 100*time.Microsecond)
	reader := []locker.Option{locker.Shared()}
	var parts []func()
	for i := range 2 {
		for what, kinds := range map[string][2][]locker.Option{
			"reader behind writer": {nil, reader},
			"writer behind reader": {reader, nil},
		} {
			name := s.name(fmt.Sprintf("%s %d", what, i))
			c, other := s.client(), s.client()
			parts = append(parts, func() { s.cancelAtGrant(c, other, name, usual, kinds[0], kinds[1]) })
		}
	}
	s.together(parts...)
}

// unlockAll is for leases that end together.
func (s *trial) unlockAll(leases ...*locker.Lease) {
	s.Helper()
	for _, l := range leases {
		s.unlock(l)
	}
}

// writing lets a writer wait for name. It returns what ends its wait, and returns when it
// has ended; and what has its lease.
func (s *trial) writing(c *locker.Client, name string, ttl time.Duration) (leave func(),
	in <-chan *locker.Lease) {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	granted, done := make(chan *locker.Lease, 1), make(chan struct{})
	s.Cleanup(cancel)
	s.spawn(func() {
		defer close(done)
		l, err := c.Lock(ctx, name, locker.TTL(ttl))
		if err != nil && !errors.Is(err, context.Canceled) {
			s.report(fmt.Sprintf("Lock of a writer that waits failed: %v", err), ofError(err))
		}
		granted <- l
	})
	s.isWaiting(c, 1)
	return func() {
		cancel()
		if !s.returns(s.patience(), func() { <-done }) {
			s.broken("the cancelled Lock of a writer did not return", "Acquire does not watch its context")
		}
	}, granted
}
