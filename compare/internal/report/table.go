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

// Table writes the report for a terminal that is so many columns wide (0: it is none, the lines may be
// as long as they like). With bold, what stands out does so by escape sequences, too.
func Table(w io.Writer, r *history.Report, width int, bold bool) error {
	t := &table{bold: bold, units: true, rows: fold(r.Rows)}
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
	// As many services beside each other as there is room for; what is counted is said in each cell if
	// that leaves room.
	room := cmp.Or(width, math.MaxInt) - title
	t.units = len(t.fit(r, tried, room)) == len(tried)
	for len(tried) > 0 {
		widths := t.fit(r, tried, room)
		n := len(widths)
		t.write(strings.Repeat(" ", title), tried[:n], widths,
			func(i int) (string, bool) { return r.Run.Services[i].Name, true })
		for j := range t.rows {
			row := &t.rows[j]
			bad := slices.ContainsFunc(tried[:n], func(i int) bool { return row.Cells[i].Bad() })
			// A long name goes on below, so that rows that differ have names that differ.
			names := wrap(row.Title, title)
			t.write(t.strong(pad(names[0], title), bad), tried[:n], widths,
				func(i int) (string, bool) { return t.text(row, i), row.Cells[i].Bad() })
			for _, name := range names[1:] {
				t.line("%s", t.strong(name, bad))
			}
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

func (t *table) strong(s string, is bool) string {
	if is && t.bold {
		return "\x1b[1m" + s + "\x1b[0m"
	}
	return s
}

// write writes a line of the table: its name, and a cell for each service.
func (t *table) write(name string, services, widths []int, cell func(i int) (text string, strong bool)) {
	for k, i := range services {
		text, strong := cell(i)
		after := ""
		if n := widths[k] - utf8.RuneCountInString(text); k < len(services)-1 && n > 0 {
			after = strings.Repeat(" ", n)
		}
		name += "  " + t.strong(text, strong) + after
	}
	t.line("%s", name)
}

// pad is s in width columns, or what it takes.
func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(s)))
}

// wrap is a text in lines of at most width columns, all but the first indented.
func wrap(s string, width int) (lines []string) {
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

// fold joins the rows of one rule in which nothing was broken into one; of the first rule only those
// that could not be tried anywhere: what was tried there is what everybody asks about.
func fold(rows []history.Row) (out []history.Row) {
	at, count := map[string]int{}, map[string]int{}
	for _, row := range rows {
		quiet := !slices.ContainsFunc(row.Cells, func(c history.Cell) bool {
			return c.Verdict != history.NotTried && (row.Rule == exclusion || c.Verdict != history.Held)
		})
		if !quiet {
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
		ways := "ways"
		if row.Rule == exclusion {
			ways = "other ways"
		}
		joined.Fault, joined.Title = "", fmt.Sprintf("%s: %d %s", rule, count[row.Rule], ways)
		for j, c := range row.Cells {
			if c.Verdict == history.Held {
				joined.Cells[j].Verdict = history.Held
				joined.Cells[j].Trials += c.Trials
			}
		}
	}
	return out
}

// notes are what stands below the table.
func (t *table) notes(r *history.Report, width int) {
	say := func(title, indent string, notes ...string) {
		if title != "" && len(notes) > 0 {
			t.line("\n%s", title)
		}
		for _, note := range notes {
			for _, line := range wrap(note, width-len(indent)) {
				t.line("%s", indent+line)
			}
		}
	}
	if r.Trials > 0 {
		say("", "", r.Headline+".")
		t.line("")
		say("", "", "held · n: none of n faults broke it (several locks share each), so at most 3 of n such "+
			"faults do (95 % sure). BROKEN k of n: declared, and broken by k of n faults. broken k of n: the "+
			"same, where the service does not declare it. "+
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
	say(t.strong("Declared, and BROKEN:", true), "  ", bad...)
	say("Nothing can be said of:", "  ", unsure...)
	say("Not tried at all:", "  ", missing...)
}
