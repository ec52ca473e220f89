package conformance_test

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/cas"
	"github.com/golockers/locker/driver"
)

// service is a lock service in memory, with TTLs, tokens and, if it is asked to, a queue of waiters. With a
// flaw, it does one thing wrong.
type service struct {
	flaw flaw
	end  chan struct{} // closed when the test is over: what hangs on purpose ends then

	mu      sync.Mutex
	down    bool
	names   map[string]*lock
	clients map[*client]bool
	voided  map[string]bool   // owners
	writes  int               // of records
	orphans map[string]string // who waits for a deleted lock, by its holder, and by itself once it is free
	after   []func()          // to be done when mu is free
}

// lock is what there is of a name.
type lock struct {
	name    string
	holders []*record            // one that holds alone, or sharers
	founder *record              // the sharer that has drawn the token of all
	notes   map[string]time.Time // of writers that wait, and when each ends
	queue   []*place
	token   uint64
	raised  uint64
	waited  bool              // somebody was refused who waits
	quiet   bool              // with a flaw, nobody is told when the next one leaves
	waits   time.Time         // with a flaw, nobody is told afterwards
	turn    time.Time         // with a flaw, until when Inspect sees one that is kept
	noted   map[string]uint64 // with a flaw, the tokens of the first notes
	came    int               // sharers, since there was none
	entry   cas.Entry         // where the service is a store with compare-and-swap
	written time.Time
}

// place is a request, and a waiter in the queue, which is kept by asking again.
type place struct {
	driver.Request
	client  *client
	expires time.Time
	drawn   uint64 // with a flaw, its token
}

// record is one that holds.
type record struct {
	place
	token     uint64
	began     time.Time
	granted   time.Time // when it expires if it is never renewed
	keep      time.Time // MinHold lasts so long
	kept      bool      // released, but for its MinHold
	raised    bool      // it has raised the tokens
	timer     *time.Timer
	count     int  // for the flaw of counting
	confirmed bool // it has been answered
}

func newService(f flaw) *service {
	return &service{flaw: f, end: make(chan struct{}), names: map[string]*lock{}, clients: map[*client]bool{},
		voided: map[string]bool{}, orphans: map[string]string{}}
}

// do runs op, and after it what op wants to be done without the mutex.
func (s *service) do(op func()) {
	s.mu.Lock()
	op()
	after := s.after
	s.after = nil
	s.mu.Unlock()
	for _, f := range after {
		f()
	}
}

// key is what a name is stored under.
func (s *service) key(name string) string {
	switch s.flaw {
	case foldsCase:
		return strings.ToLower(name)
	case cleansPath:
		return path.Clean("/" + name)
	case cutsNames:
		return name[:min(len(name), 255)]
	case dropsPrefixes:
		return name[strings.LastIndex(name, ":")+1:]
	}
	return name
}

// look returns what there is of a name, without what is over. s.mu is held.
func (s *service) look(name string) *lock {
	name = s.key(name)
	l := s.names[name]
	if l == nil {
		l = &lock{name: name, notes: map[string]time.Time{}, noted: map[string]uint64{}}
		s.names[name] = l
	}
	over := func(t time.Time) bool { return !time.Now().Before(t) }
	for _, rec := range slices.Clone(l.holders) {
		if over(rec.expires) && !(s.flaw == endsFewNames && len(s.names) > 2500) {
			if s.flaw == tokenOfExpired {
				l.token = 0
			}
			s.remove(l, rec)
		}
	}
	maps.DeleteFunc(l.notes, func(_ string, ends time.Time) bool { return over(ends) })
	return l
}

func (l *lock) of(shared bool) []*record {
	return slices.DeleteFunc(slices.Clone(l.holders), func(rec *record) bool { return rec.Shared != shared })
}

// remaining is how long records last.
func remaining(all []*record) (d time.Duration) {
	for _, rec := range all {
		d = max(d, time.Until(rec.expires))
	}
	return d
}

