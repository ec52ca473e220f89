package report

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/golockers/locker/compare/internal/history"
)

// Table writes the report for a terminal that is so many columns wide (0: it is
// none, the lines may be as long as they like). With bold, what stands out does
// so by escape sequences, too.
func Table(w io.Writer, r *history.Report, width int, bold bool) error {
	t := &table{bold: bold, rows: fold(r.Rows)}
	title := 0
	for i := range t.rows {
		title = max(title, utf8.RuneCountInString(t.rows[i].Title))
	}
	if width > 0 {
		title = min(title, max(width*2/5, 24))
	}
	var tried []int
	for i, s := range r.Run.Services {
		if s.Missing == "" {
			tried = append(tried, i)
		}
	}
	// As many services beside each other as there is room for; what is counted is said in each cell if that
	// leaves room.
	room := cmp.Or(width, math.MaxInt) - title
	if t.units = true; len(t.fit(r, tried, room)) < len(tried) {
		t.units = false
	}
	for len(tried) > 0 {
		widths := t.fit(r, tried, room)
		n := len(widths)
		t.head(r, tried[:n], title, widths)
		for j := range t.rows {
			t.row(&t.rows[j], tried[:n], title, widths)
		}
		t.line("")
		tried = tried[n:]
	}
	t.notes(r, cmp.Or(width, 100))
	_, err := io.WriteString(w, t.out.String())
	return err
}

type table struct {
	out   strings.Builder
	bold  bool
	units bool // each cell says what it counts
	rows  []history.Row
}

// fit is how wide the columns are for which there is room: one at least.
func (t *table) fit(r *history.Report, services []int, room int) (widths []int) {
	for _, i := range services {
		column := utf8.RuneCountInString(r.Run.Services[i].Name)
		for j := range t.rows {
			column = max(column, utf8.RuneCountInString(t.text(&t.rows[j], i)))
		}
		if room -= column + 2; room < 0 && len(widths) > 0 {
			break
		}
		widths = append(widths, column)
	}
	return widths
}

func (t *table) line(format string, args ...any) { fmt.Fprintf(&t.out, format+"\n", args...) }

func (t *table) strong(s string) string {
	if t.bold {
		return "\x1b[1m" + s + "\x1b[0m"
	}
	return s
}

// pad is s in width columns, cut if it is longer.
func pad(s string, width int) string {
	if n := utf8.RuneCountInString(s); n < width {
		return s + strings.Repeat(" ", width-n)
	} else if n > width {
		return string([]rune(s)[:width-1]) + "…"
	}
	return s
}

func (t *table) head(r *history.Report, columns []int, title int, widths []int) {
	line := pad("", title)
	for k, i := range columns {
		line += t.cell(r.Run.Services[i].Name, widths[k], k == len(columns)-1, true)
	}
	t.line("%s", line)
}

func (t *table) row(row *history.Row, columns []int, title int, widths []int) {
	bad := false
	line := ""
	for k, i := range columns {
		c := &row.Cells[i]
		bad = bad || c.Bad()
		line += t.cell(t.text(row, i), widths[k], k == len(columns)-1, c.Bad())
	}
	// A long name goes on below, so that rows that differ have names that differ.
	for i, name := range broken(row.Title, title) {
		if name = pad(name, title); bad {
			name = t.strong(name)
		}
		if i > 0 {
			line = ""
			name = strings.TrimRight(name, " ")
		}
		t.line("%s", name+line)
	}
}

// broken is a text in lines of at most width columns, all but the first indented.
func broken(s string, width int) (lines []string) {
	line := ""
	for _, word := range strings.Fields(s) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line+" "+word) > width:
			lines = append(lines, line)
			line = "  " + word
		default:
			line += " " + word
		}
		for utf8.RuneCountInString(line) > width {
			lines = append(lines, string([]rune(line)[:width]))
			line = "  " + string([]rune(line)[width:])
		}
	}
	return append(lines, line)
}

