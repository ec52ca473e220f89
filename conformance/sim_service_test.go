package conformance_test

import (
	"path"
	"strings"
	"sync"
	"time"
)

// service is a lock service in memory, with TTLs, tokens and, if it is asked
// to, a queue of waiters. With a flaw, it does one thing wrong.
type service struct {
	flaw flaw
	*store
}

// store is what a service has, whatever its flaw.
type store struct {
	end chan struct{} // closed when the test is over: what hangs on purpose ends then

	mu      sync.Mutex
	down    bool
	locks   map[string]*record
	shares  map[string]*sharing
	queues  map[string][]*place
	tokens  map[string]uint64
	clients map[*client]struct{}
	voided  map[string]bool // owners
	waited  map[string]bool // names that somebody was refused who waits
	raised  map[string]uint64
	rows    map[string]*client // whose open transaction has locked it
	orphans map[string]string  // who waits for a deleted lock, by its holder, and by itself once it is free
	after   []func()           // to be done when mu is free
}

// record is a lock that is held.
type record struct {
	owner, label string
	token        uint64
	expires      time.Time
	began        time.Time
	granted      time.Time // when it expires if it is never renewed
	keep         time.Time // MinHold lasts so long
	raised       bool      // its holder has raised the tokens
	client       *client
	lost         func()
	timer        *time.Timer
	count        int  // for the flaw of counting
	confirmed    bool // its holder has been answered
	shared       bool // it is one of several
}

// place is a waiter in the queue. It is kept by asking again.
type place struct {
	owner   string
	label   string
	waits   bool
	shared  bool
	ttl     time.Duration
	minHold time.Duration
	client  *client
	lost    func()
	expires time.Time
}

