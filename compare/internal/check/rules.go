package check

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/golockers/locker/compare/internal/history"
	"github.com/golockers/locker/internal/holds"
)

// finding is what one rule found in one trial.
type finding struct {
	applies bool // the trial could have broken it
	breaks  []breach
	best    int64 // the figure of a trial that held: a margin, a time
}

// breach is one breach of a rule.
type breach struct {
	span
	limit time.Duration // it counts if it lasted longer, without excused time; or always
	says  string
	name  string // of the lock

	// What excuses it, besides any process that stalled: any delay of this process or the parent, and
	// answers due to it for requests from then on (0: none).
	process string
	asked   int64
}

func (t *trial) finding(rule string) *finding {
	f := t.findings[rule]
	if f == nil {
		f = new(finding)
		t.findings[rule] = f
	}
	return f
}

// held records a figure, if it is the one to report.
func (f *finding) held(figure int64, tell bool) {
	if f.applies = true; tell {
		f.best = figure
	}
}

const always = -1 // the limit of what no slow machine excuses

// breaks records that something took longer than limit or, with always, that it happened.
func (t *trial) breaks(rule string, b breach) {
	f := t.finding(rule)
	f.applies = true
	if b.to-b.from > int64(b.limit) {
		f.breaks = append(f.breaks, b)
	}
}

// counted is the worst breach that counts, now that all stalls are known; if none does, excuse is that
// of the last.
func (t *trial) counted(f *finding) (worst *breach, excuse string) {
	for i := range f.breaks {
		b := &f.breaks[i]
		size, excused := b.to-b.from, int64(0)
		if b.limit >= 0 {
			excused, excuse = t.excuse(b)
		}
		if size-excused > int64(b.limit) && (worst == nil || size > worst.to-worst.from) {
			worst = b
		}
	}
	return worst, excuse
}

// stood is the stall of any process that shows an overloaded machine. A shorter stall excuses only its
// own process.
const stood = 50 * time.Millisecond

// excuse is how much of a breach's time the machine explains, or servers whose answer was due: they may
// not have got a processor either.
func (t *trial) excuse(b *breach) (ns int64, why string) {
	var stalled, due, all []span
	unseen := ""
	for i := range t.events {
		e := &t.events[i]
		its := b.process != "" && (e.Process == b.process || e.Process == "")
		switch {
		case e.Kind == history.Stall && (its || e.Value > int64(stood)):
			stalled, all = join(stalled, e), join(all, e)
		case e.Kind == history.Slow && its && b.asked != 0 && e.At-e.Value >= b.asked:
			due, all, unseen = join(due, e), join(all, e), cmp.Or(unseen, e.Detail)
		}
	}
	why = fmt.Sprintf("%s. In the %s before, processes waited for a processor for %s", b.says,
		history.Duration(b.to-b.from), history.Duration(b.within(stalled)))
	if unseen != "" {
		why += ", and it is unknown whether its servers answered: " + unseen
	} else if b.asked != 0 {
		why += fmt.Sprintf(", and an answer of its servers was due for %s", history.Duration(b.within(due)))
	}
	return b.within(all), why
}

const (
	beforehand = 600 // events of its lock in a witness: some seconds
	afterward  = 60  // events after the breach, in a witness
)

// witness is what happened to the lock around a breach.
func (t *trial) witness(b *breach) *history.Witness {
	w := &history.Witness{Trial: t.id, Name: b.name, From: b.from, To: b.to, Says: b.says}
	told := b.to // a delay is known at its end, and a forbidden state from its beginning
	if b.limit < 0 {
		told = b.from
	}
	at := 0
	for i := range t.events {
		if e := &t.events[i]; e.Kind == history.Stall && e.Value <= int64(stood) {
			continue // there may be many
		} else if e.Name == "" || e.Name == b.name || b.name == "" {
			if w.Events = append(w.Events, *e); e.At <= told {
				at = len(w.Events)
			}
		}
	}
	w.Events = w.Events[max(0, at-beforehand):min(len(w.Events), at+afterward)]
	return w
}

// judge judges a trial that ended at the time at; crashed is the process that crashed in it, if any.
func (t *trial) judge(at int64, crashed string) {
	t.read()
	for _, l := range t.locks {
		if l.askers > 1 && len(l.holds) > 0 {
			t.finding(Exclusion).applies = true
		}
		var all []holds.Hold
		for _, a := range l.holds {
			if a.believes && a.until < at-int64(toldGrace) {
				t.told(a, at, "had not learned of its loss")
			}
			if a.ask.Process == crashed {
				continue
			}
			all = append(all, holds.Hold{Who: who(a.ask), Asked: a.ask.At, From: a.answer.At, To: min(a.until, at),
				Token: a.answer.Token})
			if len(all) > 1 && (all[0].Token != 0 || a.answer.Token != 0) {
				t.finding(Fencing).applies = true
			}
		}
		holds.Judge(all, func(before, next holds.Hold) {
			both := span{next.From, min(before.To, next.To)}
			t.breaks(Exclusion, breach{span: both, limit: always, name: l.name, says: fmt.Sprintf(
				"%s and %s held at once for %s", before.Who, next.Who, history.Duration(both.to-both.from))})
		}, func(before, next holds.Hold) {
			t.breaks(Fencing, breach{span: span{next.From, next.From}, limit: always, name: l.name, says: fmt.Sprintf(
				"%s got token %d after token %d", next.Who, next.Token, before.Token)})
		})
	}
	for _, a := range t.attempts {
		switch {
		case a.answer == nil:
			t.blocked(a, at)
		case a.answer.Kind == history.GaveUp:
			t.blocked(a, a.answer.At)
		}
	}
	t.wasServed(at)
}

