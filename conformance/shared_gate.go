package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/golockers/locker"
)

// What a writer that waits does to sharers that come after it: the gate.

// noteWithin is how long a dead writer keeps sharers out where the service is polled.
const noteWithin = time.Second

const (
	noGate    = "a sharer's request looks for a writer that holds, and not for one that waits"
	gateStays = "what a waiting writer has left is not removed when it leaves, or when it is granted the lock"
)

func checkSharedGate(s *trial) {
	s.together(s.gateStands, s.turnOfWriter, s.gateOfWhoLeft, s.gateOfDead, s.notes, s.noteOfDead)
}

// polled reports whether the engine asks the backend again and again while it waits: a
// service without a queue may wait in Acquire all the same, as on a file.
func (s *trial) polled(b locker.Backend) bool {
	s.Helper()
	if b.Guarantees().Queue {
		return false
	}
	name := s.name(fmt.Sprintf("polled-%d", s.number()))
	first := s.share(b, name, s.long)
	_, err := b.Acquire(s.within(5*settle), s.waits(name, s.ttl))
	s.release(first.Hold)
	return !errors.Is(err, context.DeadlineExceeded)
}

// gated fails if no new sharer is kept out of name from now on, or soon.
func (s *trial) gated(probe locker.Backend, name string) {
	s.Helper()
	if !s.eventually(s.soon, func() bool { return errors.Is(s.knock(probe, name), locker.ErrHeld) }) {
		s.broken("while sharers hold the name and a writer waits, new sharers get in", noGate)
	}
}

// knock is a sharer that looks whether it gets in, and leaves.
func (s *trial) knock(b locker.Backend, name string) error {
	grant, err := s.askWith(b, s.shares(name, s.long))
	if grant.Hold != nil {
		_ = grant.Hold.Undo(s.within(s.patience()))
	}
	return err
}

// gateStands looks at those who hold and those who come while a writer waits.
func (s *trial) gateStands() {
	name := s.name("gate")
	b, probe, reader, writer := s.backend(), s.backend(), s.client(), s.client()
	req := s.shares(name, s.long)
	first, err := s.askWith(b, req)
	if err != nil {
		s.broken(fmt.Sprintf("Acquire of a sharer failed: %v", err), ofError(err))
	}
	l := s.join(reader, name, locker.TTL(s.ttl)) // it lives by its renewals
	_, in := s.writing(writer, name, s.long)
	s.gated(probe, name)
	for end := time.Now().Add(max(3*noteWithin/2,
		3*s.ttl/2)); time.Now().Before(end); time.Sleep(s.ttl / 20) {
		if err := s.knock(probe, name); !errors.Is(err, locker.ErrHeld) {
			s.broken(fmt.Sprintf("while a writer waits, a new sharer was refused first, and then its "+
				"Acquire returned %v", err),
				"what keeps sharers out ends, and the next request of the waiting writer does not renew it")
		}
		if len(in) > 0 {
			s.broken("a writer got in while sharers held the name", besideSharers)
		}
		s.renew(first.Hold)
		if err := l.Err(); err != nil {
			s.broken(fmt.Sprintf("while a writer waits, a sharer from before lost its lease: %v", err),
				"the writer that waits is in the way of renewals")
		}
	}
	// An answer that was lost is asked for again.
	again, err := first, error(nil)
	if s.g.Scope >= locker.ScopeNetwork {
		again, err = s.askWith(b, req)
	}
	if err != nil || again.Token != first.Token {
		s.broken(fmt.Sprintf("while a writer waits, the request of a sharer that holds, repeated with its "+
			"owner, returned %v (token %d after %d)", err, again.Token, first.Token),
			"it is taken for a new sharer (R11)")
	}
	s.unlock(l)
	s.release(first.Hold)
	select {
	case w := <-in:
		s.refuse(probe, s.shares(name, s.long), "while a writer held the name", besideWriter)
		s.unlock(w)
	case <-time.After(s.patience()):
		s.broken("when all sharers had left, the writer that waited did not get in",
			"a waiter that is forgotten")
	}
	if err := s.knock(probe, name); err != nil {
		s.broken(fmt.Sprintf("when the writer had been in and had left, Acquire of a sharer returned %v",
			err), gateStays)
	}
	s.nothingLeft(name)
}

