package locker

import (
	"cmp"
	"context"
	"maps"
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
	held    int // leases in all lines
	waiting int // calls of Lock in all lines
	closed  bool
	entered uint64 // calls that have come: the turn of the last one

	// sharing has the lines whose name is held together. It is a map, so that the
	// others need no room for it.
	sharing map[*line]*sharing
}

// line is the line for one name. lines.mu guards its fields.
type line struct {
	name string

	// The head is a call that asks the service, and then its lease: one of the two.
	// A shared lease is in lines.sharing, and the next call becomes the head.
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
//	behind ──> atHead ──> gone (it has a lease, or has left)
//	  │ │ ↑
//	  │ └─┴──> joining ──> gone (the same)
//	  └──────────────────> gone (its context or its patience has ended)
type place uint8

const (
	behind  place = iota // somebody is before it in line
	atHead               // it asks the service, and waits there
	joining              // a sharer that asks beside the head, once
	gone                 // it is in no line
)

// enter returns nil when cl may ask the service: at the head of the line for name, or
// beside it. If the caller must not wait, or its patience or ctx ends first, the error
// says what was in the way.
func (ls *lines) enter(ctx context.Context, name string, cl *call) error {
	ls.mu.Lock()
	if ls.closed {
		ls.mu.Unlock()
		return ErrClosed
	}
	ln := ls.byName[name]
	if ln == nil {
		if ls.byName == nil {
			ls.byName = make(map[string]*line)
		}
		ln = &line{name: name}
		ls.byName[name] = ln
	} else if err := ls.keepsOut(ctx, ln, cl); err != nil {
		ls.mu.Unlock()
		return err
	}
	if cl.wait {
		ls.waiting++
	}
	ls.entered++
	cl.line, cl.turn = ln, ls.entered
	switch at := ls.standing(ln, cl); at {
	case behind:
		ln.push(cl, ln.last)
		ls.mu.Unlock()
		return ls.await(ctx, cl)
	default:
		ls.let(cl, at)
		ls.mu.Unlock()
		return nil
	}
}

// keepsOut returns why cl, which has just come, has no place in ln; nil if it has one.
func (ls *lines) keepsOut(ctx context.Context, ln *line, cl *call) error {
	if err := ls.upgrade(ctx, ln, cl); err != nil {
		return err
	}
	switch {
	case ls.standing(ln, cl) != behind:
		return nil
	case !cl.wait:
		return cmp.Or(ls.inTheWay(cl, ln), ErrHeld) // where nothing is known, a call before it is in the way
	case cl.settings.patience < 0 && ln.lease == nil && !ln.away.IsZero():
		return ln.state // a call that waits here learns of an outage when the head does
	}
	return nil
}

// standing is where cl stands, which comes now.
func (ls *lines) standing(ln *line, cl *call) place {
	switch sh := ls.sharing[ln]; {
	case ln.lease != nil || ln.first != nil:
	case ln.asking != nil:
		if cl.settings.shared && ls.joins(ln, !cl.wait) {
			return joining
		}
	case cl.settings.shared && ls.full(ln):
	case cl.settings.shared || sh == nil || cl.wait && len(sh.joining) == 0:
		return atHead
	}
	return behind
}

// let makes cl ask at its new place. The caller holds ls.mu.
func (ls *lines) let(cl *call, at place) {
	cl.place = at
	if at == atHead {
		cl.line.asking = cl
	} else {
		ls.shares(cl.line).joining[cl] = struct{}{}
	}
}

// await returns nil when cl, which is behind, may ask the service.
func (ls *lines) await(ctx context.Context, cl *call) error {
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
		err = &waitError{ctx: err, state: ls.inTheWay(cl, cl.line)}
	}
	ls.remove(cl)
	return err
}

// push puts cl behind before, and at the front of the line if before is nil.
func (ln *line) push(cl, before *call) {
	cl.place, cl.ready = behind, make(chan struct{})
	cl.before = before
	if before == nil {
		cl.after, ln.first = ln.first, cl
	} else {
		cl.after, before.after = before.after, cl
	}
	if cl.after == nil {
		ln.last = cl
	} else {
		cl.after.before = cl
	}
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

// leave takes cl out of its line, and lets the next call ask. It reports whether others wait there.
func (ls *lines) leave(cl *call) (others bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.remove(cl)
	ln := cl.line
	return ln.first != nil || ln.asking != nil && ln.asking.wait
}

// remove is leave for a caller that holds ls.mu.
func (ls *lines) remove(cl *call) {
	switch cl.place {
	case behind:
		cl.line.unlink(cl)
	case atHead:
		cl.line.asking, cl.line.visit = nil, visit{}
	case joining:
		delete(ls.sharing[cl.line].joining, cl)
	case gone:
		return
	}
	ls.settle(cl)
	ls.admit(cl.line)
}

// release takes l out of its line, and lets the next call ask.
func (ls *lines) release(ln *line, l *Lease) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.take(ln, l)
	ls.admit(ln)
}

