package conformance_test

import (
	"slices"
	"time"
)

// cut is what is stored of an owner, or compared.
func (s *service) cut(owner string, because ...flaw) string {
	if slices.Contains(because, s.flaw) {
		return owner[:min(len(owner), 32)]
	}
	return owner
}

// owned returns what that owner has. s.mu is held.
func (s *service) owned(l *lock, owner string, releasing bool) *record {
	i := slices.IndexFunc(l.holders, func(rec *record) bool {
		switch {
		case rec.Shared:
		case s.flaw == noOwnerCheck, s.flaw == releasesAnybody && releasing:
			return true
		case s.flaw == endOfOwner:
			return rec.Owner[20:] == owner[20:]
		}
		return rec.Owner == s.cut(owner, comparesOwner32)
	})
	if i < 0 {
		return nil
	}
	return l.holders[i]
}

// renew gives the lock another TTL, and reports whether it was there.
func (s *service) renew(l *lock, p place) (found bool) {
	rec := s.owned(l, p.Owner, false)
	if rec != nil && rec.kept {
		return false
	}
	if rec == nil && (s.flaw == renewAcquires && len(l.of(false)) == 0 || s.flaw == renewalSharesAgain && p.Shared) {
		rec = s.grant(l, p)
	}
	if rec == nil {
		return s.flaw == deletionUnnoticed
	}
	life := s.lifetime(p.TTL)
	switch {
	case s.flaw == renewsNothing, s.flaw == renewsOnce && time.Since(rec.began) > p.TTL:
		return true
	case s.flaw == roundsRenewal:
		life = life.Truncate(min(life, time.Second))
	case s.flaw == minHoldRenewed:
		rec.keep = time.Time{}
	}
	s.prolong(l, rec, life)
	return true
}

// raise makes the tokens that come after that owner's greater.
func (s *service) raise(l *lock, p place, token uint64) (found bool) {
	rec := s.owned(l, p.Owner, false)
	switch {
	case rec == nil && s.flaw != raisesAnyway, rec != nil && rec.kept:
		return false
	case s.flaw == raisesNothing:
	case s.flaw == raiseSetsBack:
		l.token = token
	default:
		l.token = max(l.token, token)
		l.raised = l.token
		if rec != nil {
			rec.raised = true
		}
	}
	return true
}

// pass grants the lock of owner to next; or, if it is to yield and another client waits, removes it.
func (s *service) pass(l *lock, owner string, next place, yield bool) (v verdict) {
	if s.voided[next.Owner] {
		return verdict{err: errBroken}
	}
	rec := s.owned(l, owner, true)
	if rec == nil && s.flaw != passesAnyway {
		return verdict{lost: true}
	}
	yield = (yield || s.flaw == passesToOthers) && s.flaw != passesForEver && l.waited
	l.waited = false
	switch {
	case yield && rec == nil:
		return verdict{}
	case yield && s.flaw == passesSilently:
		rec.timer.Stop()
		l.holders = nil
		return verdict{}
	case yield:
		l.turn = time.Now().Add(200 * time.Millisecond)
		s.remove(l, rec)
		return verdict{}
	case s.flaw == passesSame && rec != nil:
		return verdict{granted: true, token: rec.token}
	case s.flaw == minHoldPassed:
		next.MinHold = 0
	}
	granted := s.grant(l, next)
	l.quiet = s.flaw == passHushes
	if s.flaw == passRemains && rec != nil {
		s.arm(l, granted, rec.expires)
	}
	return verdict{granted: true, token: granted.token}
}

// keep has what that owner has end when d has passed, and be nobody's until then. s.mu is held.
func (s *service) keep(l *lock, owner string, d time.Duration) (found bool) {
	rec := s.owned(l, owner, true)
	switch {
	case rec == nil:
		return false
	case s.flaw == keepFrees:
		return s.release(l, owner)
	case s.flaw == keepForgets, rec.kept:
		return true
	case s.flaw == keepsHalf:
		d /= 2
	case s.flaw == keepsLong:
		d *= 1000
	}
	rec.kept = s.flaw != keptIsRenewed
	s.arm(l, rec, time.Now().Add(d))
	return true
}

// release removes what that owner has in the service.
func (s *service) release(l *lock, owner string) (found bool) {
	i := slices.IndexFunc(l.queue, func(q *place) bool { return q.Owner == owner })
	if i >= 0 && s.flaw != placesStay && (s.flaw != thirdStays || i != 2) {
		l.queue = slices.Delete(slices.Clone(l.queue), i, i+1)
		s.advance(l)
	}
	if next := s.orphans[owner]; next != "" {
		delete(s.orphans, owner)
		if found = next == owner; !found {
			s.orphans[next] = next
		}
	}
	rec := s.owned(l, owner, true)
	if rec != nil && !rec.confirmed && (s.flaw == leavesGrant || s.flaw == leavesSharer && rec.Shared ||
		s.flaw == leavesLateGrant && time.Since(rec.began) < latency/5) {
		rec = nil
	}
	if sharers := l.of(true); rec == nil && s.flaw == releasesSharersOfName && len(sharers) > 0 {
		rec = sharers[0]
	}
	if rec == nil {
		return found
	}
	rec.count--
	sticks := s.flaw == minHoldSticks || s.flaw == keepsExpired && time.Since(rec.began) > rec.TTL
	if rec.kept && s.flaw == keptStays {
		return true
	}
	if rec.Shared || rec.kept || rec.count <= 0 && !(sticks && time.Now().Before(rec.keep)) {
		s.remove(l, rec)
	}
	return true
}
