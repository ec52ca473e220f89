package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/golockers/locker/compare/internal/check"
	"github.com/golockers/locker/compare/internal/history"
)

// Table writes the report for a terminal: the rows, and below them what they do not show.
func Table(w io.Writer, r *history.Report) error {
	var out strings.Builder
	var tried []int
	var missing, where []string
	alike := map[string]int{}
	for i, s := range r.Run.Services {
		if s.Missing == "" {
			tried, where = append(tried, i), append(where, s.Name+": "+s.URL)
			alike[s.Declared.Backend]++
		} else {
			missing = append(missing, s.Name+": "+s.Missing)
		}
	}
	rows := fold(r.Rows)
	for services := range slices.Chunk(tried, 4) { // side by side: what most terminals have room for
		t := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
		line := func(title string, cell func(service int) string) {
			for _, i := range services {
				title += "\t" + cell(i)
			}
			fmt.Fprintln(t, title)
		}
		line("", func(i int) string { return r.Run.Services[i].Name })
		for _, row := range rows {
			line(row.Title, func(i int) string { return text(&row.Cells[i]) })
		}
		_ = t.Flush()
		fmt.Fprintln(&out)
	}
	if r.Trials > 0 {
		fmt.Fprint(&out, r.Headline, `

held · n       none of n faults broke it; 300 show that at most 1 in 100 do (95 %)
BROKEN k of n  promised, and broken by k of n faults
broken k of n  the same, but not promised
-, ?           not tried, inconclusive: the page says why
Each fault hits several locks and counts once. Rows without a fault count rounds.
`)
	}
	var unsure []string
	for _, row := range r.Rows {
		for _, c := range row.Cells {
			if c.Verdict == history.Inconclusive {
				unsure = append(unsure, fmt.Sprintf("%s, %s: %s", c.Service, row.Title, c.Reason))
			}
		}
	}
	note := func(title string, all []string) {
		if len(all) > 0 {
			fmt.Fprintf(&out, "\n%s:\n  %s\n", title, strings.Join(all, "\n  "))
		}
	}
	if len(alike) < len(where) {
		note("Services", where)
	}
	note("Inconclusive", unsure)
	note("Not tried", missing)
	_, err := io.WriteString(w, out.String())
	return err
}

// text is a cell in a few words.
func text(c *history.Cell) string {
	switch c.Verdict {
	case history.Held:
		return fmt.Sprintf("held · %d", c.Trials)
	case history.Broken, history.Undeclared:
		return fmt.Sprintf("%s %d of %d", c.Verdict, c.Broken, c.Trials)
	case history.Inconclusive:
		return "?"
	}
	return "-"
}

// fold joins the rows of one rule in which nothing was broken into one; for the first rule, only those
// that were not tried anywhere, because readers want to see the others.
func fold(rows []history.Row) (out []history.Row) {
	at, count := map[string]int{}, map[string]int{}
	for _, row := range rows {
		loud := slices.ContainsFunc(row.Cells, func(c history.Cell) bool {
			return c.Verdict != history.NotTried && (row.Rule == check.Exclusion || c.Verdict != history.Held)
		})
		if loud {
			out = append(out, row)
			continue
		}
		if count[row.Rule]++; count[row.Rule] == 1 {
			at[row.Rule] = len(out)
			row.Cells = slices.Clone(row.Cells)
			out = append(out, row)
			continue
		}
		joined := &out[at[row.Rule]]
		rule, _, _ := strings.Cut(row.Title, ":")
		joined.Title = fmt.Sprintf("%s: %d ways", rule, count[row.Rule])
		for j, c := range row.Cells {
			if c.Verdict == history.Held {
				joined.Cells[j].Verdict = history.Held
				joined.Cells[j].Trials += c.Trials
			}
		}
	}
	return out
}
