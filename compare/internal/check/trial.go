package check

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/golockers/locker/compare/internal/history"
)

// trial is what is remembered of a trial that is under way.
type trial struct {
	c        *checker
	id       string
	service  *history.Service
	fault    *history.Fault // nil: none
	ttl      int64
	begun    int64            // of the fault, 0 before
	shown    int64            // its evidence, 0 before
	ended    int64            // of the fault, 0 before
	slowest  int64            // call that had nobody to wait for
	servers  int              // that the fault takes away
	served   int64            // the first grant to one that asked after the evidence
	worked   int64            // the first grant to one that asked after the end of the fault
	again    bool             // a caller has asked twice for one name
	stalls   []span           // of holders, and of the parent
	waits    []span           // the same, and those of servers
	stops    map[string]span  // of processes; to is 0 while it lasts
	dead     map[string]int64 // processes, since when
	locks    map[string]*lock
	callers  map[callerID]*caller
	lockList []*lock // as they came: what is judged does not depend on a map's order
	callList []*caller
	recent   []history.Event // a ring
	oldest   int
	findings map[string]*finding
}

type span struct{ from, to int64 }

type callerID struct {
	process string
	caller  int
	name    string
}

// lock is one name.
type lock struct {
	name      string
	grants    int // beliefs so far
	askers    map[callerID]bool
	believing []*belief // not told, not unlocked, not asked again; perhaps past Until
	waiting   []*caller
	endings   []int64   // when holders were told, since the last grant
	lastEnd   int64     // when the last belief ended that has
	died      []*belief // of killed processes, since the last grant
	tokens    uint64    // the greatest granted
	tokenOver uint64    // the greatest of those whose belief is over
	aloneOver uint64    // the same, of those who did not share
	unclear   bool      // an attempt had an outcome that is not known, or a lease was lost
	landed    int       // the latest holder whose act has landed; -1: none
	seen      uint64    // the greatest token that has landed
}

// caller is one goroutine of a child, with one name.
type caller struct {
	id       callerID
	ask      history.Event // the last one
	asking   bool
	gaveUp   int64  // the last time it got an error
	tokens   uint64 // the greatest granted when it asked
	belief   *belief
	unlock   history.Event // the last one
	unlockIn bool          // Unlock has not returned
	passed   []*belief     // who got in before, and had begun to wait later
	acts     map[uint64]int
}

// belief is the time in which a holder believes to hold.
type belief struct {
	by      *caller
	n       int // of the lock's grants
	ask     history.Event
	granted history.Event
	renewed history.Event
	until   int64 // as known now; math.MaxInt64: no deadline
	over    int64 // told, unlocked, killed; 0 before
	passed  int64 // when the next one was granted; 0 before
}

func (b *belief) end() int64 {
	if b.over != 0 {
		return min(b.over, b.until)
	}
	return b.until
}

// together reports whether two may believe at once.
func (b *belief) together(o *belief) bool { return b.ask.Shared && o.ask.Shared }

func newTrial(c *checker, e *history.Event) *trial {
	t := &trial{
		c: c, id: e.Trial, service: c.services[e.Service], ttl: e.Value,
		stops: make(map[string]span), dead: make(map[string]int64),
		locks: make(map[string]*lock), callers: make(map[callerID]*caller), findings: make(map[string]*finding),
	}
	if e.Fault != "" {
		if t.fault = c.faults[e.Fault]; t.fault == nil {
			t.fault = &history.Fault{ID: e.Fault, Class: history.Client}
		}
	}
	t.remember(e)
	return t
}

