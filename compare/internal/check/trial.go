package check

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/golockers/locker/compare/internal/history"
)

// trial is a trial that is under way: its events, and what [trial.read] makes of them when it has ended.
type trial struct {
	id      string
	service *history.Service
	fault   *history.Fault // nil: none
	ttl     int64
	events  []history.Event

	stalls   []span           // of holders, and of the parent
	begun    int64            // of the fault, 0 before
	shown    int64            // its evidence, 0 before
	ended    int64            // of the fault, 0 before
	servers  int              // that the fault takes away
	served   int64            // the first grant to a caller that asked after the evidence
	worked   int64            // the first grant to a caller that asked after the end of the fault
	stopped  map[string]span  // processes; to is 0 while it lasts
	dead     map[string]int64 // processes, since when
	locks    []*lock
	callers  []*caller
	calls    []*call
	findings map[string]*finding
}

// lock is one name.
type lock struct {
	name    string
	askers  int     // callers that have asked
	holds   []*hold // in the order in which they were granted
	told    []int64 // when holders were told, since the last grant
	died    *hold   // of a killed process, since the last grant
	unclear bool    // an attempt had an outcome that is not known, or a lease was lost
}

// caller is one goroutine of a child, with one name.
type caller struct {
	lock         *lock
	process      string
	asks, leaves *call // the last ones
	hold         *hold
}

// call is a Lock or an Unlock.
type call struct {
	began, answer *history.Event // no answer: nil
}

// hold is a lease, and the time in which its holder believes to hold.
type hold struct {
	by           *caller
	ask, granted *history.Event
	until        int64 // the end of the belief
	renewed      bool
	over         bool  // told, unlocked or asked again; else it believes, perhaps past the deadline
	passed       int64 // when the next one was granted; 0 before
}

// read goes through the events. What only the time of an event tells is judged on the way.
func (t *trial) read() {
	t.stopped, t.dead, t.findings = map[string]span{}, map[string]int64{}, map[string]*finding{}
	type id struct {
		process string
		caller  int
		name    string
	}
	callers, locks := map[id]*caller{}, map[string]*lock{}
	for i := range t.events {
		e := &t.events[i]
		switch e.Kind {
		case history.FaultBegin:
			t.begun, t.ended = cmp.Or(t.begun, e.At), 0
			t.servers = max(t.servers, int(e.Value))
			switch {
			case t.fault == nil || e.Process == "":
			case t.fault.Class == history.Stopped:
				t.stopped[e.Process] = span{from: e.At}
			case t.fault.Class == history.Killed:
				t.dies(e)
			}
		case history.Evidence:
			t.shown = cmp.Or(t.shown, e.At)
		case history.FaultEnd:
			t.ended = e.At
			if s, ok := t.stopped[e.Process]; ok && s.to == 0 {
				t.stopped[e.Process] = span{s.from, e.At}
			}
		case history.Stall:
			// Whichever process stalled, the machine had too little for all; but for a process that was
			// stopped.
			if s, ok := t.stopped[e.Process]; !ok || s.to != 0 && s.to < e.At-e.Value {
				t.stalls = join(t.stalls, e)
			}
		case history.TrialBegin, history.TrialEnd:
		default:
			if t.dead[e.Process] != 0 {
				continue // between the announcement of the kill and the kill
			}
			by := callers[id{e.Process, e.Caller, e.Name}]
			if by == nil {
				l := locks[e.Name]
				if l == nil {
					l = &lock{name: e.Name}
					locks[e.Name] = l
					t.locks = append(t.locks, l)
				}
				by = &caller{lock: l, process: e.Process}
				callers[id{e.Process, e.Caller, e.Name}] = by
				t.callers = append(t.callers, by)
			}
			t.event(by, by.lock, e)
		}
	}
}

// dies ends all that a process does.
func (t *trial) dies(e *history.Event) {
	t.dead[e.Process] = e.At
	for _, by := range t.callers {
		if by.process == e.Process && by.hold != nil {
			by.lock.died = by.hold
			by.ends(e)
		}
	}
}

