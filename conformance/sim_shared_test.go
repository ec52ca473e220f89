package conformance_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/golockers/locker"
)

// sharing is what the simulated service keeps of the sharers of a name.
type sharing struct {
	holders []*record
	token   uint64               // of all who hold together
	founder *record              // has drawn it
	notes   map[string]time.Time // of writers that wait, and when each ends
}

const noteLasts = time.Second

// sharers returns those of name whose time is not over. s.mu is held.
func (s *service) sharers(name string) *sharing {
	sh := s.shares[name]
	if sh == nil {
		sh = &sharing{notes: make(map[string]time.Time)}
		s.shares[name] = sh
	}
	now := time.Now()
	sh.holders = slices.DeleteFunc(sh.holders, func(rec *record) bool { return !now.Before(rec.expires) })
	for who, ends := range sh.notes {
		if !now.Before(ends) {
			delete(sh.notes, who)
		}
	}
	return sh
}

// remaining is how long the sharers last.
func (sh *sharing) remaining() (d time.Duration) {
	for _, rec := range sh.holders {
		d = max(d, time.Until(rec.expires))
	}
	return d
}

// find returns the sharer with that owner.
func (sh *sharing) find(owner string) *record {
	for _, rec := range sh.holders {
		if rec.owner == owner {
			return rec
		}
	}
	return nil
}

// share is acquire for a sharer. s.mu is held.
func (s *service) share(p place, name string, wait bool) (v verdict) {
	sh, alone := s.sharers(name), s.live(name)
	if s.flaw == sharersByClock {
		sh.holders = slices.DeleteFunc(sh.holders, func(rec *record) bool {
			return rec.expires.Before(time.Now().Add(p.client.off))
		})
	}
	keptOut, note := s.keptOut(sh, name, p)
	switch rec := sh.find(p.owner); {
	case rec != nil && (s.flaw != gateRefusesSharers || !keptOut):
		rec.confirmed = true
		rec.expires = later(time.Now().Add(s.lifetime(p.ttl)), rec.keep)
		s.arm(name, rec)
		return verdict{granted: true, token: rec.token}
	case alone != nil && alone.owner == p.owner && s.flaw == ownerInBoth:
		return verdict{granted: true, token: alone.token}
	case alone != nil && s.flaw != sharesUnderWriter:
		v.remaining = time.Until(alone.expires)
	case keptOut:
		if v.remaining = note; s.flaw == remainsOfSharers {
			v.remaining = sh.remaining()
		}
	default:
		rec := s.admit(name, p)
		rec.confirmed = true
		return verdict{granted: true, token: rec.token}
	}
	s.waited[name] = s.waited[name] || p.waits && s.flaw != yieldsToWriters
	if wait {
		s.line(name, p)
	}
	return v
}

// keptOut reports whether a writer that waits keeps a new sharer out, and for how long at most.
func (s *service) keptOut(sh *sharing, name string, p place) (out bool, note time.Duration) {
	if s.flaw == noGate {
		return false, 0
	}
	for _, ends := range sh.notes {
		out, note = true, max(note, time.Until(ends))
	}
	for _, q := range s.queues[name] {
		if q.owner == p.owner {
			break
		}
		out = out || time.Now().Before(q.expires)
	}
	return out, note
}

// admit stores a sharer. s.mu is held.
func (s *service) admit(name string, p place) *record {
	sh := s.sharers(name)
	if len(sh.holders) == 0 && s.flaw != staleGeneration || s.flaw == tokenPerSharer ||
		s.flaw == generationOfFounder && !slices.Contains(sh.holders, sh.founder) {
		s.tokens[name]++
	}
	rec := &record{
		began: time.Now(), owner: p.owner, label: p.label, client: p.client, lost: p.lost, count: 1,
		shared: true,
		token:  s.tokens[name],
	}
	if p.minHold > 0 && s.flaw != sharerMinHoldIgnored {
		rec.keep = time.Now().Add(p.minHold)
	}
	rec.expires = later(time.Now().Add(s.lifetime(p.ttl)), rec.keep)
	rec.granted = rec.expires
	if len(sh.holders) == 0 || s.flaw == generationOfFounder && rec.token != sh.token {
		sh.founder, sh.token = rec, rec.token
	}
	sh.holders = append(sh.holders, rec)
	s.arm(name, rec)
	s.oneTTL(name, rec)
	return rec
}

// oneTTL makes all sharers end with one of them, for the flaws of having one time for all.
func (s *service) oneTTL(name string, last *record) {
	sh := s.sharers(name)
	for _, rec := range sh.holders {
		ends := s.flaw == sharersHaveLongestTTL && rec.expires.Before(last.expires)
		if ends || s.flaw == sharersHaveOneTTL {
			rec.expires = last.expires
			s.arm(name, rec)
		}
	}
}

// leaves removes a sharer, and lets those in who come after it. s.mu is held.
func (s *service) leaves(name string, rec *record) {
	rec.timer.Stop()
	sh := s.sharers(name)
	sh.holders = slices.DeleteFunc(sh.holders, func(other *record) bool {
		return other == rec || s.flaw == releasesAllSharers
	})
	s.advance(name)
	if s.flaw != sharersSilent {
		s.tell(name)
	}
}

// endedSharers removes as many sharers, as an operator would, and returns what tells them
// where the service does. s.mu is held.
func (s *service) endedSharers(name string, most int) (tell []func()) {
	for i, rec := range slices.Clone(s.sharers(name).holders) {
		if i == most {
			break
		}
		if rec.client.kind.queued {
			tell = append(tell, func() { rec.client.net.push(nil, rec.lost) })
		}
		s.leaves(name, rec)
	}
	return tell
}

