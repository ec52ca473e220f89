package history

import (
	"bufio"
	"container/heap"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
)

// Read returns the events of all journals in dir, in the order of time. It holds
// one event of each journal in memory. A half line at the end of a journal, as a
// kill or a full disk leaves it, is left out; any other line that is not an
// event ends the sequence with an error.
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
		readers := make([]*Reader, 0, len(paths))
		for _, path := range paths {
			f, err := os.Open(path)
			if err != nil {
				yield(Event{}, fmt.Errorf("history: %w", err))
				return
			}
			defer f.Close()
			readers = append(readers, NewReader(path, f))
		}
		for e, err := range Merge(readers...) {
			if !yield(e, err) {
				return
			}
		}
	}
}

// Merge returns the events of several readers in the order of time. It ends with
// the first error.
func Merge(readers ...*Reader) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		var next queue
		for i, r := range readers {
			e, err := r.Next()
			switch {
			case err == nil:
				next = append(next, item{e, r, i})
			case !errors.Is(err, io.EOF):
				yield(Event{}, err)
				return
			}
		}
		heap.Init(&next)
		for len(next) > 0 {
			if !yield(next[0].event, nil) {
				return
			}
			e, err := next[0].from.Next()
			switch {
			case err == nil:
				next[0].event = e
				heap.Fix(&next, 0)
			case errors.Is(err, io.EOF):
				heap.Pop(&next)
			default:
				yield(Event{}, err)
				return
			}
		}
	}
}

// queue is a heap of the next event of each journal. Events of one time keep the
// order of the journals, so that a history is always read in the same order.
type queue []item

type item struct {
	event Event
	from  *Reader
	place int
}

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	if q[i].event.At != q[j].event.At {
		return q[i].event.At < q[j].event.At
	}
	return q[i].place < q[j].place
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(item)) }
func (q *queue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

// Reader reads one journal.
type Reader struct {
	name string
	in   *bufio.Reader
	line int
	last int64
}

// NewReader reads the journal r; name is for errors.
func NewReader(name string, r io.Reader) *Reader {
	return &Reader{name: name, in: bufio.NewReaderSize(r, 1<<16)}
}

// Next returns the next event, and io.EOF after the last one.
func (r *Reader) Next() (Event, error) {
	line, err := r.in.ReadBytes('\n')
	if errors.Is(err, io.EOF) {
		return Event{}, io.EOF // what stands before it is half a line
	}
	if err != nil {
		return Event{}, fmt.Errorf("history: reading %s: %w", r.name, err)
	}
	r.line++
	var e Event
	if err := json.Unmarshal(line, &e); err != nil {
		return Event{}, fmt.Errorf("history: %s, line %d: %w", r.name, r.line, err)
	}
	if e.Kind == "" {
		return Event{}, fmt.Errorf("history: %s, line %d is no event", r.name, r.line)
	}
	if e.At < r.last {
		return Event{}, fmt.Errorf("history: %s, line %d: time runs backwards", r.name, r.line)
	}
	r.last = e.At
	return e, nil
}