// turnOfWriter fails if readers that come and go keep a writer out.
func (s *trial) turnOfWriter() {
	const readers = 6
	name, hold := s.name("turn"), s.ttl/2
	writer := s.client()
	ctx := s.within(s.long)
	done := make(chan struct{})
	all := s.group()
	for i := range readers {
		c := s.client()
		all.Go(func() {
			time.Sleep(hold * time.Duration(i) / readers)
			for {
				select {
				case <-done:
					return
				default:
				}
				l, err := c.Lock(ctx, name, locker.Shared(), locker.TTL(s.long))
				if err != nil {
					s.report(fmt.Sprintf("a reader did not get its turn while a writer came and went: %v",
						err), "a waiter that is forgotten")
					return
				}
				time.Sleep(hold)
				_ = l.Unlock(s.Context())
			}
		})
	}
	time.Sleep(2 * hold)
	began := time.Now()
	l, err := writer.Lock(ctx, name, locker.TTL(s.long))
	took := time.Since(began)
	if err == nil {
		_ = l.Unlock(s.Context())
	}
	close(done)
	all.Wait()
	s.Logf("a writer among %d readers that hold for %v got in after %v", readers, hold, took)
	if bound := 2*hold + s.soon/2; err != nil || took > bound {
		s.broken(fmt.Sprintf("readers held the name for %v each, one after the other, and a writer waited "+
			"for %v (error %v): the bound is %v", hold, took, err, bound), noGate)
	}
}

// gateOfWhoLeft lets a writer wait, and leave.
func (s *trial) gateOfWhoLeft() {
	name := s.name("left")
	b, probe, writer, behind := s.backend(), s.backend(), s.client(), s.client()
	first := s.share(b, name, s.long)
	leave, in := s.writing(writer, name, s.long)
	s.gated(probe, name)
	joined := make(chan *locker.Lease, 1)
	s.spawn(func() {
		l, err := behind.Lock(s.within(s.long+s.patience()), name, locker.Shared(), locker.TTL(s.long))
		if err != nil {
			s.report(fmt.Sprintf("Lock of a reader behind a writer failed: %v", err),
				"a waiter that is forgotten")
		}
		joined <- l
	})
	s.isWaiting(behind, 1)
	leave()
	if <-in != nil {
		s.broken("a writer got in while a sharer held the name", besideSharers)
	}
	if !s.eventually(s.soon, func() bool { return s.knock(probe, name) == nil }) {
		s.broken(fmt.Sprintf("%v after a writer that waited had left, a new sharer was still refused",
			s.soon), gateStays)
	}
	select {
	case l := <-joined:
		if l == nil {
			s.FailNow()
		}
		s.renew(first.Hold)
		s.unlock(l)
	case <-time.After(s.soon):
		s.broken(fmt.Sprintf("%v after the writer before it had left, a reader that waited did not get in "+
			"beside others", s.soon),
			"nobody tells it; or its refusal said that as much time remains as the sharers have, and not "+
				"the writer that is in its way")
	}
	s.release(first.Hold)
	s.nothingLeft(name)
}

// gateOfDead lets a writer wait, and die.
func (s *trial) gateOfDead() {
	if s.h.Cut == nil {
		s.Logf("the harness has no Cut: what a writer leaves that dies while it waits was not looked at")
		return
	}
	name := s.name("dead-writer")
	b, probe, behind := s.backend(), s.backend(), s.client()
	cut, fault := s.cut()
	writer := s.clientOf(cut)
	s.warm(cut)
	bound, ttl := noteWithin+s.soon, s.long
	if !s.polled(cut) {
		ttl = s.ttl
		bound = s.freedWithin(s.life(s.ttl))
	}
	first := s.share(b, name, s.long)
	s.writing(writer, name, ttl)
	s.gated(probe, name)
	both(fault, Drop)
	died := time.Now()
	l, err := behind.Lock(s.within(bound), name, locker.Shared(), locker.TTL(s.long))
	if err != nil {
		s.broken(fmt.Sprintf("%v after a writer that waited had died, a reader was still kept out: %v",
			time.Since(died), err),
			"what a waiting writer leaves lasts for the TTL of its request or for ever: it is to end "+
				"within a second, and the waiting writer renews it; or nobody tells who waits")
	}
	s.Logf("a writer that died kept readers out for %v", time.Since(died))
	s.unlock(l)
	s.release(first.Hold)
}

