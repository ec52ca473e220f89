package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/golockers/locker/compare/internal/history"
)

// The rules, as a report names them.
const (
	Exclusion = "exclusion"
	Told      = "told"
	Tokens    = "tokens"
	Left      = "left"
	Served    = "served"
	FalseLoss = "false-loss"
)

// rules are the rows of the table, in its order.
var rules = []struct {
	name, title string
	figure      string // what a trial that held shows; of a cell the greatest, or
	least       bool   // the least
}{
	{name: Exclusion, title: "two at once"},
	{name: Told, title: "told in time", least: true, figure: "told %s before the next"},
	{name: Tokens, title: "tokens rise"},
	{name: Left, title: "left behind", figure: "at most %s"},
	{name: Served, title: "served", figure: "again after %s"},
	{name: FalseLoss, title: "leases lost"},
}

// Rules are the names of all rules that have a verdict, in the order of the table.
func Rules() (all []string) {
	for _, rule := range rules {
		all = append(all, rule.name)
	}
	return all
}

// declared says whether g promises that a rule is kept under a fault, or none, and in which words.
func declared(g *history.Guarantees, rule string, fault history.Fault, servers int) (bool, string) {
	excludes := g.Exclusion != "none" && g.Exclusion != "" && g.Scope != "none" && g.Scope != "process"
	outlasts, what := true, ""
	switch fault.Class {
	case history.Restart:
		outlasts, what = g.SurvivesRestart, "a restart"
	case history.Failover:
		outlasts, what = g.SurvivesFailover, "a fail-over"
	case history.Clock:
		outlasts, what = g.SurvivesClockJump, "a step of a clock"
	case history.Pause:
		outlasts, what = g.SurvivesPause, "a server's pause"
	case history.DataLost:
		outlasts, what = false, "the loss of data"
	}
	if what != "" {
		what = map[bool]string{true: "outlasts ", false: "does not outlast "}[outlasts] + what
	}
	switch rule {
	case Exclusion, Told:
		if !excludes {
			return false, "no exclusion between processes"
		}
		return outlasts, cmp.Or(what, "exclusion rests on: "+g.Exclusion)
	case Tokens:
		switch g.Fencing {
		case "unless data is set back": // which a replica that may lag does
			set := fault.Class == history.DataLost || fault.Class == history.Failover && !outlasts
			return !set, "tokens rise unless data is set back"
		case "while data is kept":
			return outlasts, "tokens rise while data is kept"
		}
		return false, "no tokens"
	case Left:
		when := g.DeadHolder
		if when == watched {
			when = "after somebody has watched it for the TTL"
		}
		return g.DeadHolder != "none" && g.DeadHolder != "",
			fmt.Sprintf("the lock of a dead holder is free %s, at most %g s later", when, g.DeadHolderSlackMS/1000)
	case Served:
		return servers <= g.ServerCrashes, fmt.Sprintf("%d may be down", g.ServerCrashes)
	}
	return excludes && fault.Class == "", "a renewed lease lasts"
}

const maxOutcomes = 40 // of a cell

// collect adds what was found in a trial, and says which cells it is the first to have broken. aside is why
// it must not be counted.
func (c *Checker) collect(t *trial, aside string) (news []string) {
	if t.fault != "" && t.shown == 0 {
		aside = cmp.Or(aside, "the fault had no effect that was seen")
	}
	for _, rule := range rules {
		f := t.findings[rule.name]
		if f == nil || !f.applies {
			continue
		}
		in := place{t.service.Name, rule.name, t.fault}
		cell := c.cells[in]
		if cell == nil {
			cell = &history.Cell{}
			c.cells[in] = cell
		}
		cell.Servers = max(cell.Servers, t.servers)
		o := history.Outcome{Trial: t.id}
		switch worst, excuse := t.counted(f); {
		case worst != nil && (aside == "" || rule.name == Exclusion):
			// Two at once are a fact, whatever else went wrong with a trial.
			if cell.Broken == 0 {
				news = append(news, t.service.Name+": broken: "+rule.title+": "+worst.says)
			}
			cell.Trials++
			cell.Broken++
			o.Broken, o.Note, o.NS = true, worst.says, worst.to-worst.from
			if cell.Witness == nil || o.NS > cell.WorstNS {
				cell.Witness, cell.WorstNS, cell.Worst = t.witness(worst), o.NS, o.Note
			}
		case aside != "" || len(f.breaks) > 0:
			cell.Set++
			if cell.Reason = cmp.Or(aside, excuse); rule.name == FalseLoss && t.fault == "" && aside == "" {
				cell.Verdict = history.Inconclusive // whatever other rounds show: a lease was lost
			}
			o.Aside, o.Note = true, cell.Reason
		default:
			cell.Trials++
			if o.NS = f.best; rule.figure != "" && f.best != 0 {
				o.Note = fmt.Sprintf(rule.figure, history.Duration(f.best))
				if cell.Broken == 0 && (cell.Worst == "" || rule.least == (f.best < cell.WorstNS)) {
					cell.WorstNS, cell.Worst = f.best, o.Note
				}
			}
		}
		cell.Outcomes = append(cell.Outcomes, o)
	}
	return news
}

