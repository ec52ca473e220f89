package lab

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// lineQueue has the lines that a child said and that nobody has asked for yet. It has no bounds: a
// child must not be held up because its test listens to something else.
type lineQueue struct {
	changed chan struct{} // holds one element if there may be more than somebody has seen
	ended   chan struct{} // closed when no more will come

	mu    sync.Mutex
	lines []string
}

var errNoMoreLines = errors.New("it has ended")

// readLines reads r in a goroutine until its end, and copies the lines to log as they come.
func readLines(r io.Reader, log io.Writer) *lineQueue {
	q := &lineQueue{changed: make(chan struct{}, 1), ended: make(chan struct{})}
	go func() {
		defer close(q.ended)
		lines := bufio.NewReader(r)
		for {
			line, err := lines.ReadString('\n')
			if line != "" {
				_, _ = io.WriteString(log, line)
				q.add(strings.TrimRight(line, "\r\n"))
			}
			if err != nil {
				return
			}
		}
	}()
	return q
}

func (q *lineQueue) add(line string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lines = append(q.lines, line)
	select {
	case q.changed <- struct{}{}:
	default:
	}
}

// find takes lines until one begins with prefix. The error is errNoMoreLines if none ever will.
func (q *lineQueue) find(prefix string, timeout time.Duration) (string, error) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for last := false; ; {
		if line, found := q.take(prefix); found {
			return line, nil
		}
		if last {
			return "", errNoMoreLines
		}
		select {
		case <-q.changed:
		case <-q.ended:
			last = true // look once more: the last lines may have come since
		case <-timer.C:
			return "", fmt.Errorf("not within %v", timeout)
		}
	}
}

func (q *lineQueue) take(prefix string) (string, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, line := range q.lines {
		if strings.HasPrefix(line, prefix) {
			q.lines = q.lines[i+1:]
			return line, true
		}
	}
	q.lines = nil
	return "", false
}