func (t *trial) event(e *history.Event) {
	t.remember(e)
	switch e.Kind {
	case history.FaultBegin:
		t.faultBegins(e)
		return
	case history.Evidence:
		t.shown = cmp.Or(t.shown, e.At)
		return
	case history.FaultEnd:
		t.ended = e.At
		if s, ok := t.stops[e.Process]; ok && s.to == 0 {
			t.stops[e.Process] = span{s.from, e.At}
			t.c.stopped[e.Process] = t.stops[e.Process]
		}
		return
	}
	if t.dead[e.Process] != 0 && e.Kind != history.Landed {
		return // between the announcement of the kill and the kill: nobody acts on it any more
	}
	id := callerID{e.Process, e.Caller, e.Name}
	by := t.callers[id]
	if by == nil {
		by = &caller{id: id, acts: make(map[uint64]int)}
		t.callers[id] = by
		t.callList = append(t.callList, by)
	}
	l := t.locks[e.Name]
	if l == nil {
		l = &lock{name: e.Name, askers: make(map[callerID]bool), landed: -1}
		t.locks[e.Name] = l
		t.lockList = append(t.lockList, l)
	}
	switch e.Kind {
	case history.Ask:
		t.asks(l, by, e)
	case history.Granted:
		t.granted(l, by, e)
	case history.Refused, history.GaveUp:
		t.answered(l, by, e)
		if e.Kind == history.GaveUp {
			l.unclear = true
			by.gaveUp = e.At
			if by.ask.Until != 0 && e.At < by.ask.Until {
				by.passed = nil
			}
		}
	case history.Renewed:
		t.renewed(l, by, e)
	case history.Acted:
		if by.belief != nil {
			if len(by.acts) > 1000 {
				clear(by.acts) // they have landed, or never will
			}
			by.acts[e.Seq] = by.belief.n
		}
	case history.Landed:
		t.landed(l, by, e)
	case history.ToldLost:
		t.toldLost(l, by, e)
	case history.UnlockBegin:
		t.unlocks(l, by, e)
	case history.Unlocked:
		t.unlocked(by, e)
	}
}

func (t *trial) faultBegins(e *history.Event) {
	t.begun = cmp.Or(t.begun, e.At)
	t.ended = 0
	t.servers = max(t.servers, int(e.Value))
	if t.fault == nil || e.Process == "" {
		return
	}
	switch t.fault.Class {
	case history.Stopped:
		t.stops[e.Process] = span{from: e.At}
		t.c.stopped[e.Process] = t.stops[e.Process]
	case history.Killed:
		t.dead[e.Process] = e.At
		for _, l := range t.lockList {
			for _, b := range slices.Clone(l.believing) {
				if b.by.id.process == e.Process {
					l.ends(b, e)
					l.died = append(l.died, b)
				}
			}
			l.waiting = slices.DeleteFunc(l.waiting, func(w *caller) bool { return w.id.process == e.Process })
		}
	}
}

func (t *trial) asks(l *lock, by *caller, e *history.Event) {
	if by.belief != nil { // it does not look at its old lease any more
		l.ends(by.belief, e)
	}
	l.askers[by.id] = true
	t.again = t.again || by.ask.At != 0
	if !by.asking {
		l.waiting = append(l.waiting, by)
	}
	by.ask, by.asking = *e, true
	by.tokens = l.tokens
}

// answered is for every answer to an ask: it looks whether it was late.
func (t *trial) answered(l *lock, by *caller, e *history.Event) {
	if !by.asking {
		return
	}
	by.asking = false
	l.waiting = slices.DeleteFunc(l.waiting, func(w *caller) bool { return w == by })
	t.returned(by.ask, e.At, "Lock")
	t.finding(Hangs).applies = true
}

// returned looks whether a call came back in time.
func (t *trial) returned(call history.Event, at int64, what string) {
	if call.Until == 0 {
		return
	}
	if late := at - call.Until; !t.absent(call.Process, call.Until, at) {
		t.late(Hangs, call.Name, span{call.Until, at}, hangGrace,
			fmt.Sprintf("%s of %s returned %s after its context had ended",
				what, who(call), history.Duration(late)), call)
	}
}

func (t *trial) granted(l *lock, by *caller, e *history.Event) {
	asked := by.ask
	alone := len(l.waiting) == 1 && len(l.believing) == 0
	if by.asking {
		t.answered(l, by, e)
	}
	t.overtaken(by)
	b := &belief{by: by, n: l.grants, ask: asked, granted: *e, until: e.Until}
	for _, a := range l.believing {
		if a.together(b) && a.n == l.grants-1 {
			b.n = a.n // nobody is later than those it shares with
		}
	}
	if e.Until == 0 {
		b.until = math.MaxInt64
	}
	if b.until <= e.At {
		return // over before it was looked at: nobody believed anything
	}
	by.belief = b
	l.grants = b.n + 1
	// What happened to holders before, as it is now known.
	t.compareTokens(l, by, b)
	t.overlaps(l, b, e.At)
	t.margins(l, b)
	t.overtakes(l, b)
	t.times(l, b, alone)
	if t.shown != 0 && asked.At > t.shown {
		t.served = cmp.Or(t.served, e.At)
	}
	if t.ended != 0 && asked.At > t.ended {
		t.worked = cmp.Or(t.worked, e.At)
	}
	for _, a := range l.believing {
		if !a.together(b) {
			a.passed = cmp.Or(a.passed, e.At)
		}
	}
	l.believing = append(l.believing, b)
	l.tokens = max(l.tokens, e.Token)
	if t.lasts() {
		t.finding(FalseLoss).applies = true
	}
}

