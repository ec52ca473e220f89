package compare

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/golockers/locker/compare/internal/history"
	"github.com/golockers/locker/internal/stall"
)

// live tells people what is done. On a terminal it draws a line for each service again and again; elsewhere it writes
// a line for each round that is over.
type live struct {
	out      io.Writer
	terminal bool
	began    time.Time
	stop     func() // drawing

	mu      sync.Mutex
	columns []*column
	told    map[string]bool // what has been said to be broken
	end     time.Time       // of the run; zero: when everything was tried once
	rounds  int             // that are over
	took    time.Duration   // all of them
	drawn   int             // lines on the screen
}

// column is one service.
type column struct {
	name    string
	doing   string
	since   time.Time
	untried int // what is still to be tried for the first time
	rounds  int // that are over
}

func newLive(out io.Writer, benches []*bench) *live {
	l := &live{out: out, began: time.Now(), told: map[string]bool{}, stop: func() {}}
	for _, b := range benches {
		l.columns = append(l.columns, &column{name: b.name})
	}
	if f, ok := out.(*os.File); ok && os.Getenv("TERM") != "dumb" {
		info, err := f.Stat()
		l.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	if l.terminal {
		l.stop = stall.Every(200*time.Millisecond, func() { l.write("") })
	}
	return l
}

// write writes a line that stays, if it is one, and draws what is done below it.
func (l *live) write(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var s strings.Builder
	if l.drawn > 0 {
		fmt.Fprintf(&s, "\x1b[%dA\x1b[J", l.drawn)
		l.drawn = 0
	}
	s.WriteString(line)
	if l.terminal {
		for _, c := range l.columns {
			fmt.Fprintf(&s, "%-12s %5d tries  %s\x1b[K\n", c.name, c.rounds, c.doing)
		}
		fmt.Fprintf(&s, "%v, %s\x1b[K\n", time.Since(l.began).Round(time.Second), l.remaining())
		l.drawn = len(l.columns) + 1
	}
	_, _ = io.WriteString(l.out, s.String())
}

// remaining says how long it still takes, if what was not tried yet takes as long as what was. The mutex is held.
func (l *live) remaining() string {
	still := time.Until(l.end)
	for _, c := range l.columns {
		if c.untried > 0 && l.rounds == 0 {
			return "nobody knows yet how long still"
		} else if c.untried > 0 {
			still = max(still, time.Duration(c.untried)*l.took/time.Duration(l.rounds))
		}
	}
	if still < time.Second {
		return "what is under way is the last"
	}
	return fmt.Sprintf("about %v still", still.Round(time.Second))
}

// say writes a line that stays.
func (l *live) say(format string, args ...any) {
	l.write(fmt.Sprintf("%6s  %s\n", time.Since(l.began).Round(100*time.Millisecond), fmt.Sprintf(format, args...)))
}

func (l *live) change(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

// now says what is done with a service.
func (l *live) now(service int, what string) {
	l.change(func() { l.columns[service].doing, l.columns[service].since = what, time.Now() })
}

// did says that what was done is over.
func (l *live) did(service int, what string, err error) {
	c := l.columns[service]
	l.change(func() {
		c.rounds++
		l.rounds, l.took = l.rounds+1, l.took+time.Since(c.since)
	})
	if err != nil {
		l.say("%s: %s: %v", c.name, what, err)
	} else if !l.terminal {
		l.say("%s: %s: done", c.name, what)
	}
}

// broke tells what has been broken that had not been told before.
func (l *live) broke(r *history.Report) {
	for _, row := range r.Rows {
		for _, c := range row.Cells {
			id := c.Service + "\x00" + row.ID
			if c.Broken > 0 && !l.told[id] {
				l.told[id] = true
				l.say("%s: %s: %s: %s", c.Service, row.Title, c.Verdict, c.Worst)
			}
		}
	}
}

func (l *live) close() {
	l.stop()
	l.terminal = false
	l.write("")
}
