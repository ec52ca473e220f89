package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/golockers/locker/compare/internal/history"
	"github.com/golockers/locker/internal/vocabulary"
)

// The rules: what is judged, in the words of [vocabulary] if a service declares it.
const (
	Exclusion = "exclusion"
	Told      = "told"
	Fencing   = "fencing"
	Freed     = "freed"
	Served    = "served"
	Kept      = "kept"
)

// Rule is one rule.
type Rule struct {
	Name, Means string
	figure      string // what a trial that held shows: for a cell the greatest or, with
	least       bool   // least, the least
}

// Rules are all rules, in the order of the table.
func Rules() []Rule {
	return []Rule{
		{Name: Exclusion, Means: vocabulary.Means(Exclusion)},
		{Name: Told, Means: "a holder learns that its lock is lost before the next one gets it", least: true,
			figure: "learned of it %s before the next holder"},
		{Name: Fencing, Means: vocabulary.Means(Fencing)},
		{Name: Freed, Means: vocabulary.Means(Freed), figure: "at most %s"},
		{Name: Served, Means: vocabulary.Means(Served), figure: "again after %s"},
		{Name: Kept, Means: "a holder does not lose a lock that it renews"},
	}
}

// declared reports whether g promises a rule under a fault, or without one, and describes the promise.
func declared(g *history.Guarantees, rule string, fault history.Fault, servers int) (bool, string) {
	excludes := g.Exclusion != "none" && g.Exclusion != "" && g.Scope != "none" && g.Scope != "process"
	survives, what := true, ""
	switch fault.Class {
	case history.Restart:
		survives, what = g.SurvivesRestart, fault.ID
	case history.Failover:
		survives, what = g.SurvivesFailover, fault.ID
	case history.Clock:
		survives, what = g.SurvivesClockJump, fault.ID
	case history.Pause:
		survives, what = g.SurvivesPause, fault.ID
	case history.DataLost:
		survives, what = false, "the loss of data"
	}
	if what != "" {
		what = map[bool]string{true: "survives ", false: "does not survive "}[survives] + what
	}
	switch rule {
	case Exclusion, Told:
		if !excludes {
			return false, "no exclusion between processes"
		}
		return survives, cmp.Or(what, "exclusion by "+g.Exclusion)
	case Fencing:
		switch g.Fencing {
		case "unless data is set back": // as a lagging replica does
			set := fault.Class == history.DataLost || fault.Class == history.Failover && !survives
			return !set, "tokens increase unless data is set back"
		case "while data is kept":
			return survives, "tokens increase while data is kept"
		}
		return false, "no tokens"
	case Freed:
		when := g.DeadHolder
		if when == watched {
			when = "after a client has watched it for the TTL"
		}
		return g.DeadHolder != "none" && g.DeadHolder != "",
			fmt.Sprintf("a dead holder's lock is free %s, at most %g s later", when, g.DeadHolderSlackMS/1000)
	case Served:
		return servers <= g.ServerCrashes, fmt.Sprintf("%d may be down", g.ServerCrashes)
	}
	return excludes && fault.Class == "", "a renewed lease lasts"
}

const maxOutcomes = 40 // of a cell