func newService(f flaw) *service {
	return &service{flaw: f, store: &store{
		end: make(chan struct{}), shares: make(map[string]*sharing),
		locks: make(map[string]*record), queues: make(map[string][]*place),
		tokens: make(map[string]uint64), clients: make(map[*client]struct{}),
		voided: make(map[string]bool), waited: make(map[string]bool), raised: make(map[string]uint64),
		orphans: make(map[string]string),
		rows:    make(map[string]*client),
	}}
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

// verdict is the service's answer to an acquire.
type verdict struct {
	granted   bool
	token     uint64
	remaining time.Duration
	note      bool // of a writer that waits for sharers
	err       error
}

// acquire grants the name, finds it granted to the same owner before, or
// refuses it; a caller who waits gets, or keeps, a place in the queue.
func (s *service) acquire(p place, name string, wait bool) (v verdict) {
	name = s.key(name)
	s.do(func() {
		if s.down {
			v.err = errBroken
			return
		}
		if s.voided[p.owner] {
			v.err = errBroken
			return
		}
		if p.shared {
			v = s.share(p, name, wait)
			return
		}
		rec := s.live(name)
		if rec == nil && s.besides(name, p, wait, &v) {
			return
		}
		switch {
		case s.flaw == grantsAlways,
			s.flaw == clientClock && rec != nil && rec.expires.Before(time.Now().Add(p.client.off)):
			rec = nil
		case rec != nil && (s.flaw == reentrant && rec.client == p.client ||
			s.flaw == labelIsOwner && rec.label == p.label):
			rec.owner = p.owner
		}
		switch {
		case s.orphans[p.owner] == p.owner: // it waited for a lock that was deleted
			v = verdict{granted: true, token: s.tokens[name]}
		case rec != nil && rec.owner == s.asked(p.owner) && s.flaw != forgetsOwners:
			rec.confirmed = true
			if s.flaw != sinceFromWait {
				rec.expires = later(time.Now().Add(s.lifetime(p.ttl)), rec.keep)
				s.arm(name, rec)
			}
			if s.flaw == tokenPerRequest {
				s.tokens[name]++
				rec.token = s.tokens[name]
			}
			if s.flaw == countsOwners {
				rec.count++
			}
			v = verdict{granted: true, token: rec.token}
		case rec == nil:
			rec = s.grant(name, p)
			rec.confirmed = true
			v = verdict{granted: true, token: rec.token}
		default:
			v.remaining = time.Until(rec.expires)
			s.waited[name] = s.waited[name] || p.waits
			if wait {
				s.line(name, p)
			}
		}
	})
	return v
}

// line gives p its place in the queue, or keeps it. s.mu is held.
func (s *service) line(name string, p place) {
	p.expires = time.Now().Add(p.ttl)
	if s.flaw == placesStay || s.flaw == thirdStays && len(s.queues[name]) == 2 {
		p.expires = time.Now().Add(1000 * p.ttl)
	}
	time.AfterFunc(time.Until(p.expires), func() { s.do(func() { s.advance(name) }) })
	for _, q := range s.queues[name] {
		if q.owner == p.owner {
			q.expires = p.expires
			return
		}
	}
	if s.flaw == lastInFirstOut {
		s.queues[name] = append([]*place{&p}, s.queues[name]...)
		return
	}
	s.queues[name] = append(s.queues[name], &p)
}

// grant stores the lock. s.mu is held.
func (s *service) grant(name string, p place) *record {
	if old := s.locks[name]; old != nil {
		old.timer.Stop()
	}
	if s.flaw != tokenLater && s.flaw != tokenTwice || s.flaw == tokenTwice && s.tokens[name]%3 != 2 {
		s.tokens[name]++
	}
	if s.flaw == raiseTwice && s.raised[name] > 0 {
		s.tokens[name] = s.raised[name] + 1
	}
	rec := &record{
		began: time.Now(), owner: s.stored(p.owner), label: p.label, token: s.tokens[name], client: p.client,
		lost: p.lost, count: 1,
		expires: time.Now().Add(s.lifetime(p.ttl)),
	}
	rec.keep = time.Now().Add(s.minHold(p.minHold))
	if s.flaw == minHoldOfClock && p.minHold > 0 {
		rec.keep = rec.keep.Add(p.client.off)
	}
	rec.expires = later(rec.expires, rec.keep)
	rec.granted = rec.expires
	s.locks[name] = rec
	if s.flaw != grantKeepsNote {
		delete(s.sharers(name).notes, s.noteOf(p))
	}
	s.arm(name, rec)
	return rec
}

func (s *service) minHold(d time.Duration) time.Duration {
	switch s.flaw {
	case minHoldIgnored:
		return 0
	case minHoldShort:
		return d / 2
	case minHoldEndless:
		return 1000 * d
	}
	return d
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
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

// arm sets the timer that ends the lock. s.mu is held.
func (s *service) arm(name string, rec *record) {
	if rec.timer != nil {
		rec.timer.Stop()
	}
	rec.timer = time.AfterFunc(time.Until(rec.expires), func() {
		s.do(func() {
			switch {
			case rec.shared && !time.Now().Before(rec.expires):
				s.leaves(name, rec)
			case s.locks[name] == rec:
				s.live(name)
			}
		})
	})
}

// live returns the lock on name, if its time is not over. s.mu is held.
func (s *service) live(name string) *record {
	rec := s.locks[name]
	if rec != nil && !time.Now().Before(rec.expires) {
		if s.flaw == tokenOfExpired {
			delete(s.tokens, name)
		}
		s.remove(name)
		return s.locks[name]
	}
	return rec
}

// remove ends the lock on name, and lets the next one have it. s.mu is held.
func (s *service) remove(name string) {
	if rec := s.locks[name]; rec != nil {
		rec.timer.Stop()
		if s.flaw == raiseEnds && rec.raised {
			s.tokens[name] = rec.token
		}
	}
	delete(s.locks, name)
	if s.flaw == tokenWithLock {
		delete(s.tokens, name)
	}
	s.advance(name)
	s.tell(name)
}

// tell wakes everybody who listens for name. s.mu is held.
func (s *service) tell(name string) {
	if s.flaw == wakeLost || s.flaw == forgetsWaiters {
		return
	}
	for c := range s.clients {
		s.after = append(s.after, func() { c.net.push(nil, func() { c.wake(name) }) })
	}
}
