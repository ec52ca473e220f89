package history

import "time"

// Report is the result of a run: report.json. Fields may be added, but are never renamed. Times are
// nanoseconds of the run's clock, see Event; durations are nanoseconds too.
type Report struct {
	Version int `json:"version"` // of this format: 1
	Run     Run `json:"run"`
	Trials  int `json:"trials"`
	Broken  int `json:"declared_and_broken"` // cells
	// Headline is what was broken, in a sentence: declared promises, and two holders at once wherever
	// they were seen.
	Headline string `json:"headline"`
	// Interrupted says why the run ended early, if it did.
	Interrupted string `json:"interrupted,omitempty"`
	Rows        []Row  `json:"rows"` // the worst first
}

// Row is one guarantee under one fault, over all services.
type Row struct {
	ID    string `json:"id"`    // "rule" or "rule/fault"
	Rule  string `json:"rule"`  // such as "exclusion"
	Fault string `json:"fault"` // a Fault's ID; "" for none
	Title string `json:"title"` // such as "exclusion: holder-stopped"
	Cells []Cell `json:"cells"` // in the order of Run.Services
}

// Verdict is the verdict of a cell.
type Verdict string

// Verdicts.
const (
	Held         Verdict = "held"         // tried, and never broken
	Broken       Verdict = "BROKEN"       // declared, and broken at least once
	Undeclared   Verdict = "broken"       // broken, but not declared
	NotTried     Verdict = "not tried"    // Reason says why
	Inconclusive Verdict = "inconclusive" // tried, but no trial counts; Reason says why
)

// Cell is the result for one service in one row.
type Cell struct {
	Service  string  `json:"service"`
	Verdict  Verdict `json:"verdict"`
	Declared bool    `json:"declared"`       // the service promises it
	What     string  `json:"what,omitempty"` // what it declares, in words
	// Trials are those that count. In each, one fault hits several locks, which is one observation.
	// Without a fault, it is a round of locking.
	Trials  int    `json:"trials"`
	Broken  int    `json:"broken"`              // of them, for at least one lock
	Servers int    `json:"servers,omitempty"`   // that the fault took away
	Set     int    `json:"set_aside,omitempty"` // trials that do not count: no evidence, or a stall
	Worst   string `json:"worst,omitempty"`     // in words: "two held for 1.2 s"
	WorstNS int64  `json:"worst_ns,omitempty"`
	Reason  string `json:"reason,omitempty"` // why not tried, or inconclusive
	// Outcomes are some of the trials, the broken ones and the worst first.
	Outcomes []Outcome `json:"outcomes,omitempty"`
	Witness  *Witness  `json:"witness,omitempty"` // of the worst broken trial
}

// Outcome is one trial in one cell.
type Outcome struct {
	Trial  string `json:"trial"`
	Broken bool   `json:"broken,omitempty"`
	Aside  bool   `json:"set_aside,omitempty"`
	Note   string `json:"note,omitempty"` // what was seen
	NS     int64  `json:"ns,omitempty"`   // how bad, or how long
}

// Witness is a small part of a history that shows what was broken.
type Witness struct {
	Trial  string  `json:"trial"`
	Name   string  `json:"name,omitempty"`
	From   int64   `json:"from"` // where it is broken, from
	To     int64   `json:"to"`   // and to; the same if it is a moment
	Says   string  `json:"says"` // in a sentence
	Events []Event `json:"events"`
}

// Duration formats a number of nanoseconds for people, in three digits.
func Duration(ns int64) string {
	d, step := time.Duration(ns), time.Duration(1)
	for d.Abs() >= 1000*step {
		step *= 10
	}
	return d.Round(min(step, time.Second)).String()
}
