package locker

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
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
	held    int // lines whose head has a lease
	waiting int // callers who wait, the heads without a lease included
	closed  bool
}

// line is the line for one name. lines.mu guards its fields.
type line struct {
	name    string
	lease   *Lease    // the head's, once it has one
	waits   bool      // the head is counted in lines.waiting
	since   time.Time // when the head called
	waiters []*waiter // who came first in front

	cancel context.CancelCauseFunc // of the head's call; nil once that has returned

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

// waiter is a caller behind the head.
type waiter struct {
	head                 // a copy of the caller's, to ask for it; only passed comes back
	ready  chan struct{} // closed when it becomes the head, or is sent away
	isHead bool
	away   error // what it is sent away with
	cancel context.CancelCauseFunc
}

// limits are how long a call waits.
type limits struct {
	wait     bool
	began    time.Time
	patience time.Duration
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

// enter returns when the caller is at the head of the line for name. If the caller
// must not wait, or its patience or ctx ends first, the error says what was in the
// way. Close ends ctx by cancel.
func (ls *lines) enter(ctx context.Context, cancel context.CancelCauseFunc, name string, h *head) (*line, error) {
	ls.mu.Lock()
	if ls.closed {
		ls.mu.Unlock()
		return nil, ErrClosed
	}
	ln := ls.byName[name]
	if ln == nil {
		if ls.byName == nil {
			ls.byName = make(map[string]*line)
		}
		ln = &line{name: name, cancel: cancel, waits: h.wait, since: h.began}
		ls.byName[name] = ln
		if h.wait {
			ls.waiting++
		}
		ls.mu.Unlock()
		return ln, nil
	}
	if !h.wait {
		err := ln.inTheWay()
		ls.mu.Unlock()
		return nil, cmp.Or(err, ErrHeld) // where nothing is known, who asks before is in the way
	}
	w := &waiter{head: *h, ready: make(chan struct{}), cancel: cancel}
	ln.waiters = append(ln.waiters, w)
	ls.waiting++
	ls.mu.Unlock()

	select {
	case <-w.ready:
		h.passed = w.passed
		return ln, w.away // nothing changes it any more
	case <-ctx.Done():
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	err := ctxError(ctx)
	if !errors.Is(err, ErrClosed) {
		err = &waitError{ctx: err, state: ln.inTheWay()}
	}
	switch i := slices.Index(ln.waiters, w); {
	case w.isHead && w.passed != nil:
		h.passed = w.passed // it has the lock
		return ln, nil
	case w.isHead:
		ls.advance(ln)
	case w.away == nil:
		ls.waiting--
		ln.waiters = slices.Delete(ln.waiters, i, i+1)
	}
	return nil, err
}

// leave passes the place at the head of ln to the next caller in line.
func (ls *lines) leave(ln *line) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.advance(ln)
}

// next returns the next caller in line for the lock that the head has, nil if there
// is none, and whether the line has had the lock for long enough to yield it.
func (ls *lines) next(ln *line) (w *waiter, yield bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.closed || len(ln.waiters) == 0 {
		return nil, false
	}
	return ln.waiters[0], ln.visit.over()
}

// pass lets w be the head with what was granted to it. It returns false if w has left,
// and then lets whoever is next be the head.
func (ls *lines) pass(ln *line, w *waiter, p *attempt) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	here := len(ln.waiters) > 0 && ln.waiters[0] == w
	visit := ln.visit
	if here {
		w.passed = p
	}
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

// patience returns how much longer the head waits for an outage to end, how long the
// outage has lasted, and its last cause. It first notes a cause that is not nil. The
// patience of every caller in line counts from the beginning of the outage, or from
// the beginning of its own call if that is later: a hundred callers do not wait a
// hundred times as long.
func (ls *lines) patience(ln *line, m limits, cause error) (left, away time.Duration, state error) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if cause == nil && ln.away.IsZero() {
		return math.MaxInt64, 0, nil
	}
	now := time.Now()
	if cause != nil {
		ln.state = cause
		if ln.away.IsZero() {
			ln.away = now
		}
		ln.waiters = slices.DeleteFunc(ln.waiters, func(w *waiter) bool {
			if ln.patience(w.limits, now) > 0 {
				return false
			}
			w.away = cause
			close(w.ready)
			ls.waiting--
			return true
		})
	}
	return ln.patience(m, now), now.Sub(ln.away), ln.state
}

func (ln *line) patience(m limits, now time.Time) time.Duration {
	return later(ln.away, m.began).Add(m.patience).Sub(now)
}

// hold notes the head's lease; it returns false if the client is closed.
func (ls *lines) hold(ln *line, l *Lease) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.closed {
		return false
	}
	ln.lease = l
	ls.held++
	if ln.visit.began.IsZero() {
		ln.visit = visit{l.start, len(ln.waiters)}
	}
	ls.stopWaiting(ln)
	return true
}

// stopWaiting notes that the head's call is about to return. The caller holds ls.mu.
func (ls *lines) stopWaiting(ln *line) {
	if ln.waits {
		ln.waits = false
		ls.waiting--
	}
	ln.cancel = nil
}

// drop undoes hold for a lease that could not be given out.
func (ls *lines) drop(ln *line) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.release(ln)
}

func (ls *lines) release(ln *line) {
	if ln.lease != nil {
		ln.lease = nil
		ls.held--
	}
}

// count returns the number of leases that are held, and of callers that wait.
func (ls *lines) count() (held, waiting int) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.held, ls.waiting
}

// waits returns the names that callers wait for.
func (ls *lines) waits() (all []Wait) {
	now := time.Now()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, ln := range ls.byName {
		w := Wait{Name: ln.name, Callers: len(ln.waiters)}
		if w.Callers > 0 {
			w.Longest = now.Sub(ln.waiters[0].began)
		}
		if ln.waits { // it came before them
			w.Callers, w.Longest = w.Callers+1, now.Sub(ln.since)
		}
		if w.Callers > 0 {
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
		if ln.cancel != nil {
			ln.cancel(ErrClosed)
		}
		for _, w := range ln.waiters {
			w.cancel(ErrClosed)
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

// advance makes the next caller in line the head. The caller holds ls.mu.
func (ls *lines) advance(ln *line) {
	if ln.lease != nil {
		ln.state, ln.away = nil, time.Time{}
	}
	ls.release(ln)
	ls.stopWaiting(ln)
	ln.visit = visit{}
	if len(ln.waiters) == 0 {
		delete(ls.byName, ln.name)
		return
	}
	w := ln.waiters[0]
	ln.waiters[0] = nil
	ln.waiters = ln.waiters[1:]
	w.isHead = true
	ln.waits, ln.since, ln.cancel = true, w.began, w.cancel
	close(w.ready)
}

// inTheWay is the reason why a caller behind the head does not have the lock: an
// outage is never reported as "held" (R17).
func (ln *line) inTheWay() error {
	if ln.lease != nil {
		return ErrHeld
	}
	return ln.state
}