// diedSharing ends what a client that is gone has shared. s.mu is held.
func (s *service) diedSharing(name string, c *client, ends bool) {
	for _, rec := range slices.Clone(s.sharers(name).holders) {
		if ends && rec.client == c {
			s.leaves(name, rec)
		}
	}
}

// cutShared is the name of which name looks like the key of its sharers.
func cutShared(name string) (string, bool) { return strings.CutSuffix(name, ":shared") }

// advance lets those who wait in the queue have the lock, as far as nobody is in their way.
// s.mu is held.
func (s *service) advance(name string) {
	queue, admitted := s.queues[name], 0
	for len(queue) > 0 {
		next := queue[0]
		gone := !time.Now().Before(next.expires)
		beside := !next.shared && len(s.sharers(name).holders) > 0 && s.flaw != writesBesideSharers
		if !gone && (s.locks[name] != nil || beside) {
			break
		}
		queue = queue[1:]
		if s.flaw == deadWaitersStay {
			next.ttl *= 1000 // until it asks again
		}
		switch {
		case gone:
			continue
		case next.shared:
			s.admit(name, *next)
		default:
			s.grant(name, *next)
		}
		admitted++
	}
	if s.locks[name] == nil && s.flaw == sharersOvertake {
		queue = slices.DeleteFunc(slices.Clone(queue), func(p *place) bool {
			if p.shared {
				s.admit(name, *p)
			}
			return p.shared
		})
	}
	if s.queues[name] = queue; len(queue) == 0 {
		delete(s.queues, name)
	}
	if admitted > 0 {
		s.tell(name)
	}
}

// besides reports whether sharers are in the way of a writer, and notes that it waits.
// s.mu is held.
func (s *service) besides(name string, p place, wait bool, v *verdict) bool {
	sh := s.sharers(name)
	if base, ok := cutShared(name); ok && s.flaw == keyOfSharers {
		sh = s.sharers(base)
	}
	if len(sh.holders) == 0 || s.flaw == writesBesideSharers || s.flaw == grantsAlways {
		return false
	}
	if s.flaw == ownerInBoth && sh.find(p.owner) != nil {
		*v = verdict{granted: true, token: sh.token}
		return true
	}
	v.remaining = sh.remaining()
	s.waited[name] = s.waited[name] || p.waits
	switch {
	case wait:
		s.line(name, p)
	case p.waits && !p.client.kind.queued, s.flaw == notesWithoutWait:
		lasts := noteLasts
		if s.flaw == notesLast {
			lasts *= 1000
		}
		sh.notes[s.noteOf(p)] = time.Now().Add(lasts)
		v.note = true
	}
	return true
}

func (s *service) noteOf(p place) string {
	if s.flaw == notesOfOwners {
		return p.owner
	}
	return fmt.Sprintf("%p", p.client)
}

// dropNote removes the note of p.
func (s *service) dropNote(name string, p place) {
	sh := s.sharers(name)
	switch s.flaw {
	case leaveForgets:
		return
	case leaveOpens:
		clear(sh.notes)
	}
	delete(sh.notes, s.noteOf(p))
	if s.flaw != leaveSilent {
		s.tell(name)
	}
}

// noted is what a refused writer is told of its note.
func (c *client) noted(h *hold, held *locker.HeldError) *locker.HeldError {
	held.AskWithin = noteLasts / 3
	if c.service().flaw == asksTooLate {
		held.AskWithin = 2 * noteLasts
	}
	held.Leave = func(ctx context.Context) error {
		s := c.service()
		_, err := c.net.call(ctx, func() any {
			s.do(func() { s.dropNote(s.key(h.name), h.place) })
			return nil
		})
		return err
	}
	return held
}

// shareInTwoSteps looks whether a sharer may come, and lets it in with the next request.
func (c *client) shareInTwoSteps(ctx context.Context, h *hold) (any, error) {
	s := c.service()
	a, err := c.net.call(ctx, func() (a any) {
		s.do(func() {
			var v verdict
			name := s.key(h.name)
			if rec := s.live(name); rec != nil {
				v.remaining = time.Until(rec.expires)
			} else if out, note := s.keptOut(s.sharers(name), name, h.place); out {
				v.remaining = note
			} else {
				v.granted = true
			}
			a = v
		})
		return a
	})
	if err != nil || !a.(verdict).granted {
		return a, err
	}
	return c.net.call(ctx, func() (a any) {
		s.do(func() { a = verdict{granted: true, token: s.admit(s.key(h.name), h.place).token} })
		return a
	})
}

// stateOfSharers is what operators see. s.mu is held.
func (s *service) stateOfSharers(name string, st locker.State) locker.State {
	sh := s.sharers(name)
	if len(sh.holders) == 0 || s.flaw == inspectsNoSharers {
		return st
	}
	first := sh.holders[0]
	st.Held, st.Label, st.Remaining, st.Sharers = true, first.label, sh.remaining(), len(sh.holders)
	st.Holder = "sharers since " + sh.founder.owner
	if first.client.kind.sharing == locker.SharingWithTokens {
		st.Token = first.token
	}
	for _, rec := range sh.holders {
		if !slices.Contains(st.Sharing, rec.label) {
			st.Sharing = append(st.Sharing, rec.label)
		}
	}
	if s.flaw == inspectsOneSharer {
		st.Sharers = 1
	}
	return st
}
