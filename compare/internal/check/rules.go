package check

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/golockers/locker/compare/internal/history"
)

// finding is what one rule says about one trial.
type finding struct {
	applies bool // there was an occasion to break it
	breaks  []breach
	count   int    // of breaks that count
	worst   int64  // how badly
	note    string // of the worst
	best    int64  // the figure of a trial that held: a margin, a time
	witness *history.Witness
	more    int // events to add to the witness yet
	pairs   []pair
}

// breach is one break of a rule.
type breach struct {
	span
	limit time.Duration // it counts if it lasted longer, stalls of the machine left out; <0: it always counts
	says  string
}

// pair is two that believed at once, from when.
type pair struct {
	a, b *belief
	from int64
}

func (t *trial) finding(rule string) *finding {
	f := t.findings[rule]
	if f == nil {
		f = new(finding)
		t.findings[rule] = f
	}
	return f
}

const (
	ringSize   = 1000 // events of a trial that are remembered for a witness
	beforehand = 300  // of its lock, in a witness
	afterward  = 60   // events that follow the break, in a witness
	maxBreaks  = 1000 // of one rule that are remembered, in one trial
	noLimit    = time.Duration(-1)
)

func (t *trial) remember(e *history.Event) {
	if len(t.recent) < ringSize {
		t.recent = append(t.recent, *e)
	} else {
		t.recent[t.oldest] = *e
		t.oldest = (t.oldest + 1) % ringSize
	}
	for _, f := range t.findings {
		if f.more > 0 && concerns(f.witness, e) {
			f.more--
			f.witness.Events = append(f.witness.Events, *e)
		}
	}
}

// concerns reports whether an event belongs to a witness: those of other names do not.
func concerns(w *history.Witness, e *history.Event) bool {
	return e.Name == "" || e.Name == w.Name || w.Name == ""
}

// broken notes that a rule was broken, which no slow machine excuses.
func (t *trial) broken(rule, name string, when span, says string, before ...history.Event) {
	t.breach(rule, name, breach{when, noLimit, says}, before)
}

// late notes that something took too long, if it took longer than limit.
func (t *trial) late(rule, name string, took span, limit time.Duration, says string,
	before ...history.Event) {
	t.finding(rule).applies = true
	if took.to-took.from > int64(limit) {
		t.breach(rule, name, breach{took, limit, says}, before)
	}
}

// breach keeps b until all stalls are known. The first of a trial is its
// witness; before are events that it needs and that may be long ago.
func (t *trial) breach(rule, name string, b breach, before []history.Event) {
	f := t.finding(rule)
	f.applies = true
	if len(f.breaks) < maxBreaks {
		f.breaks = append(f.breaks, b)
	}
	if f.witness != nil {
		return
	}
	w := &history.Witness{Trial: t.id, Name: name, From: b.from, To: b.to, Says: b.says}
	f.witness, f.more = w, afterward
	for i := range t.recent {
		if e := &t.recent[(t.oldest+i)%len(t.recent)]; concerns(w, e) {
			w.Events = append(w.Events, *e)
		}
	}
	w.Events = w.Events[max(0, len(w.Events)-beforehand):]
	first := w.Events[0].At
	for _, e := range before {
		if e.Kind != "" && e.At < first {
			w.Events = append(w.Events, e)
		}
	}
	slices.SortStableFunc(w.Events, func(a, b history.Event) int { return cmp.Compare(a.At, b.At) })
}

// settle counts the breaks, now that all stalls are known, and how slow the
// service was: who comes first is known only beyond the time that a request takes.
func (t *trial) settle(rule string, f *finding) {
	for _, b := range f.breaks {
		size := b.to - b.from
		stalls := t.stalls
		switch rule {
		case Order:
			b.limit += 2 * time.Duration(t.slowest)
		case FalseLoss:
			stalls = t.waits // who was not renewed by a server that did not run lost its lease for a reason
		}
		if b.limit != noLimit && size-within(stalls, b.from, b.to) <= int64(b.limit) {
			continue
		}
		f.count++
		if f.count == 1 || size > f.worst {
			f.worst, f.note = size, b.says
		}
	}
	if f.count == 0 {
		f.witness = nil
	}
}

// overlaps notes with whom b believes at once, from now on.
func (t *trial) overlaps(l *lock, b *belief, now int64) {
	f := t.finding(Exclusion)
	for _, a := range l.believing {
		if a == b || a.together(b) || a.end() <= now || slices.ContainsFunc(f.pairs,
			func(p pair) bool { return p.a == a && p.b == b || p.a == b && p.b == a }) {
			continue
		}
		if len(f.pairs) < maxBreaks {
			f.pairs = append(f.pairs, pair{a, b, now})
		}
		t.broken(Exclusion, l.name, span{now, now},
			fmt.Sprintf("%s and %s held at once", who(a.granted), who(b.granted)),
			a.ask, a.granted, a.renewed, b.ask, b.granted, b.renewed)
	}
}