// Report has the rows, the worst first: all rules, and those under a fault that were tried on any service; of
// two at once, under each fault.
func (c *Checker) Report() *history.Report {
	r := &history.Report{Version: 1, Run: *c.run, Trials: c.trials}
	for _, rule := range rules {
		before := len(r.Rows)
		for _, f := range append([]history.Fault{{}}, c.run.Faults...) { // the first is none
			row := history.Row{ID: strings.TrimSuffix(rule.name+"/"+f.ID, "/"), Rule: rule.name, Fault: f.ID}
			row.Title = rule.title + ": " + cmp.Or(f.ID, "healthy")
			if c.fill(&row, f) || rule.name == Exclusion {
				r.Rows = append(r.Rows, row)
			}
		}
		if len(r.Rows) == before {
			row := history.Row{ID: rule.name, Rule: rule.name, Title: rule.title}
			c.fill(&row, history.Fault{})
			r.Rows = append(r.Rows, row)
		}
	}
	rank := func(row history.Row) (best int) {
		for _, cell := range row.Cells {
			best = min(best, map[history.Verdict]int{history.Broken: -2, history.Undeclared: -1}[cell.Verdict])
		}
		return best
	}
	slices.SortStableFunc(r.Rows, func(a, b history.Row) int { return cmp.Compare(rank(a), rank(b)) })
	r.Broken, r.Headline = headline(r)
	return r
}

// fill fills in the cells of a row, and reports whether one was tried.
func (c *Checker) fill(row *history.Row, fault history.Fault) (tried bool) {
	for i := range c.run.Services {
		s := &c.run.Services[i]
		t := c.cells[place{s.Name, row.Rule, row.Fault}]
		tried = tried || t != nil
		row.Cells = append(row.Cells, cell(s, t, row.Rule, fault))
	}
	return tried
}

func cell(s *history.Service, t *history.Cell, rule string, fault history.Fault) history.Cell {
	out := history.Cell{Verdict: history.NotTried, Reason: "no trial gave the occasion"}
	switch {
	case t != nil:
		out = *t
	case s.Missing != "":
		out.Reason = s.Missing
	case s.Untried[fault.ID] != "":
		out.Reason = s.Untried[fault.ID]
	case rule == Tokens && s.Declared.Fencing == "none":
		out.Reason = "leases carry no token"
	case rule == Told && (fault.Class == history.Stopped || fault.Class == history.Killed):
		out.Reason = "nobody can tell a holder that does not run"
	}
	// The broken and the worst first.
	rank := func(o history.Outcome) int {
		return map[[2]bool]int{{true, false}: -2, {false, true}: -1}[[2]bool{o.Broken, o.Aside}]
	}
	slices.SortFunc(out.Outcomes, func(a, b history.Outcome) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(b.NS, a.NS), cmp.Compare(a.Trial, b.Trial))
	})
	out.Outcomes = out.Outcomes[:min(len(out.Outcomes), maxOutcomes)]
	out.Service = s.Name
	out.Declared, out.What = declared(&s.Declared, rule, fault, max(1, out.Servers))
	switch {
	case t == nil:
	case out.Trials == 0, out.Verdict == history.Inconclusive && out.Broken == 0:
		out.Verdict = history.Inconclusive
	case out.Broken == 0:
		out.Verdict, out.Reason = history.Held, ""
	case out.Declared:
		out.Verdict, out.Reason = history.Broken, ""
	default:
		out.Verdict, out.Reason = history.Undeclared, ""
	}
	return out
}

// headline says what was broken: what is declared, and two at once, declared or not.
func headline(r *history.Report) (bad int, says string) {
	said := map[history.Verdict][]string{}
	tried := 0
	for i, s := range r.Run.Services {
		for _, rule := range rules {
			faults := map[history.Verdict][]string{} // of which that was said
			for _, row := range r.Rows {
				if c := &row.Cells[i]; row.Rule == rule.name {
					faults[c.Verdict] = append(faults[c.Verdict], row.Fault)
					if c.Verdict == history.Broken || c.Verdict == history.Held && c.Declared {
						tried++
					}
				}
			}
			bad += len(faults[history.Broken])
			for v, by := range faults {
				title := rule.title
				if len(by) > 1 {
					title += fmt.Sprintf(" under %d faults", len(by))
				} else if by[0] != "" {
					title += " under " + by[0]
				}
				if v == history.Broken || rule.name == Exclusion {
					said[v] = append(said[v], s.Name+": "+title)
				}
			}
		}
	}
	others := strings.Join(said[history.Undeclared], "; ")
	switch {
	case bad > 0:
		says = fmt.Sprintf("%d of %d declared guarantees BROKEN: %s", bad, tried,
			strings.Join(said[history.Broken], "; "))
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