// collect adds a trial's findings, and returns which cells it is the first to break, and whether something of it was set
// aside. aside is why it must not be counted.
func (c *Checker) collect(t *trial, aside string) (news []string, some bool) {
	if t.fault != "" && t.shown == 0 {
		aside = cmp.Or(aside, "the fault had no visible effect")
	}
	for _, rule := range Rules() {
		f := t.findings[rule.Name]
		if f == nil || !f.applies {
			continue
		}
		in := place{t.service.Name, rule.Name, t.fault}
		cell := c.cells[in]
		if cell == nil {
			cell = &history.Cell{}
			c.cells[in] = cell
		}
		cell.Servers = max(cell.Servers, t.servers)
		o := history.Outcome{Trial: t.id}
		switch worst, excuse := t.counted(f); {
		case worst != nil && (aside == "" || rule.Name == Exclusion):
			// Two holders at once are a fact, whatever else went wrong in a trial.
			if cell.Broken == 0 {
				news = append(news, t.service.Name+": broken: "+rule.Name+": "+worst.says)
			}
			cell.Trials++
			cell.Broken++
			o.Broken, o.Note, o.NS = true, worst.says, worst.to-worst.from
			if cell.Witness == nil || o.NS > cell.WorstNS {
				cell.Witness, cell.WorstNS, cell.Worst = t.witness(worst), o.NS, o.Note
			}
		case aside != "" || len(f.breaks) > 0:
			cell.Set++
			if cell.Reason = cmp.Or(aside, excuse); rule.Name == Kept && t.fault == "" && aside == "" {
				cell.Verdict = history.Inconclusive // whatever other rounds show, a lease was lost
			}
			o.Aside, o.Note, some = true, cell.Reason, true
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
	return news, some
}

// Report has the rows, the worst first: all rules, and those under a fault that were tried on any
// service; for exclusion, under each fault.
func (c *Checker) Report() *history.Report {
	r := &history.Report{Version: 1, Run: *c.run, Trials: c.trials}
	for _, rule := range Rules() {
		before := len(r.Rows)
		for _, f := range append([]history.Fault{{}}, c.run.Faults...) { // the first is no fault
			row := history.Row{ID: strings.TrimSuffix(rule.Name+"/"+f.ID, "/"), Rule: rule.Name, Fault: f.ID}
			row.Title = rule.Name + ": " + cmp.Or(f.ID, "healthy")
			if c.fill(&row, f) || rule.Name == Exclusion {
				r.Rows = append(r.Rows, row)
			}
		}
		if len(r.Rows) == before {
			row := history.Row{ID: rule.Name, Rule: rule.Name, Title: rule.Name}
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

// fill fills in the cells of a row, and reports whether any was tried.
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
	out := history.Cell{Verdict: history.NotTried, Reason: "no trial could show it"}
	switch {
	case t != nil:
		out = *t
	case s.Missing != "":
		out.Reason = s.Missing
	case s.Untried[fault.ID] != "":
		out.Reason = s.Untried[fault.ID]
	case rule == Fencing && s.Declared.Fencing == "none":
		out.Reason = "leases carry no token"
	case rule == Told && (fault.Class == history.Stopped || fault.Class == history.Killed):
		out.Reason = "a holder that does not run cannot learn of it"
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

// headline says what was broken: promises, and exclusion even where it is not promised.
func headline(r *history.Report) (bad int, says string) {
	var broken, others []string
	checked, unsure := 0, 0
	for i, s := range r.Run.Services {
		faults := map[[2]string][]string{} // by rule and verdict
		for _, row := range r.Rows {
			c := &row.Cells[i]
			of := [2]string{row.Rule, string(c.Verdict)}
			faults[of] = append(faults[of], row.Fault)
			switch {
			case c.Verdict == history.Broken:
				bad++
				checked++
			case c.Verdict == history.Held && c.Declared:
				checked++
			case c.Verdict == history.Inconclusive && c.Declared:
				unsure++
			}
		}
		for _, rule := range Rules() {
			if of := faults[[2]string{rule.Name, string(history.Broken)}]; len(of) > 0 {
				broken = append(broken, s.Name+": "+rule.Name+" "+under(of, nil))
			}
		}
		if of := faults[[2]string{Exclusion, string(history.Undeclared)}]; len(of) > 0 {
			others = append(others, s.Name+" let two holders in "+under(of, r.Run.Faults))
		}
	}
	var all []string
	switch {
	case bad > 0:
		all = append(all, fmt.Sprintf("%d of %d promises BROKEN: %s.", bad, checked, strings.Join(broken, "; ")))
	case checked > 0:
		all = append(all, fmt.Sprintf("No service broke a promise: %d checked.", checked))
	default:
		all = append(all, "No promise could be checked.")
	}
	if unsure > 0 {
		all[0] = strings.TrimSuffix(all[0], ".") + fmt.Sprintf(", and %d inconclusive.", unsure)
	}
	if len(others) > 0 {
		who := map[bool]string{true: "it does", false: "they do"}[len(others) == 1]
		all = append(all, fmt.Sprintf("%s, which %s not promise to prevent.", and(others), who))
	}
	if bad == 0 {
		slices.Reverse(all)
	}
	return bad, strings.Join(all, " ")
}

// under describes faults, by their IDs, in the words of known.
func under(ids []string, known []history.Fault) string {
	var each []string
	for _, id := range ids {
		words := "under " + id
		if at := slices.IndexFunc(known, func(f history.Fault) bool { return f.ID == id }); at >= 0 {
			words = cmp.Or(known[at].When, words)
		} else if id == "" {
			words = "without a fault"
		}
		each = append(each, words)
	}
	if len(each) > 3 {
		return fmt.Sprintf("under %d faults", len(each))
	}
	return and(each)
}

func and(all []string) string {
	last := len(all) - 1
	if last == 0 {
		return all[0]
	}
	return strings.Join(all[:last], ", ") + " and " + all[last]
}
