package locker

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/clock"
)

// lines are the lines of callers of one client, one for each name in use (R13). Only the first of
// a line waits in the service. The caller keeps its place while it asks, and then its lease
// keeps others out until it is over.
type lines struct {
	mu      sync.Mutex
	byName  map[string]*line
	held    map[*Lease]struct{} // in all lines
	waiting int                 // calls of Lock in all lines
}

// line is the line for one name. lines.mu guards its fields.
type line struct {
	name string

	alone   bool // a lease holds the name alone
	sharers int  // leases that hold it together

	// All calls, in the order in which they came, also those that ask the service: the first,
	// and where the name is shared others beside it.
	first, last *call
	next        *call // nobody before it waits in place; nil: look from the first
	calls       int   // how many they are
	asking      int   // of them ask
	waiting     int   // are calls of Lock

	held   bool      // the service has refused one that still asks
	was    time.Time // when the last left that it had refused; zero: it has granted since, or could not be asked
	outage error     // why it could not be asked the last time; nil: it has answered
	away   time.Time // since when it could not be asked, in an outage
	quiet  time.Time // up to here nobody who stands behind loses patience with it

	tries map[*call]struct{} // calls of TryLock that wait here for the answer to one before them (R17)

	visit time.Time       // since when the lock is passed on in this line
	note  *driver.Refusal // the place of the whole client in a line of the service
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
//	waits ──> asks ────> gone (it has a lease, or has left, also from where it waits)
//	  ↑ └───> beside ──> gone
//	  └─────────┘ (it was refused)
type place uint8

const (
	waits  place = iota // somebody is before it in line
	asks                // it is the first, and asks the service, or is about to
	beside              // the same, beside the first: it does not wait in the service
	gone                // it is in no line
)

// mayAsk is who may ask the service: cl, if everybody before it in line asks already.
func (ln *line) mayAsk(cl *call) bool {
	switch {
	case ln.alone:
		return false
	case !cl.settings.Shared: // sharers that came before are in, or gone
		return ln.asking == 0 && (cl.wait || ln.sharers == 0)
	case ln.full():
		return false
	case ln.asking == 0 || ln.first == cl:
		return true
	case !ln.first.settings.Shared || ln.held || ln.outage != nil:
		return false
	}
	return !cl.wait || ln.sharers > 0 && ln.asking < maxAsking
}

// full reports whether as many share the name, or ask to, as can. One more waits here, since
// the service would refuse it.
func (ln *line) full() bool { return ln.sharers+ln.asking >= MaxSharers }

// enter returns nil when cl may ask the service. If the caller must not wait, or its
// patience or ctx ends first, the error says what was in the way.
func (ls *lines) enter(ctx context.Context, name string, cl *call) error {
	ls.mu.Lock()
	if cl.client.isClosed() {
		ls.mu.Unlock()
		return ErrClosed
	}
	ln := ls.byName[name]
	if ln == nil {
		ln = &line{name: name}
		ls.byName[name] = ln
	}
	at := ln.asking == ln.calls && ln.mayAsk(cl)
	if err := ln.keepsOut(cl, at); err != nil {
		ls.mu.Unlock()
		return err
	}
	cl.line = ln
	ln.calls++
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
	if ln.asking == ln.calls-1 {
		ln.next = cl
	}
	ln.stand(cl)
	ls.mu.Unlock()
	return ls.await(ctx, cl)
}

// keepsOut returns why cl, which comes now, has no place in ln; nil if it has one.
func (ln *line) keepsOut(cl *call, mayAsk bool) error {
	switch {
	case mayAsk:
		return nil
	case !cl.wait:
		return ln.inTheWay(cl) // where nothing is known, it waits for the answer to a call before it
	case cl.settings.Patience < 0 && !ln.alone:
		return ln.outage // a call that waits here learns of an outage when the first does
	}
	return nil
}

// stand lets cl wait in its place.
func (ln *line) stand(cl *call) {
	cl.place, cl.ready = waits, make(chan struct{})
	if cl.wait {
		ln.quiet = sooner(ln.quiet, ln.patience(cl))
		return
	}
	if ln.tries == nil {
		ln.tries = make(map[*call]struct{})
	}
	ln.tries[cl] = struct{}{}
}

// patience is when that of cl with an outage ends. It counts from the beginning of the outage, or of the
// call if that is later, so that a hundred calls do not wait a hundred times as long.
func (ln *line) patience(cl *call) time.Time {
	return later(ln.away, cl.began).Add(cl.settings.Patience)
}

// ask lets cl ask.
func (ln *line) ask(cl *call) {
	if cl.place = asks; ln.first != cl {
		cl.place = beside
	}
	ln.asking++
	delete(ln.tries, cl)
}

// waiter returns the first call that does not ask; nil: all do. Thousands of sharers that do not wait
// may ask: they are not looked through under the mutex of all lines each time that one ends.
func (ln *line) waiter() *call {
	if ln.asking == ln.calls {
		return nil
	}
	if ln.next == nil {
		ln.next = ln.first
	}
	for ln.next.place != waits {
		ln.next = ln.next.after
	}
	return ln.next
}

// await returns nil when cl, which waits, may ask the service.
func (ls *lines) await(ctx context.Context, cl *call) error {
	select {
	case <-cl.ready:
		return cl.away // nothing changes it any more
	case <-ctx.Done():
	}
	ls.mu.Lock()
	if cl.lease != nil {
		ls.mu.Unlock()
		<-cl.ready // the lock was passed to it
		return nil
	}
	defer ls.mu.Unlock()
	err := ctxError(ctx)
	if !isClosing(ctx) {
		state := cl.line.inTheWay(cl)
		if state == nil && cl.line.wasHeld() {
			state = ErrHeld
		}
		err = waited(err, state)
	}
	ls.remove(cl)
	return err
}

// remove takes cl out of its line, and lets others ask. If nobody waits for the name any more, the client
// leaves its place in a line of the service.
func (ls *lines) remove(cl *call) {
	ln := cl.line
	if cl.place == gone {
		return // and its line may have ended, and another of that name have begun
	}
	ls.unlink(cl)
	ls.admit(ln)
	if ln.waiting == 0 {
		cl.client.removeNote(ln.note)
		ln.note = nil
	}
}

// unlink takes cl out of its line.
func (ls *lines) unlink(cl *call) {
	ln := cl.line
	ln.calls--
	delete(ln.tries, cl)
	if cl.place != waits {
		if ln.asking--; ln.asking == 0 && ln.held { // that was told to cl
			ln.held, ln.was = false, time.Now()
		}
	}
	if ln.next == cl {
		ln.next = cl.after
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
	for cl := ln.waiter(); cl != nil && ln.mayAsk(cl); cl = ln.waiter() {
		ln.ask(cl)
		close(cl.ready)
	}
	if ln.first == nil && !ln.alone {
		ln.answered(false) // what is known is of long ago when somebody asks again
		if ln.sharers == 0 {
			delete(ls.byName, ln.name)
		}
	}
}

// answered notes that the service has answered.
func (ln *line) answered(held bool) { ln.held, ln.was, ln.outage = held, time.Time{}, nil }

// grant makes l a lease, with what was granted to cl.
func (ls *lines) grant(cl *call, l *Lease) error {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	err := ls.give(cl, l)
	if err == nil {
		cl.line.visit = l.start
	}
	return err
}

// give makes l the lease of cl, and gives it its place in the line.
func (ls *lines) give(cl *call, l *Lease) error {
	if cl.client.isClosed() {
		return ErrClosed
	}
	ln := cl.line
	if err := l.begin(ln); err != nil {
		return err
	}
	cl.lease = l
	ls.held[l] = struct{}{}
	ln.answered(false)
	ln.note = nil // the grant has removed it
	if l.settings.Shared {
		ln.sharers++
	} else {
		ln.alone = true
	}
	ls.tell(ln)
	ls.remove(cl)
	return nil
}

// release takes l out of its line, once, and lets others ask.
func (ls *lines) release(l *Lease) { _ = ls.passOn(l, nil, nil) }

// passOn is release, but the lock was passed to next, whose lease becomes to. Its error says why that
// is none.
func (ls *lines) passOn(l *Lease, next *call, to *Lease) error {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln, err := l.line, context.Canceled
	if ln == nil {
		return err
	}
	l.line = nil
	delete(ls.held, l)
	if l.settings.Shared {
		ln.sharers--
	} else {
		ln.alone = false
	}
	if next != nil && ln.first == next { // else it has left
		err = ls.give(next, to)
	}
	ls.admit(ln)
	return err
}

// behind returns the call behind l that wants the lock for itself as l did, nil if there is
// none, and whether the line has had the lock for long enough to yield it.
func (ls *lines) behind(l *Lease) (cl *call, yield bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln := l.line
	if l.client.isClosed() || ln == nil || l.settings.Shared || ln.first == nil || ln.first.settings.Shared {
		return nil, false
	}
	return ln.first, time.Since(ln.visit) >= longVisit
}

// refused notes that the service has refused cl, or could not be asked, and returns for how long
// that outage has lasted, and how much longer cl waits for it to end. A call behind it that would
// not wait any longer is sent away.
func (ls *lines) refused(cl *call, err error) (lasted, left time.Duration) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln := cl.line
	cl.attempts, cl.told = cl.attempts+1, false
	switch {
	case errors.Is(err, ErrHeld):
		ln.answered(true)
		ls.tell(ln)
		return 0, 0
	case !errors.Is(err, ErrUnavailable):
		return 0, 0
	}
	now := time.Now()
	if ln.outage == nil {
		ln.away, ln.quiet = now, now
	}
	ln.was, ln.outage = time.Time{}, err
	if ls.tell(ln); !now.Before(ln.quiet) {
		ls.sendAway(ln, now)
	}
	return now.Sub(ln.away), ln.patience(cl).Sub(now)
}

// tell ends the calls of TryLock that wait for an answer in ln, when it is known what is in their way.
func (ls *lines) tell(ln *line) {
	for cl := range ln.tries {
		if err := ln.inTheWay(cl); err != nil {
			ls.end(cl, err)
		}
	}
}

// end ends a call that stands in its line.
func (ls *lines) end(cl *call, err error) {
	ls.unlink(cl)
	cl.away = err
	close(cl.ready)
}

// sendAway ends the calls that stand in ln without any patience left.
func (ls *lines) sendAway(ln *line, now time.Time) {
	ln.quiet = now.Add(clock.Century)
	for one := ln.first; one != nil; {
		after := one.after
		if end := ln.patience(one); one.place == waits && end.After(now) {
			ln.quiet = sooner(ln.quiet, end)
		} else if one.place == waits {
			ls.end(one, ln.outage)
		}
		one = after
	}
}

func sooner(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// again lets cl, which was refused beside the first of its line, wait in its place, and
// returns nil when it may ask once more.
func (ls *lines) again(ctx context.Context, cl *call) error {
	ls.mu.Lock()
	cl.line.asking--
	cl.line.next = nil // cl may be before it
	cl.line.stand(cl)
	ls.admit(cl.line)
	ls.mu.Unlock()
	return ls.await(ctx, cl)
}

// noted keeps the note of a refusal of cl, if it has one, which is to be removed when nobody
// needs it.
func (ls *lines) noted(cl *call, note *driver.Refusal) {
	switch {
	case note == nil || note.Leave == nil:
	case note.AskWithin > 0:
		cl.note = note
	default: // it is the whole client's
		ls.mu.Lock()
		defer ls.mu.Unlock()
		cl.line.note = note
	}
}

// late notes a refusal that came when cl had left: what is the whole client's stays while others wait.
func (ls *lines) late(cl *call, note *driver.Refusal) {
	if note == nil || note.Leave == nil {
		return
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ln := ls.byName[cl.line.name]; note.AskWithin == 0 && ln != nil && ln.waiting > 0 {
		ln.note = note
	} else {
		cl.client.removeNote(note)
	}
}

// inTheWay is the reason why cl does not have the lock: an outage is never reported as
// "held" (R17), and sharers are not in the way of another, unless there are too many. What refuses
// a TryLock for the name alone may be sharers.
func (ln *line) inTheWay(cl *call) error {
	shared := ln.sharers > 0 && (!cl.settings.Shared || ln.full())
	refused := ln.held && (!cl.settings.Shared || ln.first.settings.Shared || ln.first.wait)
	if ln.alone || shared || ln.outage == nil && refused {
		return ErrHeld
	}
	return ln.outage
}

// remembered is how long a line knows what the service has told a call that has left: no longer than
// a call that polls may know it.
const remembered = time.Second

// wasHeld reports whether the service has told a call that has just left that another has the lock.
func (ln *line) wasHeld() bool { return time.Since(ln.was) < remembered }

// count returns the number of leases that are held, and of calls that wait.
func (ls *lines) count() (held, waiting int) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return len(ls.held), ls.waiting
}

// waits returns the names that calls wait for.
func (ls *lines) waits() (all []Wait) {
	now := time.Now()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, ln := range ls.byName {
		for cl := ln.first; cl != nil; cl = cl.after {
			if cl.wait {
				all = append(all, Wait{Name: cl.name, Callers: ln.waiting, Longest: now.Sub(cl.began)})
				break
			}
		}
	}
	return all
}

// close ends the calls in line, when the client is closed: no other comes, nor is a lease granted.
func (ls *lines) close() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, ln := range ls.byName {
		for cl := ln.first; cl != nil; cl = cl.after {
			cl.cancel(errClosing)
		}
	}
}

// leases returns the leases that are held.
func (ls *lines) leases() []*Lease {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return slices.Collect(maps.Keys(ls.held))
}
