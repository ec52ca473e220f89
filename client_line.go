package locker

import (
	"cmp"
	"context"
	"sync"
	"time"
)

// lines are the lines of callers of one client, one for each name in use. Only the
// head of a line talks to the service, so that a thousand callers cost the service no
// more than one (R13). The caller keeps the place at the head, and then its lease
// does until it is over. What the line passes on is the right to ask: each caller
// acquires for itself, if only in the request that releases the lock (see [Passer]).
type lines struct {
	mu      sync.Mutex
	byName  map[string]*line
	held    int // lines whose head is a lease
	waiting int // calls of Lock in all lines
	closed  bool
}

// line is the line for one name. lines.mu guards its fields.
type line struct {
	name string

	// The head is a call that asks the service, and then its lease: one of the two.
	asking *call
	lease  *Lease

	first, last *call // behind the head, in the order in which they came
	behind      int   // how many they are

	visit visit // of the lock to this line

	// state is the last answer of the service: ErrHeld, the reason why it could not
	// be asked, or nil if nothing is known.
	state error
	// away is the time since which the service has not answered; zero: it answered
	// last.
	away time.Time
}

// visit is a time for which the callers of a line pass the lock on among themselves.
type visit struct {
	began  time.Time // zero: the lock is not here
	behind int       // of those who were in line then, how many have not had it
}

func (v visit) over() bool {
	lasts := time.Since(v.began)
	return lasts >= longVisit || v.behind <= 0 && lasts >= shortVisit
}

// A visit is how long the callers of one line pass the lock on among themselves
// while other clients wait: until everybody who stood in the line when it began has
// had the lock once, which is even and makes nobody wait for two rounds; for
// shortVisit at least, since between clients the lock goes by a message and a
// request of its own, three times as slow; and for longVisit at most.
const (
	shortVisit = 500 * time.Microsecond
	longVisit  = 5 * time.Millisecond
)

// place is where a call stands:
//
//	behind ──> atHead ──> gone (its lease is the head, or it has left)
//	   └──────────────────> gone (its context or its patience has ended)
type place uint8

const (
	behind place = iota // somebody is before it in line
	atHead              // it asks the service
	gone                // it is in no line
)

// enter returns nil when cl is at the head of the line for name. If the caller must
// not wait, or its patience or ctx ends first, the error says what was in the way.
func (ls *lines) enter(ctx context.Context, name string, cl *call) error {
	ls.mu.Lock()
	if ls.closed {
		ls.mu.Unlock()
		return ErrClosed
	}
	ln := ls.byName[name]
	if ln != nil && !cl.wait {
		err := ln.inTheWay()
		ls.mu.Unlock()
		return cmp.Or(err, ErrHeld) // where nothing is known, the call before it is in the way
	}
	if cl.wait {
		ls.waiting++
	}
	if ln == nil {
		if ls.byName == nil {
			ls.byName = make(map[string]*line)
		}
		ln = &line{name: name, asking: cl}
		ls.byName[name] = ln
		cl.line, cl.place = ln, atHead
		ls.mu.Unlock()
		return nil
	}
	// A call that waits here learns of an outage when the head does.
	if cl.settings.patience < 0 && ln.lease == nil && !ln.away.IsZero() {
		defer ls.mu.Unlock()
		ls.settle(cl)
		return ln.state
	}
	ln.push(cl)
	ls.mu.Unlock()

	select {
	case <-cl.ready:
		return cl.away // nothing changes it any more
	case <-ctx.Done():
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if cl.won != nil {
		return nil // it has the lock
	}
	err := ctxError(ctx)
	if !isClosing(ctx) {
		err = &waitError{ctx: err, state: ln.inTheWay()}
	}
	switch cl.place {
	case atHead:
		ls.advance(ln)
	case behind:
		ln.unlink(cl)
		ls.settle(cl)
	}
	return err
}

// push puts cl at the end of the line.
func (ln *line) push(cl *call) {
	cl.line, cl.ready = ln, make(chan struct{})
	cl.before = ln.last
	if ln.last == nil {
		ln.first = cl
	} else {
		ln.last.after = cl
	}
	ln.last = cl
	ln.behind++
}

// unlink takes cl out from behind the head. The caller holds ls.mu.
func (ln *line) unlink(cl *call) {
	if cl.before == nil {
		ln.first = cl.after
	} else {
		cl.before.after = cl.after
	}
	if cl.after == nil {
		ln.last = cl.before
	} else {
		cl.after.before = cl.before
	}
	cl.before, cl.after = nil, nil
	ln.behind--
}

// settle notes that cl does not wait any more. The caller holds ls.mu.
func (ls *lines) settle(cl *call) {
	cl.place = gone
	if cl.wait {
		ls.waiting--
	}
}

// leave passes the place at the head of ln to the next call in line.
func (ls *lines) leave(ln *line) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.advance(ln)
}

