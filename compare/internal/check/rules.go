package check

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/golockers/locker/compare/internal/history"
	"github.com/golockers/locker/internal/holds"
)

// finding is what one rule says about one trial.
type finding struct {
	applies bool // there was an occasion to break it
	breaks  []breach
	best    int64 // the figure of a trial that held: a margin, a time
}

// breach is one break of a rule.
type breach struct {
	span
	limit time.Duration // it counts if it lasted longer, what excuses it left out; or always
	says  string
	name  string // the lock's

	// What excuses it, beside any process that stood still: that this one was late, or the parent, however little;
	// and answers that were due to it, of what it asked from then on (0: none).
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

// held notes a figure, if it is the one to tell.
func (f *finding) held(figure int64, tell bool) {
	if f.applies = true; tell {
		f.best = figure
	}
}

const always = -1 // the limit of what no slow machine excuses

// breaks notes that something took longer than limit, or, always, that it was.
func (t *trial) breaks(rule string, b breach) {
	f := t.finding(rule)
	f.applies = true
	if b.to-b.from > int64(b.limit) {
		f.breaks = append(f.breaks, b)
	}
}

// counted is the worst break that counts, now that all stalls are known; if there is none, excuse is that of the
// last.
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

// stood is how long a process was not run where that shows that the machine had too little for all. To a process
// that was late by less, it is an excuse of its own.
const stood = 50 * time.Millisecond

// excuse is how much of the time of a break is explained by the machine, or by servers whose answer was due: that
// they did not get a processor either cannot be excluded.
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
		why += ", and nobody saw whether its servers answered: " + unseen
	} else if b.asked != 0 {
		why += fmt.Sprintf(", and an answer of its servers was due for %s", history.Duration(b.within(due)))
	}
	return b.within(all), why
}

const (
	beforehand = 600 // events of its lock in a witness: some seconds
	afterward  = 60  // events that follow the break, in a witness
)

// witness is what happened to the lock around a break.
func (t *trial) witness(b *breach) *history.Witness {
	w := &history.Witness{Trial: t.id, Name: b.name, From: b.from, To: b.to, Says: b.says}
	told := b.to // what was too late is known when it comes, and what must not be, from its beginning
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

// judge judges a trial that was over at the time at, and in which that process crashed, if any.
func (t *trial) judge(at int64, crashed string) {
	t.read()
	for _, l := range t.locks {
		if l.askers > 1 && len(l.holds) > 0 {
			t.finding(Exclusion).applies = true
		}
		var all []holds.Hold
		for _, a := range l.holds {
			if a.believes && a.until < at-int64(toldGrace) {
				t.told(a, at, "had not been told")
			}
			if a.ask.Process == crashed {
				continue
			}
			all = append(all, holds.Hold{Who: who(a.ask), Asked: a.ask.At, From: a.answer.At, To: min(a.until, at),
				Token: a.answer.Token})
			if len(all) > 1 && (all[0].Token != 0 || a.answer.Token != 0) {
				t.finding(Tokens).applies = true
			}
		}
		holds.Judge(all, func(before, next holds.Hold) {
			both := span{next.From, min(before.To, next.To)}
			t.breaks(Exclusion, breach{span: both, limit: always, name: l.name, says: fmt.Sprintf(
				"%s and %s held at once for %s", before.Who, next.Who, history.Duration(both.to-both.from))})
		}, func(before, next holds.Hold) {
			t.breaks(Tokens, breach{span: span{next.From, next.From}, limit: always, name: l.name, says: fmt.Sprintf(
				"%s got token %d after %d had been given out", next.Who, next.Token, before.Token)})
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

// told looks whether somebody else was granted the lock before a holder knew, at the time at, that it
// had lost it.
func (t *trial) told(a *attempt, at int64, what string) {
	if a.passed == 0 || t.absent(a.ask.Process, min(a.passed, a.until), at) {
		return // to a process that was stopped, its Until was what told it
	}
	t.breaks(Told, breach{span: span{a.passed, at}, limit: toldGrace, name: a.lock.name, process: a.ask.Process,
		says: fmt.Sprintf("%s %s %s after the next had got in", who(a.ask), what, history.Duration(at-a.passed))})
}

func (t *trial) toldLost(a *attempt, e *history.Event) {
	l := a.lock
	l.unclear = true
	t.told(a, e.At, "was told")
	if a.passed == 0 && !t.absent(e.Process, a.until, e.At) {
		l.told = append(l.told, e.At)
	}
	if t.lasts() || t.begun == 0 {
		// What explains a quarter of the TTL explains it: renewals begin when a third of it has passed.
		b := breach{span: span{e.At - t.ttl, e.At}, limit: time.Duration(t.ttl * 3 / 4), name: l.name,
			says: fmt.Sprintf("%s lost its lease: %s", who(e), cmp.Or(e.Error, "no reason given"))}
		if t.begun == 0 && e.At >= a.until { // nothing was wrong, and it was not renewed; nor was it taken away
			b.process, b.asked = e.Process, 1
		}
		t.breaks(FalseLoss, b)
	}
}

// blocked judges that a caller waited until at for what nobody held, when it, another or nobody got it.
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
		return // nobody was there before, or it is a hand-over
	case t.class == "" || t.begun == 0 || t.class == history.Killed || t.class == history.Stopped:
	case t.class == history.Client:
		// While it lasts, the one that waits may be the one that is cut off.
		asked = cmp.Or(t.ended, math.MaxInt64)
	case t.class == history.Clock && !t.service.Declared.SurvivesClockJump:
		return // a clock that was stepped back may keep a lock
	default: // from when the service was seen to work again
		asked = cmp.Or(t.worked, math.MaxInt64)
	}
	if free = max(free, asked); free >= at {
		return
	}
	f, limit := t.finding(Left), t.allowed()
	if a.answer != nil && a.answer.Kind == history.Granted {
		f.held(at-free, at-free > f.best)
	} else if at-free <= int64(limit) {
		return // it did not wait long enough to tell
	}
	if t.class == history.Killed && t.service.Declared.DeadHolder == atOnce {
		free = max(free, cmp.Or(t.shown, at)) // a busy kernel may take seconds to end the process
	}
	t.breaks(Left, breach{span: span{free, at}, limit: limit, name: l.name, process: a.ask.Process, asked: asked,
		says: fmt.Sprintf("nobody held %q, and nobody got it for %s", l.name, history.Duration(at-free))})
}

// wasServed judges whether locks went on being granted while servers were away.
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
		limit = 0 // nothing is declared: what was seen is said
	}
	t.breaks(Served, breach{span: span{t.shown, end}, limit: limit, says: fmt.Sprintf(
		"nobody got a lock in the %s that it lasted, with %d servers away", history.Duration(end-t.shown), t.servers)})
	f.applies = len(f.breaks) > 0 // else it was too short to tell
}
