package conformance

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/golockers/locker"
)

const setOfSharers = "the sharers of a name have one time at which they end, which is set by whoever " +
	"comes, or renews, last: each needs its own"

func checkSharedLives(s *trial) {
	parts := []func(){s.sharerReleased, s.sharersAlike}
	for _, first := range []bool{true, false} {
		parts = append(parts, func() { s.sharerDies(first) })
		if longest := s.backend().Guarantees().MaxMinHold; longest > 0 {
			parts = append(parts, func() { s.sharerMinHold(min(3*s.ttl, longest), first) })
		}
	}
	if s.h.OffClock != nil {
		parts = append(parts, func() { s.sharerOffClock(2 * s.long) },
			func() { s.sharerOffClock(-2 * s.long) })
	}
	s.together(parts...)
}

// sharerReleased releases sharers one after the other, and each of them twice.
func (s *trial) sharerReleased() {
	name := s.name("released")
	a, b, other := s.backend(), s.backend(), s.backend()
	for _, behind := range []bool{false, true} {
		var holds []locker.Grant
		if behind { // by those that were refused while a writer held the name
			w := s.acquire(other, s.request(name, s.long))
			for _, c := range []locker.Backend{a, b} {
				s.refuse(c, s.shares(name, s.long), "while a writer held the name", besideWriter)
			}
			s.release(w.Hold)
		}
		for _, c := range []locker.Backend{a, a, b} {
			holds = append(holds, s.share(c, name, s.long))
		}
		holds = append(holds, s.repeated(b, name))
		slices.Reverse(holds)
		for i, gone := range holds {
			s.release(gone.Hold)
			if err := gone.Hold.Release(s.within(s.patience())); !errors.Is(err, locker.ErrLost) {
				s.broken(fmt.Sprintf("the second Release of a sharer returned %v, while %d others held "+
					"the name", err, len(holds)-i-1),
					"it does not look for its own entry, but whether the name is held; or a repeated "+
						"request has made two of it")
			}
			if _, err := gone.Hold.Renew(s.within(s.patience())); !errors.Is(err, locker.ErrLost) {
				s.broken(fmt.Sprintf("Renew of a sharer that was released returned %v, while %d others "+
					"held the name", err, len(holds)-i-1),
					"it does not look for its own entry, or puts it back (R12)")
			}
			for _, stays := range holds[i+1:] {
				s.renew(stays.Hold)
				s.refuse(other, s.request(name, s.long),
					fmt.Sprintf("while %d sharers held the name", len(holds)-i-1), besideSharers)
			}
		}
		w, err := s.askWith(other, s.request(name, s.long))
		if err != nil {
			s.broken(fmt.Sprintf("when the last sharer had released, Acquire of a writer returned %v", err),
				"something of a sharer is left")
		}
		for _, gone := range holds {
			if err := gone.Hold.Release(s.within(s.patience())); !errors.Is(err, locker.ErrLost) {
				s.broken(fmt.Sprintf("Release of a sharer that was gone, with a writer in its place, "+
					"returned %v", err), "the owner is not compared")
			}
			if _, err := gone.Hold.Renew(s.within(s.patience())); !errors.Is(err, locker.ErrLost) {
				s.broken(fmt.Sprintf("Renew of a sharer that was gone, with a writer in its place, "+
					"returned %v", err), "it puts its entry back (R12)")
			}
		}
		s.renew(w.Hold)
		s.release(w.Hold)
		// And a writer that is gone does nothing to sharers.
		stays := s.share(a, name, s.long)
		if err := w.Hold.Release(s.within(s.patience())); !errors.Is(err, locker.ErrLost) {
			s.broken(fmt.Sprintf("Release of a writer that was gone, with a sharer in its place, returned %v",
				err), "the owner is not compared")
		}
		if _, err := w.Hold.Renew(s.within(s.patience())); !errors.Is(err, locker.ErrLost) {
			s.broken(fmt.Sprintf("Renew of a writer that was gone, with a sharer in its place, returned %v",
				err), "the owner is not compared")
		}
		s.renew(stays.Hold)
		s.refuse(other, s.request(name, s.long), "while a sharer held the name", besideSharers)
		s.release(stays.Hold)
	}
	s.nothingLeft(name)
}

// repeated is a sharer whose request was sent twice, if that can happen.
func (s *trial) repeated(b locker.Backend, name string) locker.Grant {
	s.Helper()
	req := s.shares(name, s.long)
	first, err := s.askWith(b, req)
	again, err2 := first, error(nil)
	if s.g.Scope >= locker.ScopeNetwork {
		again, err2 = s.askWith(b, req)
	}
	if err != nil || err2 != nil || again.Token != first.Token {
		s.broken(fmt.Sprintf("a sharer's request, repeated with its owner, returned %v, then %v, and "+
			"token %d after %d",
			err, err2, again.Token, first.Token), "it is taken for one more sharer (R11)")
	}
	return again
}

