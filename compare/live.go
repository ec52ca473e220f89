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

// live tells people what is done. On a terminal it draws a line for each service again and again; elsewhere
// it writes a line for each round that is over.
type live struct {
	out      io.Writer
	terminal bool
	began    time.Time

	mu       sync.Mutex
	services []string
	columns  map[string]*column
	told     map[string]bool // what has been said to be broken
	end      time.Time       // of the run; zero: when everything was tried once
	drawn    int             // lines on the screen
	stop     func()          // drawing
}

// column is one service.
type column struct {
	doing   string
	since   time.Time
	untried int           // what is still to be tried for the first time
	rounds  int           // that are over
	took    time.Duration // all of them
}

func newLive(out io.Writer, benches []*bench) *live {
	l := &live{
		out: out, began: time.Now(), columns: map[string]*column{}, told: map[string]bool{}, stop: func() {},
	}
	if out == nil {
		l.out = io.Discard
	}
	for _, b := range benches {
		l.services = append(l.services, b.svc.name)
		l.columns[b.svc.name] = &column{}
	}
	if f, ok := out.(*os.File); ok && os.Getenv("TERM") != "dumb" {
		info, err := f.Stat()
		l.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	if l.terminal {
		l.stop = stall.Every(200*time.Millisecond, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.draw()
		})
	}
	return l
}

// draw is called with the mutex held.
func (l *live) draw() {
	var s strings.Builder
	l.erase(&s)
	for _, name := range l.services {
		fmt.Fprintf(&s, "%-12s %5d tries  %s\x1b[K\n", name, l.columns[name].rounds, l.columns[name].doing)
	}
	fmt.Fprintf(&s, "%v, %s\x1b[K\n", time.Since(l.began).Round(time.Second), l.remaining())
	l.drawn = len(l.services) + 1
	_, _ = io.WriteString(l.out, s.String())
}

// remaining says how long it still takes, as far as what was seen tells: what was not tried yet takes as long
// as what was. It is called with the mutex held.
func (l *live) remaining() string {
	var rounds int
	var took time.Duration
	for _, c := range l.columns {
		rounds, took = rounds+c.rounds, took+c.took
	}
	still := time.Until(l.end)
	for _, c := range l.columns {
		mean := took / time.Duration(max(rounds, 1))
		if c.rounds > 0 {
			mean = c.took / time.Duration(c.rounds)
		}
		if c.untried > 0 && mean == 0 {
			return "nobody knows yet how long still"
		}
		if c.untried > 0 {
			still = max(still, time.Duration(c.untried)*mean-min(time.Since(c.since), mean))
		}
	}
	if still < time.Second {
		return "what is under way is the last"
	}
	return fmt.Sprintf("about %v still", still.Round(time.Second))
}

// until says when no new round begins any more, but for what was not tried.
func (l *live) until(end time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end = end
}

// left says how much of a service was not tried at all.
func (l *live) left(service string, untried int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.columns[service].untried = untried
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

func (l *live) erase(s *strings.Builder) {
	if l.drawn > 0 {
		fmt.Fprintf(s, "\x1b[%dA\x1b[J", l.drawn)
	}
	l.drawn = 0
}

// now says what is done with a service.
func (l *live) now(service, what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.columns[service].doing, l.columns[service].since = what, time.Now()
}

// did says that what was done is over.
func (l *live) did(service, what string, err error) {
	l.mu.Lock()
	c := l.columns[service]
	c.rounds, c.took = c.rounds+1, c.took+time.Since(c.since)
	l.mu.Unlock()
	if err != nil {
		l.say("%s: %s: %v", service, what, err)
	} else if !l.terminal {
		l.say("%s: %s: done", service, what)
	}
}

// say writes a line that stays.
func (l *live) say(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var s strings.Builder
	l.erase(&s)
	fmt.Fprintf(&s, "%6s  ", time.Since(l.began).Round(100*time.Millisecond))
	fmt.Fprintf(&s, format+"\n", args...)
	_, _ = io.WriteString(l.out, s.String())
}

func (l *live) close() {
	l.stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	var s strings.Builder
	l.erase(&s)
	_, _ = io.WriteString(l.out, s.String())
}
