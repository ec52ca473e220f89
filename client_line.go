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
// first of a line waits in the service, so that a thousand callers cost the service no
// more than one (R13). The caller keeps its place while it asks, and then its lease
// keeps others out until it is over. What the line passes on is the right to ask: each
// caller acquires for itself, if only in the request that releases the lock (see [Passer]).
type lines struct {
	mu      sync.Mutex
	byName  map[string]*line
	held    int // leases in all lines
	waiting int // calls of Lock in all lines
	closed  bool
	entered uint64 // calls that have come: the turn of the last one
}

// line is the line for one name. lines.mu guards its fields.
type line struct {
	name string

	holder  *Lease              // it holds the name alone
	sharers map[*Lease]struct{} // they hold it together; nil if there never was one

	// All calls, in the order in which they came. Those that ask the service stay where they
	// are: the first, which waits there, and where the name is shared others behind it, which
	// ask beside it.
	first, last *call
	next        *call // the first that does not ask; nil: all do
	asking      int   // how many ask
	waiting     int   // how many are calls of Lock

	held   bool      // the service has refused one since it granted the last
	outage error     // why it could not be asked the last time; nil: it has answered
	away   time.Time // since when it could not be asked

	visit time.Time  // since when the lock is passed on in this line
	note  *HeldError // of a call that has left: the place of the whole client in a line of the service
}

// longVisit is how long the callers of one line pass the lock on among themselves while
// other clients wait: between clients it goes by a message and a request of its own, which
// takes three times as long.
const longVisit = 2 * time.Millisecond

// maxAsking is how many sharers who wait ask at once: a service that refuses one refuses all
// of them.
const maxAsking = 64

// place is where a call stands:
//
//	waits ──> asks ──> gone (it has a lease, or has left)
//	  │ ↑      │
//	  │ └──────┘ (a sharer that was refused beside the first)
//	  └──────────────> gone (its context or its patience has ended)
type place uint8

const (
	waits place = iota // somebody is before it in line
	asks               // it asks the service, or is about to
	gone               // it is in no line
)

// mayAsk is who may ask the service: cl, if everybody before it in line asks already.
func (ln *line) mayAsk(cl *call) bool {
	switch {
	case ln.holder != nil:
		return false
	case !cl.settings.shared: // sharers that came before are in, or gone
		return ln.asking == 0 && (cl.wait || len(ln.sharers) == 0)
	case ln.full():
		return false
	case ln.asking == 0 || ln.first == cl:
		return true
	case !ln.first.settings.shared || ln.held || ln.outage != nil:
		return false
	}
	return !cl.wait || len(ln.sharers) > 0 && ln.asking < maxAsking
}

// full reports whether as many share the name, or ask to, as can. One more waits here, since
// the service would refuse it.
func (ln *line) full() bool { return len(ln.sharers)+ln.asking >= MaxSharers }

// enter returns nil when cl may ask the service. If the caller must not wait, or its
// patience or ctx ends first, the error says what was in the way.
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
	}
	at := ln.next == nil && ln.mayAsk(cl)
	if err := ln.keepsOut(ctx, cl, at); err != nil {
		ls.mu.Unlock()
		return err
	}
	ls.entered++
	cl.line, cl.turn = ln, ls.entered
	if cl.wait {
		ls.waiting++
		ln.waiting++
	}
	if cl.before = ln.last; ln.last == nil {
		ln.first = cl
	} else {
		ln.last.after = cl
	}
	ln.last = cl
	if at {
		ln.ask(cl)
		ls.mu.Unlock()
		return nil
	}
	ln.wait(cl)
	ls.mu.Unlock()
	return ls.await(ctx, cl)
}

// keepsOut returns why cl, which comes now, has no place in ln; nil if it has one.
func (ln *line) keepsOut(ctx context.Context, cl *call, mayAsk bool) error {
	if err := ln.upgrade(ctx, cl); err != nil || mayAsk {
		return err
	}
	switch {
	case !cl.wait:
		return cmp.Or(ln.inTheWay(cl), ErrHeld) // where nothing is known, a call before it is in the way
	case cl.settings.patience < 0 && ln.holder == nil:
		return ln.outage // a call that waits here learns of an outage when the first does
	}
	return nil
}