// noteOfDead is a writer's request after which nobody asks again.
func (s *trial) noteOfDead() {
	name := s.name("note of dead")
	b, probe, writer := s.backend(), s.backend(), s.backend()
	if !s.polled(writer) {
		return
	}
	first := s.share(b, name, s.long)
	s.refuse(writer, s.waits(name, s.long), "while a sharer held the name", besideSharers)
	asked := time.Now()
	if !s.eventually(noteWithin+s.soon/2, func() bool { return s.knock(probe, name) == nil }) {
		s.broken(fmt.Sprintf("%v after a writer had asked for the last time, a new sharer was still refused",
			time.Since(asked)),
			"what it leaves is to end within a second, by the service's clock")
	}
	s.release(first.Hold)
}

// notes are what writers leave where the service is polled, one beside the other.
func (s *trial) notes() {
	name := s.name("notes")
	b, probe, one, other := s.backend(), s.backend(), s.backend(), s.backend()
	if !s.polled(one) {
		return
	}
	first := s.share(b, name, s.long)
	s.refuse(one, s.request(name, s.long), "while a sharer held the name", besideSharers)
	if err := s.knock(probe, name); err != nil {
		s.broken(fmt.Sprintf("after a writer that does not wait was refused, Acquire of a sharer returned %v",
			err), "a request without Wait leaves something")
	}
	writes := func(b locker.Backend) func() {
		s.Helper()
		held := s.refusal(b, s.waits(name, s.long), "while a sharer held the name", besideSharers)
		if held.AskWithin <= 0 || held.AskWithin >= noteWithin || held.Leave == nil {
			s.broken(fmt.Sprintf("a writer that waits for sharers was refused with AskWithin %v and Leave "+
				"given: %t", held.AskWithin, held.Leave != nil),
				"a refusal of such a request says that it left a note, which the engine renews in time, "+
					"and how to remove it")
		}
		return func() {
			s.Helper()
			if err := held.Leave(s.within(s.patience())); err != nil {
				s.broken(fmt.Sprintf("Leave failed: %v", err), "a note that is gone is no error")
			}
		}
	}
	kept := func(when string) {
		s.Helper()
		s.refuse(probe, s.shares(name, s.long), when, noGate)
		s.renew(first.Hold)
	}
	open := func(when string) {
		s.Helper()
		if err := s.knock(probe, name); err != nil {
			s.broken(fmt.Sprintf("%s, Acquire of a sharer returned %v", when, err), gateStays)
		}
	}
	leaveOne := writes(one)
	kept("while a writer waited")
	leaveOne()
	open("when the only writer that waited had left")
	leaveOne()

	writes(one) // each request of a writer is one of its own
	leaveOne, leaveOther := writes(one), writes(other)
	leaveOne()
	kept("when one of two writers that waited had left")
	leaveOther()
	open("when both writers that waited had left")

	// Who is granted the lock waits no more, and who waits is not in the way of writers.
	leaveOther, leaveOne = writes(other), writes(one)
	s.release(first.Hold)
	grant, err := s.askWith(one, s.waits(name, s.long))
	if err != nil {
		s.broken(fmt.Sprintf("when the sharers had left, Acquire of a writer that had waited returned %v",
			err), "its own note, or that of another writer, is in its way")
	}
	leaveOther()
	leaveOne() // late
	s.refuse(probe, s.shares(name, s.long), "while a writer held the name", besideWriter)
	s.renew(grant.Hold)
	s.release(grant.Hold)
	open("when the writer that had waited had been granted the lock and had released it, and the other " +
		"had left")
	first = s.share(b, name, s.long)
	writes(one)
	s.release(first.Hold)
	if grant, err = s.askWith(one, s.waits(name, s.long)); err != nil {
		s.broken(fmt.Sprintf("when the sharers had left, Acquire of a writer that had waited returned %v",
			err), "its own note is in its way")
	}
	s.release(grant.Hold)
	open("when the writer that had waited had been granted the lock and had released it")
	s.nothingLeft(name)
}
