package check

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/golockers/locker/compare/internal/history"
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
	limit time.Duration // it counts if it lasted longer, stalls of the machine left out; or always
	says  string
	name  string // the lock's
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
func (t *trial) breaks(rule, name string, took span, limit time.Duration, says string) {
	f := t.finding(rule)
	f.applies = true
	if took.to-took.from > int64(limit) {
		f.breaks = append(f.breaks, breach{took, limit, says, name})
	}
}

// counted is the worst break that counts, now that all stalls are known.
func (t *trial) counted(f *finding) (worst *breach) {
	for i := range f.breaks {
		b := &f.breaks[i]
		size := b.to - b.from
		if (b.limit < 0 || size-b.within(t.stalls) > int64(b.limit)) && (worst == nil || size > worst.to-worst.from) {
			worst = b
		}
	}
	return worst
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
		if e := &t.events[i]; e.Name == "" || e.Name == b.name || b.name == "" {
			if w.Events = append(w.Events, *e); e.At <= told {
				at = len(w.Events)
			}
		}
	}
	w.Events = w.Events[max(0, at-beforehand):min(len(w.Events), at+afterward)]
	return w
}

// judge judges a trial that was over at the time at.
func (t *trial) judge(at int64) {
	t.read()
	for _, l := range t.locks {
		if l.askers > 1 && len(l.holds) > 0 {
			t.finding(Exclusion).applies = true
		}
		for i, h := range l.holds {
			if !h.over && h.until < at-int64(toldGrace) {
				t.told(h, at, "had not been told")
			}
			for _, before := range l.holds[:i] {
				t.overlap(l, before, h, at)
			}
			t.tokens(l, h, l.holds[:i])
		}
	}
	t.hangs(at)
	for _, by := range t.callers {
		// It waits, or waited in vain, for what nobody may hold.
		c, l := by.asks, by.lock
		if c == nil || c.began.Value == 1 || len(l.holds) == 0 && (!l.unclear || l.askers < 2) ||
			t.absent(by.process, c.began.At, at) {
			continue
		}
		if c.answer == nil {
			t.blocked(l, c.began, at, true)
		} else if c.answer.Kind == history.GaveUp {
			t.blocked(l, c.began, c.answer.At, true)
		}
	}
	t.wasServed(at)
}

// overlap looks when two believed at once.
func (t *trial) overlap(l *lock, a, b *hold, at int64) {
	if both := (span{b.granted.At, min(a.until, b.until)}); both.from < both.to {
		both.to = max(both.from, min(both.to, at))
		t.breaks(Exclusion, l.name, both, always, fmt.Sprintf("%s and %s held at once for %s",
			who(a.granted), who(b.granted), history.Duration(both.to-both.from)))
	}
}

// tokens: a token is greater than those of all holders who had theirs before this one asked, or whose
// belief was over before it was granted.
func (t *trial) tokens(l *lock, h *hold, before []*hold) {
	var over uint64
	for _, o := range before {
		if o.granted.At < h.ask.At || o.until <= h.granted.At {
			over = max(over, o.granted.Token)
		}
	}
	token := h.granted.Token
	if token == 0 && over == 0 {
		return
	}
	f := t.finding(Tokens)
	f.applies = f.applies || len(before) > 0
	if token <= over {
		t.breaks(Tokens, l.name, span{h.granted.At, h.granted.At}, always,
			fmt.Sprintf("%s got token %d after %d had been given out", who(h.granted), token, over))
	}
}

// hangs looks whether calls came back in time.
func (t *trial) hangs(at int64) {
	for _, c := range t.calls {
		what, since, back, says := "Lock", c.began.At, at, "never returned: its context had ended %s before"
		if c.answer != nil {
			since, back, says = c.began.Until, c.answer.At, "returned %s after its context had ended"
		}
		if c.began.Kind == history.UnlockBegin {
			what = "Unlock"
		}
		if late := back - c.began.Until; c.began.Until != 0 && late > 0 && !t.absent(c.began.Process, since, back) {
			t.breaks(Hangs, c.began.Name, span{c.began.Until, back}, hangGrace,
				fmt.Sprintf("%s of %s "+says, what, who(c.began), history.Duration(late)))
		}
	}
}