// inTheWay are those who hold, and whom p cannot be beside.
func (s *service) inTheWay(l *lock, p place) []*record {
	holders := slices.Clone(l.holders)
	if base, ok := strings.CutSuffix(l.name, ":shared"); ok && s.flaw == keyOfSharers && !p.Shared {
		holders = append(holders, s.look(base).of(true)...)
	}
	return slices.DeleteFunc(holders, func(rec *record) bool {
		switch {
		case p.Shared:
			return rec.Shared && !(s.flaw == admitsOneOfRun && p.Wait) || s.flaw == sharesUnderWriter
		case rec.Shared && s.flaw == writesBesideSharers:
			return true
		}
		return s.flaw == grantsAlways
	})
}

// keptOut reports whether a writer that waits keeps a new sharer out, and for how long at most.
func (s *service) keptOut(l *lock, p place) (out bool, note time.Duration) {
	if s.flaw == noGate || !p.Shared {
		return false, 0
	}
	for who, ends := range l.notes {
		if s.flaw != noteOfGeneration || l.noted[who] == l.token {
			out, note = true, max(note, time.Until(ends))
		}
	}
	for _, q := range l.queue {
		if q.Owner == p.Owner {
			break
		}
		out = out || time.Now().Before(q.expires)
	}
	return out, note
}

// verdict is the service's answer to an acquire.
type verdict struct {
	granted   bool
	token     uint64
	remaining time.Duration
	note      bool // of a writer that waits for sharers
	lost      bool // of a pass: the hold is gone
	err       error
}

// acquire grants the name, finds it granted to the same owner before, or refuses it; a caller who waits gets, or
// keeps, a place in the queue, or a note if sharers are in its way.
func (s *service) acquire(l *lock, p place, wait bool) (v verdict) {
	if s.voided[p.Owner] {
		return verdict{err: errBroken}
	}
	if s.flaw == clientClock && !p.Shared || s.flaw == sharersByClock && p.Shared {
		l.holders = slices.DeleteFunc(l.holders, func(rec *record) bool {
			return rec.Shared == p.Shared && rec.expires.Before(time.Now().Add(p.client.off))
		})
	}
	own, others := s.before(l, p), s.inTheWay(l, p)
	out, note := s.keptOut(l, p)
	if s.flaw == gateRefusesSharers && out {
		own = nil
	}
	switch {
	case s.orphans[p.Owner] == p.Owner: // it waited for a lock that was deleted
		return verdict{granted: true, token: l.token}
	case own != nil && own.kept:
		return verdict{remaining: time.Until(own.expires)}
	case own != nil:
		if s.flaw != sinceFromWait {
			s.prolong(l, own, s.lifetime(p.TTL))
		}
		if s.flaw == tokenPerRequest {
			l.token++
			own.token = l.token
		}
		if s.flaw == countsOwners {
			own.count++
		}
	case len(others) > 0:
		v.remaining = remaining(others)
	case out && s.flaw == remainsOfSharers:
		v.remaining = remaining(l.holders)
	case out:
		v.remaining = note
	case p.Shared && s.sharers(l) >= locker.MaxSharers && s.flaw == boundIsHeld:
		v.remaining = remaining(l.holders)
	case p.Shared && s.sharers(l) >= locker.MaxSharers:
		return verdict{err: errFull}
	default:
		own = s.grant(l, p)
	}
	if own != nil {
		own.confirmed = true
		return verdict{granted: true, token: own.token}
	}
	if p.Wait && time.Now().After(l.waits) {
		l.waits = time.Now().Add(v.remaining + noteLasts)
	}
	l.waited = l.waited || p.Wait && !(p.Shared && s.flaw == yieldsToWriters)
	switch alone := slices.ContainsFunc(others, func(rec *record) bool { return !rec.Shared }); {
	case wait:
		s.line(l, p)
	case s.flaw == notesUnsaid:
	case !p.Shared && !alone && (p.Wait && !p.client.kind.queued || s.flaw == notesWithoutWait):
		lasts := noteLasts
		if s.flaw == notesLast {
			lasts *= 1000
		}
		l.notes[s.noteOf(p)] = time.Now().Add(lasts)
		if l.noted[s.noteOf(p)] == 0 {
			l.noted[s.noteOf(p)] = l.token
		}
		v.note = true
	}
	return v
}