func (t *trial) renewed(l *lock, by *caller, e *history.Event) {
	b := by.belief
	if b == nil || e.Until != 0 && e.Until <= e.At {
		return
	}
	lapsed := b.until < e.At
	b.renewed = *e
	b.until = e.Until
	if e.Until == 0 {
		b.until = math.MaxInt64
	}
	if lapsed {
		t.overlaps(l, b, e.At)
		if l.grants-1 > b.n {
			t.broken(Exclusion, l.name, span{e.At, e.At},
				fmt.Sprintf("the lease of %s went on after it had run out and another had held",
					who(b.granted)), b.ask, b.granted)
		}
	}
}

func (t *trial) toldLost(l *lock, by *caller, e *history.Event) {
	b := by.belief
	if b == nil {
		return
	}
	l.unclear = true
	t.told(l, b, e.At, "was told")
	if b.passed == 0 && !t.absent(e.Process, b.until, e.At) {
		l.endings = append(l.endings, e.At)
	}
	untouched := t.lasts() || t.begun == 0
	ranOut := b.renewed.Kind == "" && b.until <= e.At+int64(toldGrace) // it was not to be renewed
	if untouched && !ranOut {
		// A machine that stood still for a quarter of the TTL, for a server alone too, explains it.
		t.late(FalseLoss, l.name, span{e.At - t.ttl, e.At}, time.Duration(t.ttl*3/4),
			fmt.Sprintf("%s lost its lease: %s", who(*e), cmp.Or(e.Error, "no reason given")), b.ask, b.granted)
	}
	l.ends(b, e)
}

// lasts reports whether a lease that is lost is something to tell: nothing was done to its holder.
func (t *trial) lasts() bool {
	return t.fault == nil || !slices.Contains([]history.Class{history.Client, history.Stopped,
		history.Killed}, t.fault.Class)
}

func (t *trial) unlocks(l *lock, by *caller, e *history.Event) {
	by.unlock, by.unlockIn = *e, true
	b := by.belief
	if b == nil {
		return
	}
	if b.passed != 0 && e.At-b.passed > int64(toldGrace) {
		t.told(l, b, e.At, "still did not know")
	}
	l.ends(b, e)
}

func (t *trial) unlocked(by *caller, e *history.Event) {
	if !by.unlockIn {
		return
	}
	by.unlockIn = false
	t.finding(Hangs).applies = true
	t.returned(by.unlock, e.At, "Unlock")
	if t.fault == nil && e.Error == "" {
		t.slowest = max(t.slowest, e.At-by.unlock.At)
	}
}

// ends takes b from those who believe.
func (l *lock) ends(b *belief, e *history.Event) {
	b.over = e.At
	b.by.belief = nil
	l.believing = slices.DeleteFunc(l.believing, func(o *belief) bool { return o == b })
	l.lastEnd = max(l.lastEnd, min(e.At, b.until))
	l.tokenOver = max(l.tokenOver, b.granted.Token)
	if !b.ask.Shared {
		l.aloneOver = max(l.aloneOver, b.granted.Token)
	}
}

func (t *trial) stall(e *history.Event) {
	t.remember(e)
	t.stalls, t.waits = join(t.stalls, e), join(t.waits, e)
}

// join adds the time that e tells of to those that were told before. They come in the order of their ends.
func join(spans []span, e *history.Event) []span {
	s := span{e.At - e.Value, e.At}
	for n := len(spans); n > 0 && s.from <= spans[n-1].to; n-- {
		s.from = min(s.from, spans[n-1].from)
		spans = spans[:n-1]
	}
	return append(spans, s)
}

// absent reports whether the process was stopped or dead for some of the time
// between from and to: nobody could tell it anything.
func (t *trial) absent(process string, from, to int64) bool {
	if s, ok := t.stops[process]; ok && s.from <= to && (s.to == 0 || s.to >= from-int64(toldGrace)) {
		return true
	}
	at, ok := t.dead[process]
	return ok && at <= to
}

// within is how much of the time between from and to is in spans.
func within(spans []span, from, to int64) (sum int64) {
	for _, s := range spans {
		sum += max(0, min(s.to, to)-max(s.from, from))
	}
	return sum
}

// allowed is how long after the end of a holder the service may keep its lock.
func (t *trial) allowed() time.Duration {
	return time.Duration(t.ttl) +
		time.Duration(t.service.Declared.DeadHolderSlackMS*float64(time.Millisecond)) + freeGrace
}

func who(e history.Event) string { return fmt.Sprintf("%s/%d", e.Process, e.Caller) }
