package compare

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/golockers/locker/compare/internal/check"
	"github.com/golockers/locker/compare/internal/history"
	"github.com/golockers/locker/compare/internal/report"
)

var rules = []string{
	check.Exclusion, check.Told, check.Stale, check.Guarded, check.Tokens, check.Dead, check.Left, check.Served,
	check.FalseLoss, check.Order, check.Hangs,
}

func isRule(s string) bool { return slices.Contains(rules, s) }

// show prints the table, and where the page is.
func show(r *history.Report, dir string, out io.Writer) error {
	width := 0
	if f, ok := out.(*os.File); ok {
		width = report.Width(f)
	}
	if err := report.Table(out, r, width, width > 0); err != nil {
		return err
	}
	page := filepath.Join(dir, history.PageFile)
	_, err := os.Stat(page)
	if err == nil && r.Trials > 0 {
		fmt.Fprintf(out, "\nThe trials, as pictures: %s\n", page)
	}
	return nil
}