// sharerKey is the key under which the context of a shared lease has the lease.
type sharerKey struct {
	client *Client
	name   string
}

// upgrade returns an error if cl, with the context of a shared lease on its name, asks
// for the name alone: it would wait for itself.
func (ln *line) upgrade(ctx context.Context, cl *call) error {
	if len(ln.sharers) == 0 || cl.settings.shared {
		return nil
	}
	l, _ := ctx.Value(sharerKey{cl.client, cl.name}).(*Lease)
	if _, held := ln.sharers[l]; !held {
		return nil
	}
	return invalid("the context is that of a shared lease on this name, which cannot become one that is held " +
		"alone: two that tried would wait for each other; unlock it first")
}

// ask lets cl ask: it is ln.next, or has just come.
func (ln *line) ask(cl *call) {
	cl.place, cl.beside = asks, ln.first != cl
	ln.asking++
	if ln.next == cl {
		ln.next = cl.waitsAfter()
	}
}

// wait makes cl wait in its place.
func (ln *line) wait(cl *call) {
	cl.place, cl.ready = waits, make(chan struct{})
	if ln.next == nil || cl.turn < ln.next.turn {
		ln.next = cl
	}
}

// waitsAfter returns the first call behind cl that does not ask.
func (cl *call) waitsAfter() *call {
	for cl = cl.after; cl != nil && cl.place == asks; {
		cl = cl.after
	}
	return cl
}

// await returns nil when cl, which waits, may ask the service.
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
		err = &waitError{ctx: err, state: cl.line.inTheWay(cl)}
	}
	ls.remove(cl)
	cl.client.removeNote(cl.line.unused())
	return err
}

// leave takes cl out of its line, and lets others ask. place is the client's in a line of the service, if
// cl knows of it: it stays until the last who waits here has left, who gets it to remove.
func (ls *lines) leave(cl *call, place *HeldError) *HeldError {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if place != nil {
		cl.line.note = place
	}
	ls.remove(cl)
	return cl.line.unused()
}

// unused returns the client's place in a line of the service if nobody waits for the name any more.
func (ln *line) unused() (note *HeldError) {
	if ln.waiting == 0 {
		note, ln.note = ln.note, nil
	}
	return note
}

// remove takes cl out of its line, and lets others ask.
func (ls *lines) remove(cl *call) {
	if cl.place == gone {
		return // and its line may have ended, and another of that name have begun
	}
	ls.unlink(cl)
	ls.admit(cl.line)
}

// unlink takes cl out of its line.
func (ls *lines) unlink(cl *call) {
	ln := cl.line
	if cl.place == asks {
		if ln.asking--; ln.asking == 0 {
			ln.held = false // that was told to cl
		}
	}
	if ln.next == cl {
		ln.next = cl.waitsAfter()
	}
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
	cl.before, cl.after, cl.place = nil, nil, gone
	if cl.wait {
		ls.waiting--
		ln.waiting--
	}
}

// admit lets those ask who may now. A line that nobody is in ends.
func (ls *lines) admit(ln *line) {
	for cl := ln.next; cl != nil && ln.mayAsk(cl); cl = ln.next {
		ln.ask(cl)
		close(cl.ready)
	}
	if ln.first == nil && ln.holder == nil {
		ln.answered(false) // what is known is of long ago when somebody asks again
		if len(ln.sharers) == 0 {
			delete(ls.byName, ln.name)
		}
	}
}

// answered notes that the service has answered.
func (ln *line) answered(held bool) { ln.held, ln.outage, ln.away = held, nil, time.Time{} }

// grant begins l, with what was granted to cl, and gives it its place in the line. passed: with the
// release before it.
func (ls *lines) grant(cl *call, l *Lease, g Grant, passed bool) error {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.closed {
		return ErrClosed
	}
	ln := cl.line
	if err := l.take(ln, g); err != nil {
		return err
	}
	ls.held++
	ln.answered(false)
	ln.note = nil // the grant has removed it
	switch {
	case !l.settings.shared:
		if ln.holder = l; !passed {
			ln.visit = l.start
		}
	case ln.sharers == nil:
		ln.sharers = make(map[*Lease]struct{})
		fallthrough
	default:
		ln.sharers[l] = struct{}{}
	}
	ls.remove(cl)
	return nil
}

