package check

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/golockers/locker/compare/internal/history"
)

// The rules, as a report names them.
const (
	Exclusion = "exclusion"
	Told      = "told"
	Stale     = "stale"
	Guarded   = "guarded"
	Tokens    = "tokens"
	Dead      = "dead"
	Left      = "left"
	Served    = "served"
	FalseLoss = "false-loss"
	Order     = "order"
	Hangs     = "hangs"
)

// Tolerances: what a busy machine may add to a time before it counts.
const (
	toldGrace  = 100 * time.Millisecond // between a deadline and a goroutine that learns of it
	orderGrace = 200 * time.Millisecond // between calling Lock and standing in the service's queue
	hangGrace  = time.Second            // between a context's end and the call's return
	freeGrace  = time.Second            // a poll, and a goroutine that is slow
)

// ServedWindow is how long servers have to be away until it counts that nobody
// got a lock: another has to take over first, also on a machine that is busy.
func ServedWindow(ttl time.Duration) time.Duration { return 10*time.Second + 2*ttl }

// Check judges the events of a run, in the order of time. It returns a report of
// what it has read also with an error, which is one of reading.
func Check(run *history.Run, events iter.Seq2[history.Event, error]) (*history.Report, error) {
	c := &checker{
		run:      run,
		faults:   make(map[string]*history.Fault),
		services: make(map[string]*history.Service),
		trials:   make(map[string]*trial),
		stopped:  make(map[string]span),
		cells:    make(map[place]*tally),
	}
	for i := range run.Faults {
		c.faults[run.Faults[i].ID] = &run.Faults[i]
	}
	for i := range run.Services {
		c.services[run.Services[i].Name] = &run.Services[i]
	}
	var failed error
	for e, err := range events {
		if err != nil {
			failed = err
			break
		}
		c.event(&e)
	}
	if failed == nil && c.silent != "" {
		failed = fmt.Errorf("check: the journal of %s is missing: it acted, and nothing tells under "+
			"which lock", c.silent)
	}
	for _, id := range slices.Sorted(maps.Keys(c.trials)) {
		c.trials[id].finish(c.last, "the history ends before the trial does")
	}
	return c.report(), failed
}

type checker struct {
	run         *history.Run
	faults      map[string]*history.Fault
	services    map[string]*history.Service
	trials      map[string]*trial // under way
	stopped     map[string]span   // processes, when they were last; to is 0 while they are
	cells       map[place]*tally
	events      int64
	first, last int64
	count       int    // trials that were ended
	silent      string // a process that acted, and has no journal
}

func (c *checker) event(e *history.Event) {
	c.events++
	if c.first == 0 {
		c.first = e.At
	}
	c.last = e.At
	switch e.Kind {
	case history.TrialBegin:
		if c.services[e.Service] != nil && c.trials[e.Trial] == nil {
			c.trials[e.Trial] = newTrial(c, e)
		}
		return
	case history.Stall:
		// Whoever stalled, the machine had too little for all; but for those that were stopped.
		if s, ok := c.stopped[e.Process]; !ok || s.to != 0 && s.to < e.At-e.Value {
			for _, t := range c.trials {
				t.stall(e)
			}
		}
		return
	case history.Starved:
		for _, t := range c.trials {
			if t.service.Name == e.Service {
				t.waits = join(t.waits, e)
			}
		}
		return
	}
	t := c.trials[e.Trial]
	if t == nil {
		return // it came after the end of its trial
	}
	if e.Kind == history.TrialEnd {
		t.finish(e.At, e.Error)
		delete(c.trials, e.Trial)
		c.count++
		return
	}
	t.event(e)
}

// place is where a cell is in the table.
type place struct{ service, rule, fault string }
