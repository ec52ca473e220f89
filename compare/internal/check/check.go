// Package check judges histories: what was promised, and what was seen. It is a pure function of a
// run's description and the events of its trials, in the order of time.
//
// # What it needs of a trial
//
// A trial is one try of one service, with at most one fault; its lock names are its own. Its events
// lie between its TrialBegin and its TrialEnd, which is written when all calls have had time to return,
// and all holders time to be told. Callers other than the holder should ask while it holds, because a
// lock that nobody else wants proves nothing.
//
//   - All its locks share its fault: a trial is one observation, broken if one of them is.
//   - A fault has a FaultBegin before it and an Evidence when its effect was seen. A trial with a fault
//     but no Evidence is set aside.
//   - A kill is a fault of class Killed, a stop one of class Stopped: its FaultBegin, before the
//     signal, names the process, and so does a stop's FaultEnd, after SIGCONT.
//   - At the end of a trial with a fault, a caller asks for each name once more, with a deadline beyond
//     TTL and slack, which shows what was left behind.
//   - A Stall, of any process, is time that does not count if something was only too slow. It never
//     excuses two holders at once. A stopped process is not a Stall.
//   - A process that ended by itself is named by the TrialEnd, which then has an Error: how long it
//     held is unknown.
//
// A lease's belief begins with Granted and ends with the earliest of its latest Until, ToldLost,
// UnlockBegin, and the FaultBegin that kills its process. docs/compare.md says what each rule requires
// of these beliefs, by the names for --require.
package check

import (
	"time"

	"github.com/golockers/locker/compare/internal/history"
)

// Tolerances: what a busy machine may add to a time before it counts.
const (
	toldGrace = 100 * time.Millisecond // between a deadline and a goroutine that learns of it
	freeGrace = time.Second            // a poll, and a slow goroutine
)

// ServedWindow is how long servers must be away before it counts that no lock was granted: another
// server must take over first, even on a busy machine.
func ServedWindow(ttl time.Duration) time.Duration { return 10*time.Second + 2*ttl }

// Checker judges the trials of a run, one after the other.
type Checker struct {
	run    *history.Run
	cells  map[place]*history.Cell
	trials int
}

// place is a cell's position in the table.
type place struct{ service, rule, fault string }

// New returns a Checker of trials of the services and faults of run.
func New(run *history.Run) *Checker { return &Checker{run: run, cells: map[place]*history.Cell{}} }

// Trial judges an ended trial, and returns what it is the first to break, and whether something of it was set aside.
func (c *Checker) Trial(events []history.Event) (news []string, aside bool) {
	begin, end := events[0], events[len(events)-1]
	c.trials++
	t := &trial{id: begin.Trial, ttl: begin.Value, events: events}
	for i, s := range c.run.Services {
		if s.Name == begin.Service {
			t.service = &c.run.Services[i]
		}
	}
	for _, f := range c.run.Faults {
		if f.ID == begin.Fault {
			t.fault, t.class = f.ID, f.Class
		}
	}
	t.judge(end.At, end.Process)
	return c.collect(t, end.Error)
}

// Check judges a whole history, one trial after the other.
func Check(run *history.Run, all []history.Event) *history.Report {
	c := New(run)
	for i, begin := 0, 0; i < len(all); i++ {
		if all[i].Kind == history.TrialEnd {
			c.Trial(all[begin : i+1])
			begin = i + 1
		}
	}
	return c.Report()
}

// span is an interval.
type span struct{ from, to int64 }

// join adds the interval of e to spans. Intervals come in the order of their ends.
func join(spans []span, e *history.Event) []span {
	s := span{e.At - e.Value, e.At}
	for n := len(spans); n > 0 && s.from <= spans[n-1].to; n-- {
		s.from = min(s.from, spans[n-1].from)
		spans = spans[:n-1]
	}
	return append(spans, s)
}

// within is how much of s is in spans.
func (s span) within(spans []span) (sum int64) {
	for _, o := range spans {
		sum += max(0, min(o.to, s.to)-max(o.from, s.from))
	}
	return sum
}