// sharersAlike has sharers whose owners differ in one digit.
func (s *trial) sharersAlike() {
	b, other := s.backend(), s.backend()
	const cause = "the owner is not compared, or only a part of it"
	for i, owners := range alike() {
		name := s.name(fmt.Sprintf("alike-%d", i))
		var holds [2]locker.Hold
		for j := range holds {
			req := s.shares(name, s.long)
			req.Owner = owners[j]
			grant, err := s.askWith(b, req)
			if err != nil {
				s.broken(fmt.Sprintf("Acquire of a sharer failed: %v", err), cause)
			}
			holds[j] = grant.Hold
		}
		s.release(holds[0])
		if _, err := holds[1].Renew(s.within(s.patience())); err != nil {
			s.broken(fmt.Sprintf("a sharer was released whose owner differs in one digit, and Renew of "+
				"the other returned %v", err), cause)
		}
		s.refuse(other, s.request(name, s.long), "while one of two sharers with similar owners held the name",
			cause)
		s.release(holds[1])
	}
}

// dies returns a sharer that was granted TTL and is dead; without a Hold if there is none
// that ends before its process.
func (s *trial) dies(name string) locker.Grant {
	s.Helper()
	var b locker.Backend
	die := func() {}
	if s.h.Cut != nil {
		cut, fault := s.cut()
		b, die = cut, func() { both(fault, Drop) }
		s.warm(cut)
	} else {
		b = s.backend()
	}
	grant := s.share(b, name, s.ttl)
	if grant.Validity.TTL == 0 || grant.Session && s.h.Cut == nil {
		s.release(grant.Hold)
		return locker.Grant{}
	}
	die()
	return grant
}

// sharerDies lets a sharer with a short TTL die beside one with a long TTL.
func (s *trial) sharerDies(first bool) {
	name := s.name(fmt.Sprintf("dies-%t", first))
	b, other, writer := s.backend(), s.backend(), s.client()
	var stays, dead locker.Grant
	if first {
		stays = s.share(b, name, s.long)
		dead = s.dies(name)
	} else {
		dead = s.dies(name)
		stays = s.share(b, name, s.long)
	}
	if dead.Hold == nil {
		s.release(stays.Hold)
		return
	}
	over := dead.Validity.Since.Add(dead.Validity.TTL + s.g.DeadHolderSlack + s.ttl/2)
	for time.Now().Before(over) {
		s.refuse(other, s.request(name, s.long),
			fmt.Sprintf("while a sharer with a TTL of %v held the name, beside one with %v that had died",
				s.long, s.ttl), setOfSharers)
		if !first { // it comes or renews last; and else the one that has died
			s.renew(stays.Hold)
		}
		time.Sleep(s.ttl / 20)
	}
	s.renew(stays.Hold)
	if i, ok := b.(locker.Operator); ok {
		var st locker.State
		if !s.eventually(s.soon, func() bool {
			st, _ = i.Inspect(s.Context(), name)
			return st.Sharers == 1
		}) {
			s.broken(fmt.Sprintf("one of two sharers has died, and after its time was over Inspect "+
				"says %+v", st), setOfSharers)
		}
	}
	s.release(stays.Hold)
	s.unlock(s.freeWithin(s.soon, writer, name, setOfSharers))
}

// sharerOffClock has a sharer whose clock is far from that of another.
func (s *trial) sharerOffClock(off time.Duration) {
	const cause = "the time at which a sharer ends is written or compared by the clock of a client: only " +
		"the service's own clock may do both"
	name := s.name(fmt.Sprintf("off-%v", off))
	here, there := s.backend(), s.offClock(off)
	when := fmt.Sprintf("among sharers of which one has a clock that is %v ahead", off)
	stays := s.share(here, name, s.long)
	far := s.share(there, name, s.ttl)
	s.renew(far.Hold)
	s.refuse(there, s.request(name, s.long), when, cause)
	s.refuse(here, s.request(name, s.long), when, cause)
	if _, err := stays.Hold.Renew(s.within(s.patience())); err != nil {
		s.broken(fmt.Sprintf("%s, Renew returned %v", when, err), cause)
	}
	s.release(stays.Hold)
	w, err := s.askWith(here, s.request(name, s.long))
	if in := time.Now(); err == nil && in.Before(far.Validity.Until()) && far.Validity.TTL != 0 {
		s.broken(fmt.Sprintf("%s, a writer got in %v before the end of the sharer that was left", when,
			far.Validity.Until().Sub(in)), cause)
	}
	if err == nil {
		s.release(w.Hold)
	}
	_ = far.Hold.Undo(s.within(s.patience()))
	s.release(s.share(there, name, s.long).Hold)
	s.unlock(s.freeWithin(s.soon, s.client(), name, cause))
}

// sharerMinHold lets sharers with MinHold go, one with more than the other.
func (s *trial) sharerMinHold(keep time.Duration, first bool) {
	name, b, c := s.name(fmt.Sprintf("min-hold-%t", first)), s.backend(), s.client()
	s.keptFor(keep, name, "was held by sharers, of whom one had asked for it", func() {
		if !first {
			s.release(s.share(b, name, s.ttl).Hold)
		}
		without := s.share(b, name, s.ttl)
		s.unlock(s.join(c, name, locker.TTL(s.ttl), locker.MinHold(keep)))
		if first {
			s.release(s.share(b, name, s.ttl).Hold)
		}
		s.release(without.Hold)
	})
}
