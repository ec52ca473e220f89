package compare

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/golockers/locker/compare/internal/check"
	"github.com/golockers/locker/compare/internal/history"
)

var rules = []string{
	check.Exclusion, check.Told, check.Stale, check.Guarded, check.Tokens, check.Dead, check.Left, check.Served,
	check.FalseLoss, check.Order, check.Hangs,
}

func isRule(s string) bool { return slices.Contains(rules, s) }

func publish(report *history.Report, dir string, out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprint(w, "row")
	for _, s := range report.Run.Services {
		fmt.Fprintf(w, "\t%s", s.Name)
	}
	fmt.Fprintln(w)
	for _, row := range report.Rows {
		fmt.Fprint(w, row.Title)
		for _, c := range row.Cells {
			switch {
			case c.Verdict == history.NotTried || c.Verdict == history.Inconclusive:
				fmt.Fprintf(w, "\t%s", c.Verdict)
			default:
				fmt.Fprintf(w, "\t%s %d/%d %s", c.Verdict, c.Broken, c.Trials, c.Worst)
			}
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush()
	fmt.Fprintln(out, dir)
	return report.Save(dir)
}