// told looks whether somebody else was granted the lock before a holder knew, at the time at, that it
// had lost it.
func (t *trial) told(h *hold, at int64, what string) {
	if h.passed == 0 || t.absent(h.by.process, min(h.passed, h.until), at) {
		return // to a process that was stopped, its Until was what told it
	}
	t.breaks(Told, h.by.lock.name, span{h.passed, at}, toldGrace, fmt.Sprintf("%s %s %s after the next had got in",
		who(h.granted), what, history.Duration(at-h.passed)))
}

func (t *trial) toldLost(h *hold, l *lock, e *history.Event) {
	l.unclear = true
	t.told(h, e.At, "was told")
	if h.passed == 0 && !t.absent(e.Process, h.until, e.At) {
		l.told = append(l.told, e.At)
	}
	ranOut := !h.renewed && h.until <= e.At+int64(toldGrace) // it was not to be renewed
	if (t.lasts() || t.begun == 0) && !ranOut {
		// A machine that stood still for a quarter of the TTL explains it.
		t.breaks(FalseLoss, l.name, span{e.At - t.ttl, e.At}, time.Duration(t.ttl*3/4),
			fmt.Sprintf("%s lost its lease: %s", who(e), cmp.Or(e.Error, "no reason given")))
	}
}

// blocked judges that a caller waited from ask until at, and still does, for what nobody held.
func (t *trial) blocked(l *lock, ask *history.Event, at int64, still bool) {
	free := ask.At
	for _, h := range l.holds {
		free = max(free, h.until)
	}
	if l.died != nil && free < at {
		t.deadHolder(l, free, at, still)
		return
	}
	switch {
	case t.fault == nil && !l.unclear:
		return // a hand-over
	case t.fault == nil || t.begun == 0 || t.fault.Class == history.Killed || t.fault.Class == history.Stopped:
	case t.fault.Class == history.Client:
		// While it lasts, the one that waits may be the one that is cut off.
		free = max(free, cmp.Or(t.ended, math.MaxInt64))
	case t.fault.Class == history.Clock && !t.service.Declared.SurvivesClockJump:
		return // a clock that was stepped back may keep a lock
	default: // from when the service was seen to work again
		free = max(free, cmp.Or(t.worked, math.MaxInt64))
	}
	if free >= at {
		return
	}
	f := t.finding(Left)
	f.held(at-free, at-free > f.best)
	t.breaks(Left, l.name, span{free, at}, t.allowed(),
		fmt.Sprintf("nobody held %q, and nobody got it for %s", l.name, history.Duration(at-free)))
}

func (t *trial) deadHolder(l *lock, from, at int64, still bool) {
	took, limit, died := at-from, t.allowed(), l.died
	if t.service.Declared.DeadHolder == "at once" {
		limit -= time.Duration(t.ttl)
	}
	f, what := t.finding(Dead), "free"
	if still {
		what = "still not free"
		if took <= int64(limit) {
			return // nobody waited long enough to tell
		}
	} else {
		l.died = nil
		f.held(took, took > f.best)
	}
	t.breaks(Dead, l.name, span{from, at}, limit, fmt.Sprintf("%s %s after its holder %s had died", what,
		history.Duration(took), who(died.granted)))
}

// wasServed judges whether locks went on being granted while servers were away.
func (t *trial) wasServed(at int64) {
	if t.fault == nil || t.shown == 0 || t.fault.Class != history.Down {
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
	t.breaks(Served, "", span{t.shown, end}, limit,
		fmt.Sprintf("nobody got a lock in the %s that it lasted, with %d servers away",
			history.Duration(end-t.shown), t.servers))
	f.applies = len(f.breaks) > 0 // else it was too short to tell
}
