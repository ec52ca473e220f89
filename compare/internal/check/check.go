package check

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/golockers/locker/compare/internal/history"
)

// Tolerances: what a busy machine may add to a time before it counts.
const (
	toldGrace  = 100 * time.Millisecond // between a deadline and a goroutine that learns of it
	orderGrace = 200 * time.Millisecond // between calling Lock and standing in the service's queue
	hangGrace  = time.Second            // between a context's end and the call's return
	freeGrace  = time.Second            // a poll, and a goroutine that is slow
)

// ServedWindow is how long servers have to be away until it counts that nobody got a lock: another has
// to take over first, also on a machine that is busy.
func ServedWindow(ttl time.Duration) time.Duration { return 10*time.Second + 2*ttl }

// Check judges the events of a run, in the order of time. It returns a report of what it has read also
// with an error, which is one of reading.
func Check(run *history.Run, events iter.Seq2[history.Event, error]) (*history.Report, error) {
	c := &checker{run: run, trials: map[string]*trial{}, ended: map[string]bool{}, cells: map[place]*tally{},
		report: &history.Report{Version: 1, Run: *run, Interrupted: run.Interrupted}}
	var failed error
	var first, last int64
	for e, err := range events {
		if failed = err; err != nil {
			break
		}
		if c.report.Events++; c.report.Events == 1 {
			first = e.At
		}
		last = e.At
		c.event(e)
	}
	for _, id := range slices.Sorted(maps.Keys(c.trials)) {
		c.collect(c.trials[id], last, cutShort)
	}
	switch {
	case failed != nil:
	case c.silent != "":
		failed = fmt.Errorf("check: the journal of %s is missing: it acted, and nothing tells under "+
			"which lock", c.silent)
	case run.Interrupted == "" && (c.stray || len(c.trials) > 0):
		failed = errors.New("check: parent.jsonl is missing or cut short: it does not say when trials began and ended")
	}
	c.report.Seconds = float64(last-first) / 1e9
	c.addRows()
	return c.report, failed
}

type checker struct {
	run    *history.Run
	report *history.Report
	trials map[string]*trial // under way
	cells  map[place]*tally
	ended  map[string]bool
	silent string // a process that acted, and has no journal
	stray  bool   // there was an event of a trial that has not begun
}

// place is where a cell is in the table.
type place struct{ service, rule, fault string }

// event gives an event to the trials that it concerns.
func (c *checker) event(e history.Event) {
	t := c.trials[e.Trial]
	switch e.Kind {
	case history.TrialBegin:
		i := slices.IndexFunc(c.run.Services, func(s history.Service) bool { return s.Name == e.Service })
		if i < 0 || t != nil {
			return
		}
		t = &trial{c: c, id: e.Trial, service: &c.run.Services[i], ttl: e.Value}
		if e.Fault != "" {
			t.fault = &history.Fault{ID: e.Fault, Class: history.Client}
			if i := slices.IndexFunc(c.run.Faults, func(f history.Fault) bool { return f.ID == e.Fault }); i >= 0 {
				t.fault = &c.run.Faults[i]
			}
		}
		c.trials[e.Trial] = t
	case history.Stall, history.Starved: // of the parent, they are everybody's
		for _, t := range c.trials {
			if e.Service == "" || e.Service == t.service.Name {
				t.events = append(t.events, e)
			}
		}
		return
	}
	if t == nil { // it came after the end of its trial
		c.stray = c.stray || e.Trial != "" && !c.ended[e.Trial]
		return
	}
	if t.events = append(t.events, e); e.Kind == history.TrialEnd {
		c.collect(t, e.At, e.Error)
		c.report.Trials++
		delete(c.trials, e.Trial)
		c.ended[e.Trial] = true
	}
}

// span is a time.
type span struct{ from, to int64 }

// join adds the time that e tells of to those that were told before. They come in the order of their ends.
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
