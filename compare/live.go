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
	benches []*bench        // and what is told of them
	told    map[string]bool // what has been said to be broken
	drawn   int             // lines on the screen
}

func newLive(out io.Writer, tries time.Duration, benches []*bench) *live {
	l := &live{out: out, began: time.Now(), until: "until everything was tried once",
		benches: benches, told: map[string]bool{}, stop: func() {}}
	if tries > 0 {
		l.until += fmt.Sprintf(", and for %v", tries)
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
		for _, b := range l.benches {
			fmt.Fprintf(&s, "%-12s %5d tries  %s\x1b[K\n", b.name, b.over, b.doing)
		}
		fmt.Fprintf(&s, "%v, %s\x1b[K\n", time.Since(l.began).Round(time.Second), l.until)
		l.drawn = len(l.benches) + 1
	}
	_, _ = io.WriteString(l.out, s.String())
}

// say writes a line that stays.
func (l *live) say(format string, args ...any) {
	after := time.Since(l.began).Round(100 * time.Millisecond)
	l.write(fmt.Sprintf("%6s  %s\n", after, fmt.Sprintf(format, args...)))
}

// now says what is done with a service, and that so many rounds more are over.
func (l *live) now(b *bench, what string, over int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b.doing, b.over = what, b.over+over
}

// did says that a round is over.
func (l *live) did(b *bench, what string, err error) {
	l.now(b, what, 1)
	if err != nil {
		l.say("%s: %s: %v", b.name, what, err)
	} else if !l.terminal {
		l.say("%s: %s: done", b.name, what)
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