// overlapSizes is for the end, when all beliefs have ended or never do.
func (t *trial) overlapSizes(at int64) {
	f := t.finding(Exclusion)
	for _, p := range f.pairs {
		to := max(p.from, min(p.a.end(), p.b.end(), at))
		says := fmt.Sprintf("%s and %s held at once for %s",
			who(p.a.granted), who(p.b.granted), history.Duration(to-p.from))
		i := slices.IndexFunc(f.breaks, func(b breach) bool { return b.from == p.from && b.to == p.from })
		if i >= 0 {
			f.breaks[i].to, f.breaks[i].says = to, says
		}
		if w := f.witness; w.From == p.from && w.To == p.from {
			w.To, w.Says = to, says
		}
	}
}

// compareTokens: a token is greater than those of all holders who had theirs
// before this one asked, or whose belief was over before it was granted. That of one who
// shares may be equal to that of another who did.
func (t *trial) compareTokens(l *lock, by *caller, b *belief) {
	token := b.granted.Token
	over := max(l.tokenOver, by.tokens)
	for _, a := range l.believing {
		if a.end() <= b.granted.At {
			over = max(over, a.granted.Token)
		}
	}
	if token == 0 && (over == 0 || b.ask.Shared) { // those who share may have none
		return
	}
	f := t.finding(Tokens)
	f.applies = f.applies || l.grants > 1
	if token <= over && (!b.ask.Shared || token < over || token <= l.aloneOver) {
		t.broken(Tokens, l.name, span{b.granted.At, b.granted.At},
			fmt.Sprintf("%s got token %d after %d had been given out", who(b.granted), token, over), b.ask)
	}
}

// margins: those who lost theirs were told before b got in, by so much.
func (t *trial) margins(l *lock, b *belief) {
	f := t.finding(Told)
	for _, end := range l.endings {
		f.applies = true
		if margin := b.granted.At - end; f.best == 0 || margin < f.best {
			f.best = margin
		}
	}
	l.endings = l.endings[:0]
}

// told looks whether somebody else was granted the lock before a holder knew, at
// the time at, that it had lost it.
func (t *trial) told(l *lock, b *belief, at int64, what string) {
	if b.passed == 0 || t.absent(b.by.id.process, min(b.passed, b.until), at) {
		return // to one who was stopped, its Until was what told it
	}
	t.late(Told, l.name, span{b.passed, at}, toldGrace,
		fmt.Sprintf("%s %s %s after the next had got in",
			who(b.granted), what, history.Duration(at-b.passed)), b.ask, b.granted, b.renewed)
}

// overtakes looks who has waited longer than b, and still does.
func (t *trial) overtakes(l *lock, b *belief) {
	if b.ask.At == 0 || b.ask.Value == 1 || t.fault != nil {
		return
	}
	for _, w := range l.waiting {
		if w.ask.Value == 1 || w.ask.At+int64(orderGrace) > b.ask.At {
			// Not before it, or too near to tell: behind it, if it did wait.
			if w.ask.At > b.ask.At+int64(orderGrace) {
				t.finding(Order).applies = true
			}
			continue
		}
		t.finding(Order).applies = true
		if len(w.passed) < maxBreaks {
			w.passed = append(w.passed, b)
		}
	}
}

// overtaken is for the time when a waiter has got in, or has waited to its end: before, it may yet say that
// it had lost the service, and its place with it.
func (t *trial) overtaken(w *caller) {
	for _, b := range w.passed {
		earlier := b.ask.At - w.ask.At
		t.late(Order, w.ask.Name, span{w.ask.At, b.ask.At}, orderGrace,
			fmt.Sprintf("%s got in before %s, which had begun to wait %s earlier",
				who(b.granted), who(w.ask), history.Duration(earlier)), w.ask, b.ask)
	}
	w.passed = nil
}

// times measures what a grant tells about waiting.
func (t *trial) times(l *lock, b *belief, alone bool) {
	at, asked := b.granted.At, b.ask.At
	if asked == 0 {
		return
	}
	if t.fault == nil && alone && l.lastEnd <= asked {
		t.slowest = max(t.slowest, at-asked)
	}
	if (b.n > 0 || l.unclear && len(l.askers) > 1) && b.ask.Value != 1 {
		t.blocked(l, &b.ask, at, false)
	}
}

// blocked judges that a caller waited from ask until at, and still does, for
// what nobody held.
func (t *trial) blocked(l *lock, ask *history.Event, at int64, still bool) {
	free := max(ask.At, l.lastEnd)
	for _, b := range l.believing {
		free = max(free, b.end())
	}
	if free >= at {
		return
	}
	if n := len(l.died); n > 0 {
		t.deadHolder(l, l.died[n-1], free, at, still, ask)
		return
	}
	if t.fault == nil && !l.unclear {
		return // a hand-over
	}
	if t.fault != nil && t.begun != 0 {
		switch t.fault.Class {
		case history.Killed, history.Stopped:
		case history.Client, history.Load:
			if t.ended == 0 {
				return // the one that waits may be the one that is cut off
			}
			free = max(free, t.ended)
		default:
			// From when the service was seen to work again. A clock that was stepped back may keep a lock.
			if t.worked == 0 || t.fault.Class == history.Clock && !t.service.Declared.SurvivesClockJump {
				return
			}
			free = max(free, t.worked)
		}
		if free >= at {
			return
		}
	}
	f := t.finding(Left)
	f.best = max(f.best, at-free)
	t.late(Left, l.name, span{free, at}, t.allowed(),
		fmt.Sprintf("nobody held %q, and nobody got it for %s", l.name, history.Duration(at-free)), *ask)
}

