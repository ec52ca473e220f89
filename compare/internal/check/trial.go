package check

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/golockers/locker/compare/internal/history"
)

// trial is a trial in progress: its events, and what [trial.read] derives from them when it has ended.
type trial struct {
	id      string
	service *history.Service
	fault   string // "": none
	class   history.Class
	ttl     int64
	events  []history.Event

	begun    int64           // of the fault, 0 before
	shown    int64           // its evidence, 0 before
	ended    int64           // of the fault, 0 before
	servers  int             // that the fault takes away
	served   int64           // the first grant to a caller that asked after the evidence
	worked   int64           // the first grant to a caller that asked after the end of the fault
	away     map[string]span // processes that were stopped or killed; to is 0 while it lasts
	locks    []*lock
	attempts []*attempt
	findings map[string]*finding
}

// lock is one name.
type lock struct {
	name    string
	askers  int        // callers that have asked
	holds   []*attempt // the granted ones, in order
	told    []int64    // when holders were told, since the last grant
	unclear bool       // an attempt had an unknown outcome, or a lease was lost
}

// attempt is a Lock, and its lease.
type attempt struct {
	lock        *lock
	ask, answer *history.Event // no answer: nil
	until       int64          // the end of the holder's belief
	believes    bool           // it has not been told, unlocked or asked again; perhaps past its deadline
	passed      int64          // when the next one was granted; 0 before
}

// read goes through the events. What depends on a single event's time is judged on the way.
func (t *trial) read() {
	t.away, t.findings = map[string]span{}, map[string]*finding{}
	type id struct {
		process string
		caller  int
		name    string
	}
	latest, locks := map[id]*attempt{}, map[string]*lock{}
	for i := range t.events {
		e := &t.events[i]
		away, is := t.away[e.Process]
		switch e.Kind {
		case history.FaultBegin:
			t.begun, t.ended = cmp.Or(t.begun, e.At), 0
			t.servers = max(t.servers, int(e.Value))
			if e.Process != "" && (t.class == history.Stopped || t.class == history.Killed) {
				t.away[e.Process] = span{from: e.At}
			}
			for _, a := range t.attempts {
				if t.class == history.Killed && a.ask.Process == e.Process {
					a.ends(e)
				}
			}
		case history.Evidence:
			t.shown = cmp.Or(t.shown, e.At)
		case history.FaultEnd:
			t.ended = e.At
			if is && away.to == 0 && t.class == history.Stopped {
				t.away[e.Process] = span{away.from, e.At}
			}
		case history.Stall, history.Slow, history.TrialBegin, history.TrialEnd:
		default:
			if is && t.class == history.Killed {
				continue // between the announcement of the kill and the kill
			}
			by := id{e.Process, e.Caller, e.Name}
			a := latest[by]
			if e.Kind == history.Ask {
				l := locks[e.Name]
				if l == nil {
					l = &lock{name: e.Name}
					locks[e.Name], t.locks = l, append(t.locks, l)
				}
				if a == nil {
					l.askers++
				} else {
					a.ends(e) // it no longer watches its old lease
				}
				a = &attempt{lock: l, ask: e}
				latest[by], t.attempts = a, append(t.attempts, a)
			} else if a != nil {
				t.event(a, e)
			}
		}
	}
}

func (t *trial) event(a *attempt, e *history.Event) {
	switch e.Kind {
	case history.Granted, history.Refused, history.GaveUp:
		if a.answer == nil {
			a.answer = e
			if e.Kind == history.Granted {
				t.granted(a, e)
			}
		}
		a.lock.unclear = a.lock.unclear || e.Kind == history.GaveUp
	case history.Renewed:
		if a.believes && deadline(e) > e.At {
			// A lease continued after its end counts as if it had not ended: another may have held the lock meanwhile.
			a.until = deadline(e)
		}
	case history.ToldLost:
		if a.believes {
			t.toldLost(a, e)
			a.ends(e)
		}
	case history.UnlockBegin:
		if a.believes && a.passed != 0 && e.At-a.passed > int64(toldGrace) {
			t.told(a, e.At, "still did not know")
		}
		a.ends(e)
	}
}

// deadline is the end of a lease, according to an event.
func deadline(e *history.Event) int64 {
	if e.Until == 0 {
		return math.MaxInt64
	}
	return e.Until
}

func (t *trial) granted(a *attempt, e *history.Event) {
	l := a.lock
	if a.until = deadline(e); a.until <= e.At { // it ended before anybody saw it: there was no belief
		a.until, l.holds = e.At, append(l.holds, a)
		return
	}
	for _, o := range l.holds {
		if o.believes {
			o.passed = cmp.Or(o.passed, e.At)
		}
	}
	f := t.finding(Told)
	for _, told := range l.told {
		f.held(e.At-told, f.best == 0 || e.At-told < f.best)
	}
	l.told = nil
	for _, w := range t.attempts {
		if w == a || w.lock == l && w.answer == nil {
			t.blocked(w, e.At)
		}
	}
	if t.shown != 0 && a.ask.At > t.shown {
		t.served = cmp.Or(t.served, e.At)
	}
	if t.ended != 0 && a.ask.At > t.ended {
		t.worked = cmp.Or(t.worked, e.At)
	}
	if t.lasts() {
		t.finding(Kept).applies = true
	}
	a.believes = true
	l.holds = append(l.holds, a)
}

// ends ends the belief of a holder.
func (a *attempt) ends(e *history.Event) {
	if a.believes {
		a.believes, a.until = false, min(a.until, e.At)
	}
}

// lasts reports whether a lost lease counts: nothing was done to its holder.
func (t *trial) lasts() bool {
	return !slices.Contains([]history.Class{history.Client, history.Stopped, history.Killed}, t.class)
}

// absent reports whether the process was stopped or dead for some of the time between from and to, and
// could not learn anything.
func (t *trial) absent(process string, from, to int64) bool {
	s, is := t.away[process]
	return is && s.from <= to && (s.to == 0 || s.to >= from-int64(toldGrace))
}

// Declarations of services whose dead holders are gone with their process, or are noticed only by
// watching clients.
const (
	atOnce  = "at once"
	watched = "watched for the TTL"
)

// allowed is how long the service may keep a lock after its holder's end.
func (t *trial) allowed() time.Duration {
	limit := freeGrace + time.Duration(t.service.Declared.DeadHolderSlackMS*float64(time.Millisecond))
	if t.class != history.Killed || t.service.Declared.DeadHolder != atOnce {
		limit += time.Duration(t.ttl)
	}
	if t.service.Declared.DeadHolder == watched {
		limit += time.Duration(t.ttl) // from when a client began to watch
	}
	return limit
}

func who(e *history.Event) string { return fmt.Sprintf("%s/%d", e.Process, e.Caller) }
