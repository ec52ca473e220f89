package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/golockers/locker/compare/internal/history"
)

// tally is what a cell is made of.
type tally struct {
	trials, broken, aside int
	first                 int // of the trials that broke
	worst, best           int64
	hasBest               bool
	why                   string // the last reason to set a trial aside
	note                  string
	servers               int
	outcomes              []history.Outcome
	witness               *history.Witness
}

const maxOutcomes = 40 // of a cell

// ruleRow is how a rule is shown.
type ruleRow struct {
	rule, title string
	split       bool   // one row for each fault
	figure      string // what a trial that held shows; its greatest, or
	least       bool   // its least
}

// rows are the rules in the order of the table.
var rows = []ruleRow{
	{rule: Exclusion, title: "two at once", split: true},
	{rule: Told, title: "told in time", split: true, least: true, figure: "told %s before the next"},
	{rule: Guarded, title: "stale acts, tokens checked", split: true},
	{rule: Stale, title: "stale acts, no guard"},
	{rule: Tokens, title: "tokens rise", split: true},
	{rule: Dead, title: "dead holder: free after", figure: "at most %s"},
	{rule: Left, title: "left behind: blocked by nobody", figure: "at most %s"},
	{rule: Served, title: "served", split: true, figure: "again after %s"},
	{rule: FalseLoss, title: "leases lost", split: true},
	{rule: Order, title: "order of waiters"},
	{rule: Hangs, title: "calls that hang"},
}

// Rules are the names of all rules that have a verdict, in the order of the table.
func Rules() (all []string) {
	for _, row := range rows {
		all = append(all, row.rule)
	}
	return all
}

// collect adds the findings of a trial that has ended.
func (c *checker) collect(t *trial, aside string) {
	for _, row := range rows {
		f := t.findings[row.rule]
		if f == nil || !f.applies {
			continue
		}
		at := place{t.service.Name, row.rule, ""}
		if row.split && t.fault != nil {
			at.fault = t.fault.ID
		}
		cell := c.cells[at]
		if cell == nil {
			cell = new(tally)
			c.cells[at] = cell
		}
		cell.servers = max(cell.servers, t.servers)
		o := history.Outcome{Trial: t.id}
		switch {
		case f.count > 0 && (aside == "" || row.rule == Exclusion):
			// Two at once are a fact, whatever else went wrong with the trial.
			cell.trials++
			cell.broken++
			cell.first = cmp.Or(cell.first, cell.trials)
			o.Broken, o.Note, o.NS = true, f.note, f.worst
			if cell.witness == nil || f.worst > cell.worst {
				cell.witness, cell.worst, cell.note = f.witness, f.worst, f.note
			}
		case aside != "" || len(f.breaks) > 0:
			cell.aside++
			cell.why = cmp.Or(aside, "the machine stalled, or was too slow to tell")
			o.Aside, o.Note = true, cell.why
		default:
			cell.trials++
			o.NS = f.best
			if row.figure != "" && f.best != 0 {
				o.Note = fmt.Sprintf(row.figure, history.Duration(f.best))
				if !cell.hasBest || row.least == (f.best < cell.best) {
					cell.best, cell.hasBest = f.best, true
				}
			}
		}
		cell.keep(o)
	}
}

// keep keeps the broken and the worst outcomes.
func (c *tally) keep(o history.Outcome) {
	rank := func(o history.Outcome) int {
		switch {
		case o.Broken:
			return 0
		case o.Aside:
			return 1
		}
		return 2
	}
	i, _ := slices.BinarySearchFunc(c.outcomes, o, func(a, b history.Outcome) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(b.NS, a.NS), cmp.Compare(a.Trial, b.Trial))
	})
	if i < maxOutcomes {
		c.outcomes = slices.Insert(c.outcomes, i, o)
		c.outcomes = c.outcomes[:min(len(c.outcomes), maxOutcomes)]
	}
}

func (c *checker) report() *history.Report {
	r := &history.Report{Version: 1, Run: *c.run, Interrupted: c.run.Interrupted, Events: c.events,
		Trials: c.count, Seconds: float64(c.last-c.first) / 1e9}
	for _, kind := range rows {
		if !kind.split {
			c.addRow(r, &kind, kind.title, nil, true)
			continue
		}
		before, always := len(r.Rows), kind.rule == Exclusion
		c.addRow(r, &kind, kind.title+": healthy", nil, always)
		for i := range c.run.Faults {
			f := &c.run.Faults[i]
			c.addRow(r, &kind, kind.title+": "+f.ID, f, always)
		}
		if len(r.Rows) == before {
			c.addRow(r, &kind, kind.title, nil, true)
		}
	}
	slices.SortStableFunc(r.Rows, func(a, b history.Row) int { return cmp.Compare(rank(&a), rank(&b)) })
	r.Broken, r.Headline = headline(r)
	return r
}