// release takes l out of its line, and lets others ask.
func (ls *lines) release(ln *line, l *Lease) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.drop(ln, l)
	ls.admit(ln)
}

func (ls *lines) drop(ln *line, l *Lease) {
	ls.held--
	if l.settings.shared {
		delete(ln.sharers, l)
	} else {
		ln.holder = nil
	}
}

// behind returns the call behind the holder that wants the lock for itself, nil if there is
// none, and whether the line has had the lock for long enough to yield it.
func (ls *lines) behind(ln *line) (cl *call, yield bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.closed || ln.first == nil || ln.first.settings.shared {
		return nil, false
	}
	return ln.first, time.Since(ln.visit) >= longVisit
}

// pass lets cl, which was granted the lock with the release of l, take it. It returns false
// if cl has left; then the next one asks.
func (ls *lines) pass(ln *line, l *Lease, cl *call, won *passed) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	here := ln.first == cl
	if here {
		cl.won = won
	}
	ls.drop(ln, l)
	ls.admit(ln)
	return here
}

// asked is an attempt of a call that waits in the service. It knows no more than it needs, since
// the backend may keep it.
type asked struct {
	line *line
	over bool // what the service says of its queue has no meaning any more
}

// toldHeld notes that the service has told an attempt that another has the lock; it returns
// false if the attempt is over.
func (ls *lines) toldHeld(a *asked) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if !a.over {
		a.line.answered(true)
	}
	return !a.over
}

func (ls *lines) over(a *asked) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	a.over = true
}

// refused notes that the service has refused cl, or could not be asked, and returns whether
// cl is the first of its line; and of an outage, for how long it has lasted, and how much
// longer cl waits for it to end. A call behind it that would not wait any longer is sent
// away: the patience of each counts from the beginning of the outage, or of the call if that
// is later, so that a hundred calls do not wait a hundred times as long.
func (ls *lines) refused(cl *call, err error, outage bool) (first bool, lasted, left time.Duration) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln := cl.line
	if !outage {
		ln.answered(true)
		return ln.first == cl, 0, 0
	}
	now := time.Now()
	if ln.outage = err; ln.away.IsZero() {
		ln.away = now
	}
	remains := func(cl *call) time.Duration {
		return later(ln.away, cl.began).Add(cl.settings.patience).Sub(now)
	}
	for one := ln.next; one != nil; {
		after := one.waitsAfter()
		if remains(one) <= 0 {
			ls.unlink(one)
			one.away = err
			close(one.ready)
		}
		one = after
	}
	return ln.first == cl, now.Sub(ln.away), remains(cl)
}

// again lets cl, which was refused beside the first of its line, wait in its place, and
// returns nil when it may ask once more.
func (ls *lines) again(ctx context.Context, cl *call) error {
	ls.mu.Lock()
	cl.line.asking--
	cl.line.wait(cl)
	ls.admit(cl.line)
	ls.mu.Unlock()
	return ls.await(ctx, cl)
}

// inTheWay is the reason why cl does not have the lock: an outage is never reported as
// "held" (R17), and sharers are not in the way of another, unless there are too many.
func (ln *line) inTheWay(cl *call) error {
	switch {
	case ln.holder != nil, len(ln.sharers) > 0 && (!cl.settings.shared || ln.full()):
		return ErrHeld
	case ln.outage == nil && ln.held:
		return ErrHeld
	}
	return ln.outage
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
		for cl := ln.first; cl != nil; cl = cl.after {
			if cl.wait {
				all = append(all, Wait{Name: ln.name, Callers: ln.waiting, Longest: now.Sub(cl.began)})
				break
			}
		}
	}
	return all
}

// close refuses all calls from now on, ends those in line, and returns the leases that are
// held.
func (ls *lines) close() []*Lease {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.closed = true
	for _, ln := range ls.byName {
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
		if ln.holder != nil {
			held = append(held, ln.holder)
		}
		held = slices.AppendSeq(held, maps.Keys(ln.sharers))
	}
	return held
}