// errFull refuses one sharer too many.
var errFull = fmt.Errorf("%w: no more can share it", locker.ErrRefused)

// sharers is how many share a name, for the bound.
func (s *service) sharers(l *lock) int {
	switch s.flaw {
	case sharersUnbounded:
		return 0
	case countsThoseWhoLeft:
		return l.came
	}
	return len(l.holders)
}

const noteLasts = time.Second

func (s *service) noteOf(p place) string {
	if s.flaw == notesOfOwners {
		return p.Owner
	}
	return fmt.Sprintf("%p", p.client)
}

// before is what was granted to the same owner before, or, with a flaw, to one who is taken for it.
func (s *service) before(l *lock, p place) *record {
	for _, rec := range l.holders {
		own := rec.Owner == s.cut(p.Owner, comparesOwner32) && (rec.Shared == p.Shared || s.flaw == ownerInBoth)
		if !rec.Shared && !p.Shared && (s.flaw == reentrant && rec.client == p.client ||
			s.flaw == labelIsOwner && rec.Label == p.Label) {
			rec.Owner, own = p.Owner, true
		}
		if own && s.flaw != forgetsOwners {
			return rec
		}
	}
	return nil
}

// line gives p its place in the queue, or keeps it. s.mu is held.
func (s *service) line(l *lock, p place) {
	p.expires = time.Now().Add(p.TTL)
	if s.flaw == placesStay || s.flaw == thirdStays && len(l.queue) == 2 {
		p.expires = time.Now().Add(1000 * p.TTL)
	}
	time.AfterFunc(time.Until(p.expires), func() { s.do(func() { s.advance(l) }) })
	i := slices.IndexFunc(l.queue, func(q *place) bool { return q.Owner == p.Owner })
	switch {
	case i >= 0:
		l.queue[i].expires = p.expires
	case s.flaw == lastInFirstOut:
		l.queue = slices.Insert(l.queue, 0, &p)
	default:
		p.drawn = l.token + 1
		l.queue = append(l.queue, &p)
	}
}

// grant stores a holder. s.mu is held.
func (s *service) grant(l *lock, p place) *record {
	sharers := l.of(true)
	switch {
	case p.Shared:
		if len(sharers) == 0 && s.flaw != staleGeneration || s.flaw == tokenPerSharer ||
			s.flaw == generationOfFounder && !slices.Contains(sharers, l.founder) {
			l.token++
		}
	case s.flaw == raiseTwice && l.raised > 0:
		l.token = l.raised + 1
	case s.flaw == tokenLater, s.flaw == tokenTwice && l.token%3 == 2:
	default:
		l.token++
	}
	if l.came++; len(sharers) == 0 {
		l.came = 1
	}
	rec := &record{place: p, token: l.token, began: time.Now(), count: 1}
	rec.Owner = s.cut(p.Owner, comparesOwner32, cutsOwner)
	if s.flaw == tokenOfPlace && p.drawn != 0 {
		rec.token = p.drawn
	}
	rec.keep = rec.began.Add(s.minHold(p))
	if s.flaw == minHoldOfFirst && len(sharers) > 0 {
		rec.keep = rec.began
	}
	if p.Shared && (len(sharers) == 0 || s.flaw == generationOfFounder && rec.token != l.founder.token) {
		l.founder = rec
	}
	if !p.Shared {
		l.holders = sharers
		if s.flaw != grantKeepsNote {
			delete(l.notes, s.noteOf(p))
		}
	}
	l.holders = append(l.holders, rec)
	s.prolong(l, rec, s.lifetime(p.TTL))
	rec.granted = rec.expires
	return rec
}