func (t *trial) deadHolder(l *lock, died *belief, from, at int64, still bool, ask *history.Event) {
	took, limit := at-from, t.allowed()
	if t.service.Declared.DeadHolder == "at once" {
		limit -= time.Duration(t.ttl)
	}
	f := t.finding(Dead)
	says := fmt.Sprintf("still not free %s after its holder %s had died",
		history.Duration(took), who(died.granted))
	if !still {
		says = fmt.Sprintf("free %s after its holder %s had died", history.Duration(took), who(died.granted))
		l.died = nil
		f.best = max(f.best, took)
	} else if took <= int64(limit) {
		return // nobody waited long enough to tell
	}
	t.late(Dead, l.name, span{from, at}, limit, says, died.ask, died.granted, died.renewed, *ask)
}

// landed judges an act that has arrived at the recorder.
func (t *trial) landed(l *lock, by *caller, e *history.Event) {
	n, ok := by.acts[e.Seq]
	switch {
	case ok:
		delete(by.acts, e.Seq)
	case by.belief != nil:
		n = by.belief.n
	case by.ask.At == 0:
		t.c.silent = by.id.process
		return
	default:
		return
	}
	stale, guarded := t.finding(Stale), t.finding(Guarded)
	if n > l.landed {
		stale.applies = stale.applies || l.landed >= 0
		guarded.applies = guarded.applies || l.landed >= 0 && e.Token != 0
		l.landed = n
	} else if n < l.landed {
		says := fmt.Sprintf("an act of %s landed after one of a later holder", who(*e))
		t.broken(Stale, l.name, span{e.At, e.At}, says)
		if e.Token != 0 && e.Token >= l.seen {
			t.broken(Guarded, l.name, span{e.At, e.At},
				says+fmt.Sprintf(", and its token %d was not smaller", e.Token))
		}
	}
	l.seen = max(l.seen, e.Token)
}

// finish judges what only the end of a trial shows, and hands over what was found.
func (t *trial) finish(at int64, aside string) {
	for _, l := range t.lockList {
		if len(l.askers) > 1 && l.grants > 0 {
			t.finding(Exclusion).applies = true
		}
		for _, b := range l.believing {
			if b.until < at-int64(toldGrace) {
				t.told(l, b, at, "had not been told")
			}
		}
	}
	for _, by := range t.callList {
		t.overtaken(by)
		call, what := by.ask, "Lock"
		if by.unlockIn {
			call, what = by.unlock, "Unlock"
		}
		if call.At == 0 || t.absent(call.Process, call.At, at) {
			continue
		}
		if (by.asking || by.unlockIn) && call.Until != 0 && at > call.Until {
			t.late(Hangs, call.Name, span{call.Until, at}, hangGrace,
				fmt.Sprintf("%s of %s never returned: its context had ended %s before",
					what, who(call), history.Duration(at-call.Until)), call)
		}
		// It waits, or waited in vain, for what nobody may hold.
		if l := t.locks[by.id.name]; (l.grants > 0 || l.unclear && len(l.askers) > 1) && call.Value != 1 {
			if by.asking {
				t.blocked(l, &by.ask, at, true)
			} else if by.gaveUp > by.ask.At {
				t.blocked(l, &by.ask, by.gaveUp, true)
			}
		}
	}
	t.overlapSizes(at)
	t.wasServed(at)
	if t.again {
		// Whoever asks again and again competes with requests of others that are still under way: order is judged
		// where everybody asks once.
		delete(t.findings, Order)
	}
	for rule, f := range t.findings {
		t.settle(rule, f)
	}
	if t.fault != nil && t.shown == 0 {
		aside = cmp.Or(aside, "the fault had no effect that was seen")
	}
	t.c.collect(t, aside)
}

// wasServed judges whether locks went on being granted while servers were away.
func (t *trial) wasServed(at int64) {
	if t.fault == nil || t.shown == 0 || t.fault.Class != history.Down {
		return
	}
	end := at
	if t.ended != 0 {
		end = t.ended
	}
	f := t.finding(Served)
	if t.served != 0 && t.served <= end {
		f.applies = true
		f.best = t.served - t.shown
		return
	}
	limit := ServedWindow(time.Duration(t.ttl))
	if t.servers > t.service.Declared.ServerCrashes {
		limit = 0 // nothing is declared: what was seen is said
	}
	t.late(Served, "", span{t.shown, end}, limit,
		fmt.Sprintf("nobody got a lock in the %s that it lasted, with %d servers away",
			history.Duration(end-t.shown), t.servers))
	f.applies = len(f.breaks) > 0 // else it was too short to tell
}
