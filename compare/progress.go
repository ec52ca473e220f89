package compare

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"
)

// progress is one line at the end of a terminal, redrawn in place: how much was tried, and how long
// the rest takes. The methods are called with the run's mutex held.
type progress struct {
	on    bool
	drawn string
}

// draw replaces the line; "" removes it.
func (p *progress) draw(w io.Writer, line string) {
	if p.on && line != p.drawn {
		fmt.Fprintf(w, "\r%*s\r%s", utf8.RuneCountInString(p.drawn), "", line)
		p.drawn = line
	}
}

// isTerminal reports whether a line written to w can be redrawn.
func isTerminal(w io.Writer) bool {
	f, _ := w.(*os.File)
	info, err := f.Stat() // an error if f is nil
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// share is how much of a service's tasks was tried once, and when the last of them ended.
type share struct {
	tried, of int
	last      time.Time
}

// progressLine describes the progress of a run that began then, with these shares and repeats. The run
// continues until everything was tried, and at least until end.
func progressLine(shares []share, repeats int, began, now, end time.Time) string {
	var all share
	left, known := end.Sub(now), true
	estimate := func(s share) {
		left = max(left, s.last.Sub(began)*time.Duration(s.of-s.tried)/time.Duration(s.tried)-now.Sub(s.last))
	}
	for _, s := range shares {
		if all.tried, all.of = all.tried+s.tried, all.of+s.of; s.last.After(all.last) {
			all.last = s.last
		}
		if s.tried > 0 {
			estimate(s)
		} else if s.of > 0 {
			known = false
		}
	}
	switch {
	case all.of == 0:
		return "starting the services"
	case all.tried == 0:
		return fmt.Sprintf("0 of %d trials", all.of)
	case !known:
		estimate(all)
	}
	var line strings.Builder
	fmt.Fprintf(&line, "%d of %d trials", all.tried, all.of)
	if repeats > 0 {
		fmt.Fprintf(&line, ", %d repeated", repeats)
	}
	switch step := time.Second; {
	case left <= 0 && all.tried == all.of:
		line.WriteString(" · ending")
	default:
		if left > 2*time.Minute {
			step = 10 * time.Second
		}
		fmt.Fprintf(&line, " · about %v left", max(left, time.Second).Round(step))
	}
	return line.String()
}
