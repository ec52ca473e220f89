package main

import (
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// row is one line of the table.
type row struct {
	value    string // the ratio, or the number
	spread   string // of the rounds
	target   string
	verdict  string // met, missed, or nothing
	topic    string
	measured string
	isRatio  bool
}

const (
	raw         = "raw"
	ours        = "locker"
	perOp       = "ns/op"
	targetTime  = "target-time"
	targetSpeed = "target-speed"
	targetOf    = "target:"
)

// rowsOf compares the contenders of each topic. Ratios stand first.
func rowsOf(topics []*topic) []row {
	var rows []row
	for _, t := range topics {
		locker := t.find(ours)
		if locker == nil {
			continue
		}
		base := t.find(raw)
		if first := t.contenders[0]; base == nil && first != locker {
			base = first
		}
		for _, c := range t.contenders {
			name := path.Base(t.pkg) + " " + t.name
			if c != locker {
				name += " (" + c.name + ")"
			}
			targets := metrics{}
			if c == locker {
				targets = c.rounds[0]
			}
			if base != nil && c != base {
				if r, ok := compare(c, base, locker.rounds[0], c == locker); ok {
					r.topic = name
					rows = append(rows, r)
				}
			}
			for _, r := range numbers(c, targets, base != nil) {
				r.topic = name
				rows = append(rows, r)
			}
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int {
		switch {
		case a.isRatio == b.isRatio:
			return 0
		case a.isRatio:
			return -1
		}
		return 1
	})
	return rows
}

// compare is the row of c's time per operation beside the base's, round by round. The
// target, if it is c's own, decides which way round the ratio is.
func compare(c, base *contender, targets metrics, own bool) (row, bool) {
	minimum, speed := targets[targetSpeed]
	maximum, limited := targets[targetTime]
	var ratios, times, baseTimes []float64
	for i := range min(len(c.rounds), len(base.rounds)) {
		mine, theirs := c.rounds[i][perOp], base.rounds[i][perOp]
		if mine == 0 || theirs == 0 {
			return row{}, false
		}
		times, baseTimes = append(times, mine), append(baseTimes, theirs)
		if speed {
			ratios = append(ratios, theirs/mine)
		} else {
			ratios = append(ratios, mine/theirs)
		}
	}
	r := row{isRatio: true, value: fmt.Sprintf("%.2f", median(ratios)), spread: spread(ratios, "%.2f")}
	if speed {
		r.measured = fmt.Sprintf("%.0f/s, %s %.0f/s", 1e9/median(times), base.name, 1e9/median(baseTimes))
		if own {
			r.target, r.verdict = fmt.Sprintf(">= %.2f", minimum), verdict(median(ratios) >= minimum)
		}
		return r, true
	}
	r.measured = fmt.Sprintf("%v, %s %v", duration(median(times)), base.name, duration(median(baseTimes)))
	if own && limited {
		r.target, r.verdict = fmt.Sprintf("<= %.2f", maximum), verdict(median(ratios) <= maximum)
	}
	return r, true
}

// numbers are the rows of what else c reports: what has a target first.
func numbers(c *contender, targets metrics, compared bool) (rows []row) {
	var units []string
	for unit := range c.rounds[0] {
		switch {
		case strings.HasPrefix(unit, "target"), unit == "B/op", unit == "allocs/op", unit == "MB/s":
		case unit == perOp && compared:
		default:
			units = append(units, unit)
		}
	}
	slices.SortFunc(units, func(a, b string) int {
		_, hasA := targets[targetOf+a]
		_, hasB := targets[targetOf+b]
		if hasA != hasB {
			if hasA {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	for _, unit := range units {
		var values []float64
		for _, m := range c.rounds {
			if v, ok := m[unit]; ok {
				values = append(values, v)
			}
		}
		r := row{value: number(median(values)), spread: spread(values, ""), measured: unit}
		if unit == perOp {
			r.value, r.spread, r.measured = duration(median(values)).String(), "", "per operation"
		}
		if limit, ok := targets[targetOf+unit]; ok {
			r.target, r.verdict = "<= "+number(limit), verdict(median(values) <= limit)
		}
		rows = append(rows, r)
	}
	return rows
}

func verdict(met bool) string {
	if met {
		return "met"
	}
	return "missed"
}

func median(values []float64) float64 {
	v := slices.Sorted(slices.Values(values))
	if len(v)%2 == 0 {
		return (v[len(v)/2-1] + v[len(v)/2]) / 2
	}
	return v[len(v)/2]
}

// spread is where the middle half of the rounds lies: a busy machine makes a few
// that mean nothing. For a single round it is nothing.
func spread(values []float64, format string) string {
	n := len(values)
	if n < 2 {
		return ""
	}
	show := number
	if format != "" {
		show = func(v float64) string { return fmt.Sprintf(format, v) }
	}
	v := slices.Sorted(slices.Values(values))
	return show(v[n/4]) + "-" + show(v[n-1-n/4])
}

// number prints three digits that count, and all of a whole number.
func number(v float64) string {
	if v >= 100 || v <= -100 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

func duration(ns float64) time.Duration {
	d := time.Duration(ns)
	switch {
	case d > time.Second:
		return d.Round(10 * time.Millisecond)
	case d > time.Millisecond:
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(100 * time.Nanosecond)
}

func write(out io.Writer, rows []row) error {
	if len(rows) == 0 {
		return errors.New("no benchmark with a contender \"locker\" in the input")
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	heads := []string{"ratio\trounds\ttarget\t\tbenchmark\tmedians", "value\trounds\ttarget\t\tbenchmark\tunit"}
	for i, r := range rows {
		if i == 0 || r.isRatio != rows[i-1].isRatio {
			if i > 0 {
				fmt.Fprintln(w, "\t\t\t\t\t")
			}
			head := heads[1]
			if r.isRatio {
				head = heads[0]
			}
			fmt.Fprintln(w, head)
		}
		fmt.Fprintln(w, strings.Join([]string{r.value, r.spread, r.target, r.verdict, r.topic, r.measured}, "\t"))
	}
	return w.Flush()
}