// take takes l out of its line. The caller holds ls.mu.
func (ls *lines) take(ln *line, l *Lease) {
	ls.held--
	if l.settings.shared {
		delete(ls.sharing[ln].leases, l)
		return
	}
	ln.lease, ln.state, ln.away, ln.visit = nil, nil, time.Time{}, visit{}
}

// admit lets those ask who may now: the first call behind the head, if there is no head;
// with it, where the name is held together, all sharers who directly follow it. A line
// that nobody is in ends. The caller holds ls.mu.
func (ls *lines) admit(ln *line) {
	sh := ls.sharing[ln]
	if sh != nil && len(sh.leases)+len(sh.joining) == 0 {
		delete(ls.sharing, ln)
		sh = nil
	}
	for cl := ln.first; cl != nil && ln.lease == nil; cl = ln.first {
		at := atHead
		switch shared := cl.settings.shared; {
		case ln.asking != nil && shared && ls.joins(ln, false):
			at = joining
		case ln.asking != nil, shared && ls.full(ln):
			return
		case !shared && sh != nil && len(sh.joining) > 0:
			return // they came before it
		}
		ln.unlink(cl)
		ls.let(cl, at)
		close(cl.ready)
	}
	switch {
	case ln.asking != nil || ln.lease != nil || ln.first != nil:
	case sh == nil:
		delete(ls.byName, ln.name)
	default:
		ln.state, ln.away = nil, time.Time{} // of long ago, when somebody asks again
	}
}

// hold gives l, the lease of cl, its place; it returns false if the client is closed.
func (ls *lines) hold(cl *call, l *Lease) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.closed {
		return false
	}
	ln := cl.line
	ls.held++
	if l.settings.shared {
		ls.shares(ln).leases[l] = struct{}{} // cl stands where it is until it is sure: see joined
		return true
	}
	ls.settle(cl)
	ln.asking, ln.lease = nil, l
	if ln.visit.began.IsZero() {
		ln.visit = visit{l.start, ln.behind}
	}
	return true
}

// drop undoes hold for a lease that could not be given out: the call goes on. If Close
// has come between, drop ends the call in its place.
func (ls *lines) drop(cl *call, l *Lease) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l.settings.shared {
		ls.take(cl.line, l)
	} else {
		cl.line.asking, cl.line.lease = cl, nil
		cl.place = atHead
		ls.held--
		if cl.wait {
			ls.waiting++
		}
	}
	if ls.closed {
		cl.cancel(errClosing)
	}
}

// next returns the next call in line that wants the lock of the head for itself, nil if
// there is none, and whether the line has had the lock for long enough to yield it.
func (ls *lines) next(ln *line) (cl *call, yield bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.closed || ln.first == nil || ln.first.settings.shared {
		return nil, false
	}
	return ln.first, ln.visit.over()
}

// pass makes cl the head after l, with what was granted to it. It returns false if cl
// has left, and then makes the call that is next the head.
func (ls *lines) pass(ln *line, l *Lease, cl *call, won *passed) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	here := ln.first == cl
	if here {
		cl.won = won
	}
	visit := ln.visit
	ls.take(ln, l)
	ls.admit(ln)
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

// inTheWay is the reason why cl, behind the head of ln, does not have the lock: an outage
// is never reported as "held" (R17), and sharers are not in the way of another, unless
// there are too many.
func (ls *lines) inTheWay(cl *call, ln *line) error {
	sh := ls.sharing[ln]
	if ln.lease != nil || sh != nil && len(sh.leases) > 0 && (!cl.settings.shared || ls.full(ln)) {
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
		w := Wait{Name: ln.name, Callers: ln.behind}
		var began time.Time
		if ln.first != nil {
			began = ln.first.began
		}
		for cl := range ls.ask(ln) {
			if cl.wait {
				w.Callers++
				if began.IsZero() || cl.began.Before(began) {
					began = cl.began
				}
			}
		}
		if w.Callers > 0 {
			w.Longest = now.Sub(began)
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
		for cl := range ls.ask(ln) {
			cl.cancel(errClosing)
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
	for _, sh := range ls.sharing {
		held = slices.AppendSeq(held, maps.Keys(sh.leases))
	}
	return held
}
