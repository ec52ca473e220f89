package conformance_test

import "time"

// stored is what is kept of an owner.
func (s *service) stored(owner string) string {
	if s.flaw == cutsOwner {
		return owner[:min(len(owner), 32)]
	}
	return s.asked(owner)
}

// asked is what is compared of an owner.
func (s *service) asked(owner string) string {
	if s.flaw == comparesOwner32 {
		return owner[:min(len(owner), 32)]
	}
	return owner
}

// owned returns the lock on name if it is that owner's. s.mu is held.
func (s *service) owned(name, owner string, releasing bool) *record {
	rec := s.live(name)
	if sharer := s.sharers(name).find(owner); sharer != nil {
		return sharer
	}
	if rec == nil {
		return nil
	}
	same := rec.owner == s.asked(owner)
	switch s.flaw {
	case noOwnerCheck:
		same = true
	case releasesAnybody:
		same = same || releasing
	case endOfOwner:
		same = rec.owner[20:] == owner[20:]
	}
	if !same {
		return nil
	}
	return rec
}

// renew gives the lock another TTL, and reports whether it was there.
func (s *service) renew(p place, name string) (found bool, err error) {
	name = s.key(name)
	s.do(func() {
		if s.down {
			err = errBroken
			return
		}
		rec := s.owned(name, p.owner, false)
		if rec == nil && s.flaw == renewAcquires && s.locks[name] == nil {
			rec = s.grant(name, p)
		}
		if rec == nil && s.flaw == renewalSharesAgain && p.shared {
			rec = s.admit(name, p)
		}
		if found = rec != nil; found && s.flaw != renewsNothing {
			life := s.lifetime(p.ttl)
			if s.flaw == roundsRenewal {
				life = life.Truncate(min(life, time.Second))
			}
			rec.expires = time.Now().Add(life)
			if s.flaw != minHoldRenewed {
				rec.expires = later(rec.expires, rec.keep)
			}
			s.arm(name, rec)
			if rec.shared {
				s.oneTTL(name, rec)
			}
		}
	})
	return found || s.flaw == deletionUnnoticed, err
}

// raise makes the tokens that come after that owner's greater.
func (s *service) raise(p place, name string, token uint64) (found bool, err error) {
	name = s.key(name)
	s.do(func() {
		found = s.owned(name, p.owner, false) != nil || s.flaw == raisesAnyway
		switch {
		case !found || s.flaw == raisesNothing:
		case s.flaw == raiseSetsBack:
			s.tokens[name] = token
		default:
			s.tokens[name] = max(s.tokens[name], token)
			s.raised[name] = s.tokens[name]
			if rec := s.locks[name]; rec != nil {
				rec.raised = true
			}
		}
	})
	return found, err
}

// void removes what that owner has, and refuses what it asks for later.
func (s *service) void(name, owner string) (found bool, err error) {
	s.do(func() {
		if !s.down {
			s.voided[owner] = s.flaw != forgetsVoid
		}
	})
	return s.release(name, owner)
}

// pass grants the lock of owner to next; or, if it is to yield and another client
// waits, removes it.
func (s *service) pass(name, owner string, next place, yield bool) (found bool, v verdict, err error) {
	name = s.key(name)
	s.do(func() {
		if s.down || s.voided[next.owner] {
			err = errBroken
			return
		}
		rec := s.owned(name, owner, true)
		if found = rec != nil || s.flaw == passesAnyway; !found {
			return
		}
		waits := yield && s.flaw != passesForEver && s.waited[name]
		delete(s.waited, name)
		switch {
		case waits && s.flaw == passesSilently:
			rec.timer.Stop()
			delete(s.locks, name)
		case waits:
			s.remove(name)
		case s.flaw == passesSame && rec != nil:
			v = verdict{granted: true, token: rec.token}
		default:
			remains := rec
			if s.flaw == minHoldPassed {
				next.minHold = 0
			}
			rec = s.grant(name, next)
			if s.flaw == passRemains && remains != nil {
				rec.expires = remains.expires
				s.arm(name, rec)
			}
			v = verdict{granted: true, token: rec.token}
		}
	})
	return found, v, err
}

// release removes what that owner has in the service.
func (s *service) release(name, owner string) (found bool, err error) {
	name = s.key(name)
	s.do(func() {
		if s.down {
			err = errBroken
			return
		}
		if s.flaw != placesStay {
			queue := s.queues[name]
			for i, q := range queue {
				if q.owner == owner && (s.flaw != thirdStays || i != 2) {
					s.queues[name] = append(queue[:i:i], queue[i+1:]...)
					break
				}
			}
			s.advance(name)
		}
		if next := s.orphans[owner]; next != "" {
			delete(s.orphans, owner)
			if found = next == owner; !found {
				s.orphans[next] = next
			}
		}
		rec := s.owned(name, owner, true)
		if s.flaw == leavesLateGrant && rec != nil && !rec.confirmed && time.Since(rec.began) < latency/5 {
			rec = nil
		}
		if rec != nil && !rec.confirmed && (s.flaw == leavesGrant || s.flaw == leavesSharer && rec.shared) {
			rec = nil
		}
		if rec == nil && s.flaw == releasesSharersOfName && len(s.sharers(name).holders) > 0 {
			rec = s.sharers(name).holders[0]
		}
		if rec != nil {
			found = true
			rec.count--
			switch {
			case rec.shared:
				s.leaves(name, rec)
			case rec.count <= 0 && (s.flaw != minHoldSticks || !time.Now().Before(rec.keep)):
				s.remove(name)
			}
		}
	})
	return found, err
}