// headline says what was broken: what is declared, and two at once, declared or not.
func headline(r *history.Report) (bad int, says string) {
	tried := 0
	said := make(map[bool][]string) // of what is declared, and of what is not
	for i, s := range r.Run.Services {
		for _, kind := range rows {
			ways := make(map[bool][]string) // the faults that broke it
			for _, row := range r.Rows {
				switch c := &row.Cells[i]; {
				case row.Rule != kind.rule, c.Verdict == history.Undeclared && kind.rule != Exclusion:
				case c.Broken > 0:
					ways[c.Declared] = append(ways[c.Declared], row.Fault)
				case c.Verdict == history.Held && c.Declared:
					tried++
				}
			}
			bad += len(ways[true])
			for declared, faults := range ways {
				what, _, _ := strings.Cut(kind.title, ":")
				if len(faults) > 1 {
					what += fmt.Sprintf(" under %d faults", len(faults))
				} else if faults[0] != "" {
					what += " under " + faults[0]
				}
				said[declared] = append(said[declared], s.Name+": "+what)
			}
		}
	}
	others := strings.Join(said[false], "; ")
	switch {
	case bad > 0:
		says = fmt.Sprintf("%d of %d declared guarantees BROKEN: %s",
			bad, tried+bad, strings.Join(said[true], "; "))
		if others != "" {
			says += ". Not declared: " + others
		}
	case tried > 0:
		if says = fmt.Sprintf("All %d declared guarantees that were tried held", tried); others != "" {
			says = others + ". " + says
		}
	default:
		says = cmp.Or(others, "Nothing that is declared could be tried")
	}
	return bad, says
}

// rank is 0 for a row with something declared and broken, and higher the less
// there is to say.
func rank(row *history.Row) int {
	best := 4
	for i := range row.Cells {
		switch c := &row.Cells[i]; {
		case c.Bad():
			best = 0
		case c.Verdict == history.Undeclared:
			best = min(best, 1)
		}
	}
	return best
}

// addRow adds a row, if it was tried on any service or is always shown.
func (c *checker) addRow(r *history.Report, kind *ruleRow, title string, fault *history.Fault, always bool) {
	rule, id, faultID := kind.rule, kind.rule, ""
	if fault != nil {
		faultID = fault.ID
		id += "/" + faultID
	}
	row := history.Row{ID: id, Rule: rule, Fault: faultID, Title: title}
	tried := false
	for i := range c.run.Services {
		s := &c.run.Services[i]
		t := c.cells[place{s.Name, rule, faultID}]
		tried = tried || t != nil
		row.Cells = append(row.Cells, cell(s, t, kind, fault))
	}
	if tried || always {
		r.Rows = append(r.Rows, row)
	}
}

func cell(s *history.Service, t *tally, kind *ruleRow, fault *history.Fault) history.Cell {
	rule := kind.rule
	out := history.Cell{Service: s.Name, Verdict: history.NotTried}
	if t == nil {
		out.Declared, out.What = declared(&s.Declared, rule, fault, 1)
		out.Reason = "no trial gave the occasion"
		switch {
		case s.Missing != "":
			out.Reason = s.Missing
		case fault != nil && s.Untried[fault.ID] != "":
			out.Reason = s.Untried[fault.ID]
		case (rule == Tokens || rule == Guarded) && s.Declared.Fencing == "none":
			out.Reason = "leases carry no token"
		case rule == Told && fault != nil && (fault.Class == history.Stopped || fault.Class == history.Killed):
			out.Reason = "nobody can tell a holder that does not run"
		}
		return out
	}
	out.Declared, out.What = declared(&s.Declared, rule, fault, t.servers)
	out.Trials, out.Broken, out.Set, out.Outcomes = t.trials, t.broken, t.aside, t.outcomes
	switch {
	case t.broken > 0:
		out.Verdict, out.First, out.Worst, out.WorstNS, out.Witness = history.Undeclared, t.first, t.note,
			t.worst, t.witness
		if out.Declared {
			out.Verdict = history.Broken
		}
	case t.trials == 0:
		out.Verdict, out.Reason = history.Inconclusive, t.why
	default:
		out.Verdict, out.Bound = history.Held, min(1, 3/float64(t.trials))
		if t.hasBest {
			out.Worst, out.WorstNS = fmt.Sprintf(kind.figure, history.Duration(t.best)), t.best
		}
	}
	return out
}
