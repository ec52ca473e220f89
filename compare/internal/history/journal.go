package history

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Until is a lease's deadline as an Event has it: 0 where there is none, which [locker.Lease.Until]
// tells by one a hundred years away.
func Until(t time.Time) int64 {
	left := time.Until(t)
	if left > 50*365*24*time.Hour {
		return 0
	}
	return Now() + int64(left)
}

// Journal writes events. Its methods may be called from any goroutine.
type Journal struct {
	mu  sync.Mutex
	f   *os.File
	err error
}

// Create makes the journal file at path, which must not exist.
func Create(path string) (*Journal, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	return &Journal{f: f}, nil
}

// Write appends e, of the present if it has no time. The event is with the operating system then, so
// that it outlives a kill of this process. Once Write has failed, it writes nothing more: the journal
// ends with a whole line or with half of one, which [Read] leaves out.
func (j *Journal) Write(e Event) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if e.At == 0 {
		e.At = Now() // under the mutex, so that the journal is sorted
	}
	if j.err != nil {
		return j.err
	}
	line, _ := json.Marshal(e) // an event always can be
	if _, err := j.f.Write(append(line, '\n')); err != nil {
		j.err = fmt.Errorf("history: %s ends here: %w", j.f.Name(), err)
		if errors.Is(err, syscall.ENOSPC) {
			j.err = fmt.Errorf("%w. Make room, or name a directory on another disk", j.err)
		}
	}
	return j.err
}

// Close returns the first error that there ever was.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return cmp.Or(j.err, j.f.Close())
}

// Read returns the events of all journals in dir, in the order of time; those of one time in the order
// of the journals, so that a history is always read in the same order. It holds one event of each
// journal in memory. A half line at the end of a journal, as a kill or a full disk leaves it, is left
// out; any other line that is not an event ends the sequence with an error.
func Read(dir string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		paths, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
		if err == nil && len(paths) == 0 {
			err = fmt.Errorf("history: no journal (*.jsonl) in %s", dir)
		}
		if err != nil {
			yield(Event{}, err)
			return
		}
		var readers []*reader
		for _, path := range paths {
			f, err := os.Open(path)
			if err != nil {
				yield(Event{}, fmt.Errorf("history: %w", err))
				return
			}
			defer f.Close()
			readers = append(readers, &reader{name: path, in: bufio.NewReader(f)})
			if err := readers[len(readers)-1].next(); err != nil {
				yield(Event{}, err)
				return
			}
		}
		for {
			readers = slices.DeleteFunc(readers, func(r *reader) bool { return r.over })
			if len(readers) == 0 {
				return
			}
			first := slices.MinFunc(readers, func(a, b *reader) int { return cmp.Compare(a.event.At, b.event.At) })
			if !yield(first.event, nil) {
				return
			}
			if err := first.next(); err != nil {
				yield(Event{}, err)
				return
			}
		}
	}
}

// reader reads one journal.
type reader struct {
	name  string
	in    *bufio.Reader
	line  int
	event Event
	over  bool // there is no next event
}

// next reads the next event.
func (r *reader) next() error {
	line, err := r.in.ReadBytes('\n')
	if errors.Is(err, io.EOF) { // what stands before it is half a line
		r.over = true
		return nil
	}
	r.line++
	last := r.event.At
	r.event = Event{}
	if err == nil {
		err = json.Unmarshal(line, &r.event)
	}
	switch {
	case err != nil:
	case r.event.Kind == "":
		err = errors.New("it is no event")
	case r.event.At < last:
		err = errors.New("time runs backwards")
	}
	if err != nil {
		return fmt.Errorf("history: %s, line %d: %w", r.name, r.line, err)
	}
	return nil
}