// told checks whether another was granted the lock before a holder learned, at the time at, that it had
// lost it.
func (t *trial) told(a *attempt, at int64, what string) {
	if a.passed == 0 || t.absent(a.ask.Process, min(a.passed, a.until), at) {
		return // a stopped process had its Until
	}
	t.breaks(Told, breach{span: span{a.passed, at}, limit: toldGrace, name: a.lock.name, process: a.ask.Process,
		says: fmt.Sprintf("%s %s %s after the next holder got in", who(a.ask), what, history.Duration(at-a.passed))})
}

func (t *trial) toldLost(a *attempt, e *history.Event) {
	l := a.lock
	l.unclear = true
	t.told(a, e.At, "learned of its loss")
	if a.passed == 0 && !t.absent(e.Process, a.until, e.At) {
		l.told = append(l.told, e.At)
	}
	if t.lasts() || t.begun == 0 {
		// An excuse for a quarter of the TTL is enough: renewals begin when a third of it has passed.
		b := breach{span: span{e.At - t.ttl, e.At}, limit: time.Duration(t.ttl * 3 / 4), name: l.name,
			says: fmt.Sprintf("%s lost its lease: %s", who(e), cmp.Or(e.Error, "no reason given"))}
		if t.begun == 0 && e.At >= a.until { // without a fault, it was not renewed, and was not taken away
			b.process, b.asked = e.Process, 1
		}
		t.breaks(Kept, b)
	}
}

// blocked judges a caller that waited until at for a free lock, whether it, another or nobody got it
// then.
func (t *trial) blocked(a *attempt, at int64) {
	l, free, first, asked := a.lock, a.ask.At, true, a.ask.At
	for _, h := range l.holds {
		if h.answer.At < at {
			free, first = max(free, h.until), false
		}
	}
	switch {
	case a.ask.Value == 1, t.absent(a.ask.Process, a.ask.At, at):
		return // it does not wait, or could not be told
	case first && (!l.unclear || l.askers < 2), t.class == "" && !l.unclear:
		return // there was no holder before, or it is a handover
	case t.class == "" || t.begun == 0 || t.class == history.Killed || t.class == history.Stopped:
	case t.class == history.Client:
		// While it lasts, the waiter may be the one that is cut off.
		asked = cmp.Or(t.ended, math.MaxInt64)
	case t.class == history.Clock && !t.service.Declared.SurvivesClockJump:
		return // a clock stepped back may keep a lock
	default: // from when the service visibly worked again
		asked = cmp.Or(t.worked, math.MaxInt64)
	}
	if free = max(free, asked); free >= at {
		return
	}
	f, limit := t.finding(Freed), t.allowed()
	if a.answer != nil && a.answer.Kind == history.Granted {
		f.held(at-free, at-free > f.best)
	} else if at-free <= int64(limit) {
		return // it did not wait long enough
	}
	if t.class == history.Killed && t.service.Declared.DeadHolder == atOnce {
		free = max(free, cmp.Or(t.shown, at)) // a busy kernel may take seconds to end the process
	}
	t.breaks(Freed, breach{span: span{free, at}, limit: limit, name: l.name, process: a.ask.Process, asked: asked,
		says: fmt.Sprintf("%q was free, and nobody got it for %s", l.name, history.Duration(at-free))})
}

// wasServed judges whether locks were still granted while servers were away.
func (t *trial) wasServed(at int64) {
	if t.shown == 0 || t.class != history.Down {
		return
	}
	end := cmp.Or(t.ended, at)
	f := t.finding(Served)
	if t.served != 0 && t.served <= end {
		f.held(t.served-t.shown, true)
		return
	}
	limit := ServedWindow(time.Duration(t.ttl))
	if t.servers > t.service.Declared.ServerCrashes {
		limit = 0 // nothing is declared: report what was seen
	}
	t.breaks(Served, breach{span: span{t.shown, end}, limit: limit, says: fmt.Sprintf(
		"no lock was granted for the %s that it lasted, with servers away: %d", history.Duration(end-t.shown), t.servers)})
	f.applies = len(f.breaks) > 0 // else it was too short
}
