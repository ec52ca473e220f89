package locker

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/clock"
)

// lines are the lines of callers of one client, one for each name in use (R13). Only the first in a
// line waits in the service. A caller keeps its place while it asks; then its lease keeps others out
// until it ends.
type lines struct {
	mu      sync.Mutex
	byName  map[string]*line
	held    map[*Lease]struct{} // in all lines
	waiting int                 // calls of Lock in all lines
}

// line is the line for one name. lines.mu guards its fields.
type line struct {
	name string

	alone   bool // a lease holds the name exclusively
	sharers int  // leases that share it

	// All calls in order of arrival, including those that ask the service: the first and, for sharers,
	// others alongside it.
	first, last *call
	next        *call // no call before it waits in place; nil: look from the first
	calls       int   // how many
	asking      int   // how many of them ask the service
	waiting     int   // how many are calls of Lock

	held   bool      // the service has refused a call that still asks
	was    time.Time // when the last refused call left; zero: none since a grant or an outage
	outage error     // why the service could not be asked last time; nil: it answered
	away   time.Time // the beginning of the outage
	quiet  time.Time // no outage timeout of a call in line ends before this

	tries map[*call]struct{} // calls of TryLock that wait for the answer to a call before them (R17)

	passing *call // the first call, while a request that passes the lock to it is in flight

	visit time.Time       // since when this line has passed the lock on
	note  *driver.Refusal // the whole client's entry in the service's queue
}

// longVisit is how long the callers of one line pass the lock on among themselves while other clients
// wait. Between clients it takes a message and a separate request, three times as long.
const longVisit = 2 * time.Millisecond

// maxAsking is how many waiting sharers ask at once: a service that refuses one refuses all of them.
const maxAsking = 64

// place is where a call stands:
//
//	waits ──> asks ────> gone (it has a lease, or has left, also from where it waits)
//	  ↑ └───> beside ──> gone
//	  └─────────┘ (it was refused)
type place uint8

const (
	waits  place = iota // another call is before it in line
	asks                // it is the first and asks the service, or is about to
	beside              // the same, alongside the first: it does not wait in the service
	gone                // it is in no line
)

