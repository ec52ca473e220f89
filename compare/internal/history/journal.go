package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Until is a lease's deadline as an Event has it: 0 for the zero time.
func Until(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return Now() + int64(time.Until(t))
}

// Journal writes events. Its methods may be called from any goroutine.
type Journal struct {
	mu   sync.Mutex
	name string
	out  io.WriteCloser
	buf  *bufio.Writer
	line []byte
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
	j.line = e.AppendLine(j.line[:0])
	_, err = j.buf.Write(j.line)
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

// AppendLine adds e as a line of JSON, the same that encoding/json would write.
func (e *Event) AppendLine(b []byte) []byte {
	b = append(b, `{"t":`...)
	b = strconv.AppendInt(b, e.At, 10)
	text := func(key, s string) {
		if s == "" {
			return
		}
		b = append(append(b, ',', '"'), key...)
		b = append(b, '"', ':')
		if plain(s) {
			b = append(append(append(b, '"'), s...), '"')
			return
		}
		quoted, _ := json.Marshal(s) // a string always can be
		b = append(b, quoted...)
	}
	number := func(key string, n int64) {
		if n != 0 {
			b = append(append(b, ',', '"'), key...)
			b = strconv.AppendInt(append(b, '"', ':'), n, 10)
		}
	}
	text("k", string(e.Kind))
	text("s", e.Service)
	text("tr", e.Trial)
	text("p", e.Process)
	number("c", int64(e.Caller))
	text("n", e.Name)
	if e.Token != 0 {
		b = append(strconv.AppendUint(append(b, `,"tok":"`...), e.Token, 10), '"')
	}
	number("u", e.Until)
	if e.Seq != 0 {
		b = strconv.AppendUint(append(b, `,"q":`...), e.Seq, 10)
	}
	text("f", e.Fault)
	number("v", e.Value)
	if e.Shared {
		b = append(b, `,"sh":true`...)
	}
	text("e", e.Error)
	text("d", e.Detail)
	return append(b, '}', '\n')
}

// plain reports whether s needs no escaping in JSON.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= 0x7f || c == '<' || c == '>' || c == '&' {
			return false
		}
	}
	return true
}
