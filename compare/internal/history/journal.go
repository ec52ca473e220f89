package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"
)

// Until is a lease's deadline as an Event has it: 0 where there is none, which [locker.Lease.Until] tells by
// one a hundred years away.
func Until(t time.Time) int64 {
	left := time.Until(t)
	if left > 50*365*24*time.Hour {
		return 0
	}
	return Now() + int64(left)
}

// Journal writes events. Its methods may be called from any goroutine.
type Journal struct {
	mu   sync.Mutex
	name string
	out  io.WriteCloser
	buf  *bufio.Writer
	last int64
	err  error
}

// Create makes the journal file at path, which must not exist. Each event but Acted
// and Landed is with the operating system when Write returns, so that it outlives a
// kill of this process.
func Create(path string) (*Journal, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	return NewJournal(path, f), nil
}

// NewJournal is as Create, with a destination of the caller's that Close closes.
func NewJournal(name string, out io.WriteCloser) *Journal {
	return &Journal{name: name, out: out, buf: bufio.NewWriterSize(out, 1<<16)}
}

// Write appends e, with At set to the present, and returns At. Once it has
// failed, it writes nothing more: the journal ends with a whole line or with
// half of one, which a Reader leaves out.
func (j *Journal) Write(e Event) (at int64, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	// Read under the mutex, so that the journal is sorted.
	e.At = max(Now(), j.last)
	j.last = e.At
	if j.err != nil {
		return e.At, j.err
	}
	_, err = j.buf.Write(e.AppendLine(nil))
	if err == nil && e.Kind != Acted && e.Kind != Landed {
		err = j.buf.Flush()
	}
	return e.At, j.fail(err)
}

// Close flushes and closes. It returns the first error that there ever was.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	err := j.fail(j.buf.Flush())
	if closing := j.out.Close(); err == nil {
		err = j.fail(closing)
	}
	return err
}

// fail is called with mu held.
func (j *Journal) fail(err error) error {
	switch {
	case j.err != nil || err == nil:
	case errors.Is(err, syscall.ENOSPC):
		j.err = fmt.Errorf("history: %s ends here: %w. Make room, or name a directory on another disk", j.name, err)
	default:
		j.err = fmt.Errorf("history: %s ends here: %w", j.name, err)
	}
	return j.err
}

// AppendLine adds e as a line of JSON.
func (e *Event) AppendLine(b []byte) []byte {
	line, _ := json.Marshal(e) // an event always can be
	return append(append(b, line...), '\n')
}