// cell is s in a column; the last one needs no spaces after it.
func (t *table) cell(s string, width int, last, strong bool) string {
	after := ""
	if n := utf8.RuneCountInString(s); n > width {
		s = pad(s, width)
	} else if !last {
		after = strings.Repeat(" ", width-n)
	}
	if strong {
		s = t.strong(s)
	}
	return "  " + s + after
}

// text is a cell in a word or two.
func (t *table) text(row *history.Row, service int) string {
	c := &row.Cells[service]
	switch c.Verdict {
	case history.Held:
		s := fmt.Sprintf("held · %d", c.Trials)
		if t.units && row.Fault != "" {
			s += " fault"
			if c.Trials > 1 {
				s += "s"
			}
		}
		return s
	case history.Broken, history.Undeclared:
		return fmt.Sprintf("%s %d of %d", c.Verdict, c.Broken, c.Trials)
	case history.Inconclusive:
		return "?"
	}
	return "-"
}

const exclusion = "exclusion"

// fold joins the rows of one rule in which nothing was broken into one; of the
// first rule only those that nobody could try: what was tried there is what
// everybody asks about.
func fold(rows []history.Row) (out []history.Row) {
	at := make(map[string]int)
	count := make(map[string]int)
	for _, row := range rows {
		quiet := !slices.ContainsFunc(row.Cells, func(c history.Cell) bool {
			return c.Verdict != history.NotTried && (row.Rule == exclusion || c.Verdict != history.Held)
		})
		i, ok := at[row.Rule]
		switch {
		case !quiet:
			out = append(out, row)
		case !ok:
			at[row.Rule] = len(out)
			row.Cells = slices.Clone(row.Cells)
			out = append(out, row)
			count[row.Rule] = 1
		default:
			count[row.Rule]++
			out[i].Fault = ""
			rule, _, _ := strings.Cut(row.Title, ":")
			ways := "ways"
			if row.Rule == exclusion {
				ways = "other ways"
			}
			out[i].Title = fmt.Sprintf("%s: %d %s", rule, count[row.Rule], ways)
			for j, c := range row.Cells {
				if c.Verdict == history.Held {
					to := &out[i].Cells[j]
					to.Verdict = history.Held
					to.Trials += c.Trials
				}
			}
		}
	}
	return out
}

// notes are what stands below the table.
func (t *table) notes(r *history.Report, width int) {
	if r.Trials > 0 {
		t.wrap(width, "", r.Headline+".")
		t.line("")
		t.wrap(width, "", "held · n: none of n faults broke it (several locks share each), so at most 3 of "+
			"n such faults do (95 % sure). "+
			"BROKEN k of n: declared, and broken by k of n faults. broken k of n: the same, where the "+
			"service does not declare it. "+
			"Rows without a fault count rounds. -: not tried. ?: inconclusive.")
	}
	var bad, unsure, missing []string
	for _, row := range r.Rows {
		for i := range row.Cells {
			switch c := &row.Cells[i]; {
			case c.Bad():
				bad = append(bad, fmt.Sprintf("%s, %s: %d of %d. The worst: %s (trial %s). Declared: %s.",
					c.Service, row.Title, c.Broken, c.Trials, c.Worst, c.Witness.Trial, c.What))
			case c.Verdict == history.Inconclusive:
				unsure = append(unsure, fmt.Sprintf("%s, %s: %s", c.Service, row.Title, c.Reason))
			}
		}
	}
	for _, s := range r.Run.Services {
		if s.Missing != "" {
			missing = append(missing, s.Name+": "+s.Missing)
		}
	}
	t.section(t.strong("Declared, and BROKEN:"), bad, width)
	t.section("Nothing can be said of:", unsure, width)
	t.section("Not tried at all:", missing, width)
}

func (t *table) section(title string, notes []string, width int) {
	if len(notes) > 0 {
		t.line("\n%s", title)
	}
	for _, note := range notes {
		t.wrap(width, "  ", note)
	}
}

// wrap writes a text in lines of at most width columns.
func (t *table) wrap(width int, indent, s string) {
	for _, line := range broken(s, width-len(indent)) {
		t.line("%s", indent+line)
	}
}
