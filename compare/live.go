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

// live tells people what is done. On a terminal it draws a line for each service again and again;
// elsewhere it writes a line for each round that is over.
type live struct {
	out      io.Writer
	terminal bool
	began    time.Time
	until    string // for how long, in words
	stop     func() // drawing

	mu      sync.Mutex
	columns []*column
	told    map[string]bool // what has been said to be broken
	drawn   int             // lines on the screen
}

// column is one service.
type column struct {
	name, doing string
	rounds      int // that are over
}

func newLive(out io.Writer, tries time.Duration, benches []*bench) *live {
	l := &live{out: out, began: time.Now(), until: "until everything was tried once",
		told: map[string]bool{}, stop: func() {}}
	if tries > 0 {
		l.until += fmt.Sprintf(", and for %v", tries)
	}
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
		fmt.Fprintf(&s, "%v, %s\x1b[K\n", time.Since(l.began).Round(time.Second), l.until)
		l.drawn = len(l.columns) + 1
	}
	_, _ = io.WriteString(l.out, s.String())
}

// say writes a line that stays.
func (l *live) say(format string, args ...any) {
	after := time.Since(l.began).Round(100 * time.Millisecond)
	l.write(fmt.Sprintf("%6s  %s\n", after, fmt.Sprintf(format, args...)))
}

// now says what is done with a service.
func (l *live) now(service int, what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.columns[service].doing = what
}

// did says that what was done is over.
func (l *live) did(service int, what string, err error) {
	c := l.columns[service]
	l.mu.Lock()
	c.rounds++
	l.mu.Unlock()
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
