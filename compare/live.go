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

// live tells people what is done. On a terminal it draws a line for each service again and again; elsewhere it
// writes a line for each round that is over.
type live struct {
	out      io.Writer
	terminal bool
	began    time.Time

	mu       sync.Mutex
	services []string
	doing    map[string]string
	trials   map[string]int
	left     map[string]int  // rounds, of the lap
	told     map[string]bool // what has been said to be broken
	end      time.Time       // of the run; zero: after one lap
	drawn    int             // lines on the screen
	stop     func()          // drawing
}

func newLive(out io.Writer, benches []*bench) *live {
	l := &live{
		out: out, began: time.Now(), doing: map[string]string{}, trials: map[string]int{}, left: map[string]int{}, told: map[string]bool{},
		stop: func() {},
	}
	if out == nil {
		l.out = io.Discard
	}
	for _, b := range benches {
		l.services = append(l.services, b.svc.name)
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
		fmt.Fprintf(&s, "%-12s %5d trials  %s\x1b[K\n", name, l.trials[name], l.doing[name])
	}
	fmt.Fprintf(&s, "%v, %s\x1b[K\n", time.Since(l.began).Round(time.Second), l.remaining())
	l.drawn = len(l.services) + 1
	_, _ = io.WriteString(l.out, s.String())
}

// remaining says how long it still takes. It is called with the mutex held.
func (l *live) remaining() string {
	if !l.end.IsZero() {
		if left := time.Until(l.end); left > 0 {
			return fmt.Sprintf("about %v still", left.Round(time.Second))
		}
		return "the last lap"
	}
	most := 0
	for _, n := range l.left {
		most = max(most, n)
	}
	return fmt.Sprintf("about %v still", (time.Duration(most) * 2500 * time.Millisecond).Round(time.Second))
}

// until says when no new lap begins any more.
func (l *live) until(end time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end = end
}

// lap says how many rounds of a service are still to come in this lap.
func (l *live) lap(service string, rounds int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left[service] = rounds
}

// broke tells what has been broken that had not been told before.
func (l *live) broke(r *history.Report) {
	for _, row := range r.Rows {
		for _, c := range row.Cells {
			id := c.Service + "\x00" + row.ID
			if c.Verdict != history.Broken || l.told[id] {
				continue
			}
			l.told[id] = true
			word := "broken (not declared)"
			if c.Declared {
				word = "BROKEN"
			}
			l.say("%s: %s: %s: %s", c.Service, row.Title, word, c.Worst)
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
	l.doing[service] = what
}

// did says that some trials are over.
func (l *live) did(service, what string, trials int, err error) {
	l.mu.Lock()
	l.trials[service] += trials
	l.left[service]--
	l.mu.Unlock()
	if err != nil {
		l.say("%s: %s: %v", service, what, err)
	} else if !l.terminal {
		l.say("%s: %s: %d trials", service, what, trials)
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