// advance makes the next call in line the head. The caller holds ls.mu.
func (ls *lines) advance(ln *line) {
	if ln.lease != nil {
		ln.lease, ln.state, ln.away = nil, nil, time.Time{}
		ls.held--
	} else {
		ls.settle(ln.asking)
	}
	cl := ln.first
	ln.asking, ln.visit = cl, visit{}
	if cl == nil {
		delete(ls.byName, ln.name)
		return
	}
	ln.unlink(cl)
	cl.place = atHead
	close(cl.ready)
}

// hold makes l, the lease of cl, the head; it returns false if the client is closed.
func (ls *lines) hold(cl *call, l *Lease) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.closed {
		return false
	}
	ln := cl.line
	ls.settle(cl)
	ln.asking, ln.lease = nil, l
	ls.held++
	if ln.visit.began.IsZero() {
		ln.visit = visit{l.start, ln.behind}
	}
	return true
}

// drop undoes hold for a lease that could not be given out: the call goes on. If Close
// has come between, drop ends the call in its place.
func (ls *lines) drop(cl *call) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	cl.line.asking, cl.line.lease = cl, nil
	cl.place = atHead
	ls.held--
	if cl.wait {
		ls.waiting++
	}
	if ls.closed {
		cl.cancel(errClosing)
	}
}

// next returns the next call in line for the lock that the head has, nil if there is
// none, and whether the line has had the lock for long enough to yield it.
func (ls *lines) next(ln *line) (cl *call, yield bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.closed || ln.first == nil {
		return nil, false
	}
	return ln.first, ln.visit.over()
}

// pass makes cl the head, with what was granted to it. It returns false if cl has
// left, and then makes the call that is next the head.
func (ls *lines) pass(ln *line, cl *call, won *passed) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	here := ln.first == cl
	if here {
		cl.won = won
	}
	visit := ln.visit
	ls.advance(ln)
	visit.behind--
	ln.visit = visit
	return here
}

// toldHeld notes that the service has answered the head with "held".
func (ls *lines) toldHeld(ln *line) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln.state, ln.away = ErrHeld, time.Time{}
}

// outage notes why the service could not be asked by cl, the head, and returns for how
// long that has lasted, and how much longer cl waits for it to end. A call behind it
// that would not wait any longer is sent away: the patience of each counts from the
// beginning of the outage, or of the call if that is later, so that a hundred calls do
// not wait a hundred times as long.
func (ls *lines) outage(cl *call, cause error) (lasted, left time.Duration) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln, now := cl.line, time.Now()
	ln.state = cause
	if ln.away.IsZero() {
		ln.away = now
	}
	remains := func(cl *call) time.Duration {
		return later(ln.away, cl.began).Add(cl.settings.patience).Sub(now)
	}
	for cl := ln.first; cl != nil; {
		after := cl.after
		if remains(cl) <= 0 {
			ln.unlink(cl)
			ls.settle(cl)
			cl.away = cause
			close(cl.ready)
		}
		cl = after
	}
	return now.Sub(ln.away), remains(cl)
}

// inTheWay is the reason why a call behind the head does not have the lock: an outage
// is never reported as "held" (R17).
func (ln *line) inTheWay() error {
	if ln.lease != nil {
		return ErrHeld
	}
	return ln.state
}

// count returns the number of leases that are held, and of calls that wait.
func (ls *lines) count() (held, waiting int) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.held, ls.waiting
}

// waits returns the names that calls wait for.
func (ls *lines) waits() (all []Wait) {
	now := time.Now()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, ln := range ls.byName {
		w, longest := Wait{Name: ln.name, Callers: ln.behind}, ln.first
		if ln.asking != nil && ln.asking.wait {
			w.Callers, longest = w.Callers+1, ln.asking
		}
		if longest != nil {
			w.Longest = now.Sub(longest.began)
			all = append(all, w)
		}
	}
	return all
}

// close refuses all calls from now on, ends the calls in flight, and returns the
// leases that are held.
func (ls *lines) close() []*Lease {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.closed = true
	for _, ln := range ls.byName {
		if ln.asking != nil {
			ln.asking.cancel(errClosing)
		}
		for cl := ln.first; cl != nil; cl = cl.after {
			cl.cancel(errClosing)
		}
	}
	return ls.leasesLocked()
}

// leases returns the leases that are held.
func (ls *lines) leases() []*Lease {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.leasesLocked()
}

func (ls *lines) leasesLocked() (held []*Lease) {
	for _, ln := range ls.byName {
		if ln.lease != nil {
			held = append(held, ln.lease)
		}
	}
	return held
}