func (t *trial) event(by *caller, l *lock, e *history.Event) {
	h := by.hold
	switch e.Kind {
	case history.Ask:
		by.ends(e) // it does not look at its old lease any more
		if by.asks == nil {
			l.askers++
		}
		by.asks = t.begins(e)
	case history.Granted, history.Refused, history.GaveUp:
		if c := by.asks; c != nil && c.answer == nil {
			t.answers(c, e)
			if e.Kind == history.Granted {
				t.granted(by, l, e)
			}
		}
		l.unclear = l.unclear || e.Kind == history.GaveUp
	case history.Renewed:
		if h != nil && deadline(e) > e.At {
			// A lease that goes on after its end goes on as if it had not ended: another may have held meanwhile.
			h.renewed, h.until = true, deadline(e)
		}
	case history.ToldLost:
		if h != nil {
			t.toldLost(h, l, e)
			by.ends(e)
		}
	case history.UnlockBegin:
		by.leaves = t.begins(e)
		if h != nil {
			if h.passed != 0 && e.At-h.passed > int64(toldGrace) {
				t.told(h, e.At, "still did not know")
			}
			by.ends(e)
		}
	case history.Unlocked:
		if c := by.leaves; c != nil && c.answer == nil {
			t.answers(c, e)
		}
	}
}

func (t *trial) begins(e *history.Event) *call {
	c := &call{began: e}
	t.calls = append(t.calls, c)
	return c
}

func (t *trial) answers(c *call, e *history.Event) {
	c.answer = e
	t.finding(Hangs).applies = true
}

// deadline is the end of a lease, as an event tells it.
func deadline(e *history.Event) int64 {
	if e.Until == 0 {
		return math.MaxInt64
	}
	return e.Until
}

func (t *trial) granted(by *caller, l *lock, e *history.Event) {
	if deadline(e) <= e.At {
		return // over before it was looked at: nobody believed anything
	}
	h := &hold{by: by, ask: by.asks.began, granted: e, until: deadline(e)}
	for _, o := range l.holds {
		if !o.over {
			o.passed = cmp.Or(o.passed, e.At)
		}
	}
	f := t.finding(Told)
	for _, told := range l.told {
		f.held(e.At-told, f.best == 0 || e.At-told < f.best)
	}
	l.told = nil
	if (len(l.holds) > 0 || l.unclear && l.askers > 1) && h.ask.Value != 1 {
		t.blocked(l, h.ask, e.At, false)
	}
	if t.shown != 0 && h.ask.At > t.shown {
		t.served = cmp.Or(t.served, e.At)
	}
	if t.ended != 0 && h.ask.At > t.ended {
		t.worked = cmp.Or(t.worked, e.At)
	}
	if t.lasts() {
		t.finding(FalseLoss).applies = true
	}
	by.hold = h
	l.holds = append(l.holds, h)
}

// ends ends the belief of a caller.
func (by *caller) ends(e *history.Event) {
	if h := by.hold; h != nil {
		by.hold, h.over, h.until = nil, true, min(h.until, e.At)
	}
}

// lasts reports whether a lease that is lost is something to tell: nothing was done to its holder.
func (t *trial) lasts() bool {
	return t.fault == nil || !slices.Contains([]history.Class{history.Client, history.Stopped, history.Killed},
		t.fault.Class)
}

// absent reports whether the process was stopped or dead for some of the time between from and to:
// nobody could tell it anything.
func (t *trial) absent(process string, from, to int64) bool {
	if s, ok := t.stopped[process]; ok && s.from <= to && (s.to == 0 || s.to >= from-int64(toldGrace)) {
		return true
	}
	at, ok := t.dead[process]
	return ok && at <= to
}

// allowed is how long after the end of a holder the service may keep its lock.
func (t *trial) allowed() time.Duration {
	return time.Duration(t.ttl) +
		time.Duration(t.service.Declared.DeadHolderSlackMS*float64(time.Millisecond)) + freeGrace
}

func who(e *history.Event) string { return fmt.Sprintf("%s/%d", e.Process, e.Caller) }