func (s *service) minHold(p place) time.Duration {
	switch {
	case p.MinHold == 0, s.flaw == minHoldIgnored, s.flaw == sharerMinHoldIgnored && p.Shared:
		return 0
	case s.flaw == minHoldShort:
		return p.MinHold / 2
	case s.flaw == minHoldEndless:
		return 1000 * p.MinHold
	case s.flaw == minHoldOfClock:
		return p.MinHold + p.client.off
	}
	return p.MinHold
}

// lifetime is how long a lock is kept that was granted for ttl.
func (s *service) lifetime(ttl time.Duration) time.Duration {
	switch s.flaw {
	case roundsTTL:
		return ttl.Truncate(min(ttl, time.Second))
	case shortTTL:
		return ttl * 9 / 10
	case neverExpires, forgetsVoid, sessionReleaseInTwoSteps:
		return 1000 * ttl
	case nanosAsMillis:
		return 1e6 * min(ttl, time.Hour)
	case secondsAsMillis:
		return ttl / 1000
	case millisAsNanos:
		return ttl / 1e6
	}
	return ttl
}

// prolong has a record end when its life is over, or its MinHold if that is later. s.mu is held.
func (s *service) prolong(l *lock, rec *record, life time.Duration) {
	if rec.expires = time.Now().Add(life); rec.expires.Before(rec.keep) {
		rec.expires = rec.keep
	}
	for _, other := range l.holders {
		longer := s.flaw == sharersHaveLongestTTL && other.expires.Before(rec.expires)
		if other == rec || rec.Shared && other.Shared && (longer || s.flaw == sharersHaveOneTTL) {
			s.arm(l, other, rec.expires)
		}
	}
}

// arm sets when a record ends. s.mu is held.
func (s *service) arm(l *lock, rec *record, expires time.Time) {
	if rec.timer != nil {
		rec.timer.Stop()
	}
	rec.expires = expires
	rec.timer = time.AfterFunc(time.Until(expires), func() {
		s.do(func() {
			if s.flaw != endsWhenAsked {
				s.look(l.name)
			}
		})
	})
}

// remove ends a record, and lets the next one have the lock. s.mu is held.
func (s *service) remove(l *lock, rec *record) {
	rec.timer.Stop()
	if s.flaw == raiseEnds && rec.raised {
		l.token = rec.token
	}
	if s.flaw == tokenWithLock {
		l.token = 0
	}
	l.holders = slices.DeleteFunc(l.holders, func(other *record) bool {
		return other == rec || s.flaw == releasesAllSharers && rec.Shared && other.Shared
	})
	s.advance(l)
	if !rec.Shared || s.flaw != sharersSilent {
		s.tell(l)
	}
}

// advance lets those who wait in the queue have the lock, as far as nobody is in their way. s.mu is held.
func (s *service) advance(l *lock) {
	admitted := false
	for len(l.queue) > 0 {
		next := l.queue[0]
		gone := !time.Now().Before(next.expires)
		if !gone && next.Shared && s.sharers(l) >= locker.MaxSharers {
			break
		}
		if !gone && len(s.inTheWay(l, *next)) > 0 {
			break
		}
		l.queue = l.queue[1:]
		if s.flaw == deadWaitersStay {
			next.TTL *= 1000 // until it asks again
		}
		if !gone {
			s.grant(l, *next)
			admitted = true
		}
	}
	if s.flaw == sharersOvertake && len(l.of(false)) == 0 {
		l.queue = slices.DeleteFunc(slices.Clone(l.queue), func(p *place) bool {
			if p.Shared {
				s.grant(l, *p)
			}
			return p.Shared
		})
	}
	if admitted {
		s.tell(l)
	}
}

// tell wakes everybody who listens for a name. s.mu is held.
func (s *service) tell(l *lock) {
	hushed := l.quiet || s.flaw == waitedBriefly && time.Now().After(l.waits)
	if l.quiet = false; hushed || s.flaw == wakeLost || s.flaw == forgetsWaiters {
		return
	}
	for c := range s.clients {
		s.after = append(s.after, func() { c.net.push(nil, func() { c.wake(l.name) }) })
	}
}