// mayAsk reports whether cl may ask the service, if every call before it in line already asks.
func (ln *line) mayAsk(cl *call) bool {
	switch {
	case ln.alone:
		return false
	case !cl.settings.Shared: // sharers before it hold the name, or are gone
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

// full reports whether as many calls as possible share the name or ask to. A further one waits here,
// because the service would refuse it.
func (ln *line) full() bool { return ln.sharers+ln.asking >= MaxSharers }

// enter returns nil when cl may ask the service. If the call must not wait, or its time or ctx ends
// first, the error says what was in the way.
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
	if !at && !cl.wait {
		if err := ln.inTheWay(cl); err != nil { // else it waits for the answer to a call before it
			ls.mu.Unlock()
			return err
		}
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
	ln.stand(cl)
	ls.mu.Unlock()
	return ls.await(ctx, cl)
}

// stand makes cl wait in its place.
func (ln *line) stand(cl *call) {
	cl.place, cl.ready = waits, make(chan struct{})
	if cl.wait {
		ln.quiet = sooner(ln.quiet, ln.outageEnds(cl))
		return
	}
	ln.try(cl)
}

// try makes cl wait for the answer to a call before it.
func (ln *line) try(cl *call) {
	if ln.tries == nil {
		ln.tries = make(map[*call]struct{})
	}
	ln.tries[cl] = struct{}{}
}

// outageEnds is when cl gives up in an outage. It counts from the beginning of the outage or of the
// call, whichever is later, so that a hundred calls in line do not wait a hundred times as long.
func (ln *line) outageEnds(cl *call) time.Time {
	return later(ln.away, cl.began).Add(cmp.Or(cl.client.opts.OutageTimeout, cl.settings.TTL))
}

// ask lets cl ask.
func (ln *line) ask(cl *call) {
	if cl.place = asks; ln.first != cl {
		cl.place = beside
	}
	ln.asking++
	delete(ln.tries, cl)
}

// waiter returns the first call that does not ask, or nil. Thousands of sharers may be asking: next
// avoids a scan of them, under the mutex of all lines, each time one ends.
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

// await returns nil when the waiting cl may ask the service.
func (ls *lines) await(ctx context.Context, cl *call) error {
	select {
	case <-cl.ready:
		return cl.away // final
	case <-ctx.Done():
	}
	ls.mu.Lock()
	if cl.lease != nil {
		ls.mu.Unlock()
		<-cl.ready // the lock was passed to it
		return nil
	}
	defer ls.mu.Unlock()
	state := cl.line.inTheWay(cl)
	if state == nil && cl.line.wasHeld() {
		state = ErrHeld
	}
	ls.remove(cl)
	return cl.ended(ctx, cmp.Or(state, cl.state))
}

// remove takes cl out of its line, and lets others ask. If no call waits for the name any more, the
// client leaves the service's queue.
func (ls *lines) remove(cl *call) {
	if cl.place == gone {
		return // its line may have ended, and a new one for that name begun
	}
	ls.unlink(cl)
	ls.left(cl)
}

// left lets others ask when cl has left its line, or no longer waits.
func (ls *lines) left(cl *call) {
	ln := cl.line
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
		if ln.asking--; ln.asking == 0 && ln.held { // only cl was told so
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

// admit lets every call ask that now may. An empty line ends.
func (ls *lines) admit(ln *line) {
	for cl := ln.waiter(); cl != nil && ln.mayAsk(cl); cl = ln.waiter() {
		ln.ask(cl)
		close(cl.ready)
	}
	if ln.first == nil && !ln.alone {
		ln.answered(false) // it will be outdated when the next call asks
		if ln.sharers == 0 {
			delete(ls.byName, ln.name)
		}
	}
}

// answered records that the service has answered.
func (ln *line) answered(held bool) { ln.held, ln.was, ln.outage = held, time.Time{}, nil }

// grant makes l a lease from what was granted to cl.
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

// release takes l out of its line, if it is still there, and lets others ask.
func (ls *lines) release(l *Lease) { _ = ls.passOn(l, nil, nil) }

// passOn is release after the lock was passed to next, whose lease becomes to. Its error says why to is
// no lease.
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
	ln.passing = nil // a late call that was given nothing may now ask once
	ls.admit(ln)
	return err
}

// timeUp is called when the MaxWait of cl has passed. The first attempt continues. A later attempt, and
// a wait known to be for another holder, end. A call that stands in line continues as a TryLock.
func (ls *lines) timeUp(cl *call) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	switch cl.late = true; {
	case cl.line == nil: // it has not entered a line yet
		cl.wait = false
	case cl.place == gone || cl.place == waits && cl.line.passing == cl: // a request for it is in flight
	case cl.place == waits:
		ls.tries(cl)
	case cl.attempts > 0 || cl.told:
		cl.cancel(maxWaitError{cl})
	}
}

// tries turns cl, which stands in its line, into a TryLock. It continues only while it is unknown what
// is in its way.
func (ls *lines) tries(cl *call) {
	ln := cl.line
	cl.wait = false
	ls.waiting--
	ln.waiting--
	if err := cmp.Or(ln.inTheWay(cl), cl.state); err != nil {
		ls.end(cl, err)
	} else {
		ln.try(cl)
	}
	ls.left(cl)
}

// behind returns the next call in line if it and l are both exclusive, or nil, and whether the line has
// had the lock for long enough to yield it.
func (ls *lines) behind(l *Lease) (cl *call, yield bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln := l.line
	if l.client.isClosed() || ln == nil || l.settings.Shared || ln.first == nil || ln.first.settings.Shared {
		return nil, false
	}
	ln.passing = ln.first
	return ln.first, time.Since(ln.visit) >= longVisit
}

// refused records that the service refused cl or could not be asked. It returns how long that outage
// has lasted, and how much longer cl waits for its end. Calls behind cl whose outage timeout has passed
// are sent away.
func (ls *lines) refused(cl *call, err error) (lasted, left time.Duration) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln := cl.line
	cl.attempts, cl.told = cl.attempts+1, false
	if cl.late {
		cl.cancel(maxWaitError{cl}) // that was its last answer
	}
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
	return now.Sub(ln.away), ln.outageEnds(cl).Sub(now)
}

// tell ends the calls of TryLock that wait for an answer in ln, once it is known what is in their way.
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

// sendAway ends the calls in ln whose outage timeout has passed.
func (ls *lines) sendAway(ln *line, now time.Time) {
	ln.quiet = now.Add(clock.Century)
	for one := ln.first; one != nil; {
		after := one.after
		if end := ln.outageEnds(one); one.place == waits && end.After(now) {
			ln.quiet = sooner(ln.quiet, end)
		} else if one.place == waits {
			ls.end(one, ln.outage)
		}
		one = after
	}
}

// again makes cl, which was refused alongside the first of its line, wait in its place. It returns nil
// when cl may ask again.
func (ls *lines) again(ctx context.Context, cl *call) error {
	ls.mu.Lock()
	cl.line.asking--
	cl.line.next = nil // cl may be before it
	cl.line.stand(cl)
	ls.admit(cl.line)
	ls.mu.Unlock()
	return ls.await(ctx, cl)
}

// noted keeps the note of a refusal of cl, if it has one, to remove it when it is no longer needed. cl
// may have left before the refusal came: a note of the whole client then stays while others wait.
func (ls *lines) noted(cl *call, note *driver.Refusal) {
	if note == nil || note.Leave == nil {
		return
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	switch ln := ls.byName[cl.line.name]; {
	case note.AskWithin > 0 && cl.place != gone:
		cl.note = note
	case note.AskWithin == 0 && ln != nil && ln.waiting > 0:
		ln.note = note
	default:
		cl.client.removeNote(note)
	}
}

// inTheWay is the reason why cl does not have the lock: an outage is never reported as "held" (R17),
// and sharers do not block another sharer unless there are too many. An exclusive TryLock may have been
// refused because of sharers.
func (ln *line) inTheWay(cl *call) error {
	shared := ln.sharers > 0 && (!cl.settings.Shared || ln.full())
	refused := ln.held && (!cl.settings.Shared || ln.first.settings.Shared || ln.first.wait)
	if ln.alone || shared || ln.outage == nil && refused {
		return ErrHeld
	}
	return ln.outage
}

// remembered is how long a line remembers a refusal of a call that has left: no longer than a polling
// call may.
const remembered = time.Second

// wasHeld reports whether the service has just refused a call that has left since.
func (ln *line) wasHeld() bool { return time.Since(ln.was) < remembered }

// count returns the number of held leases, and of waiting calls.
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

// close ends the calls in line when the client is closed: no other call enters, and no lease is
// granted.
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
