package file

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/golockers/locker"
)

// record is the content of a lock file. The holder writes it while it has the lock;
// the kernel keeps the lock itself.
type record struct {
	token  uint64 // the last one given out
	shared bool   // the holder is a sharer, and those beside it have the same token
	pid    int    // the holder's process, as it sees itself; 0: released
	since  time.Time
	label  string
	kept   time.Time // up to here the lock is not free, whoever holds it or not; zero: not asked for
	under  time.Time // the longest MinHold that was promised while a longer one stood in kept; zero: none
	raised uint64    // later tokens are greater than this, too; 0: not asked for
}

const (
	magic = "locker 1: do not edit, do not delete while in use\n"
	// The first headerLen bytes have all that ever changes: not more than a disk
	// writes at once, so that even the crash of a machine does not tear it.
	headerLen = 512
	// maxContent is more than the length of any record.
	maxContent = 4096
)

// encode returns the whole content of the file for the lock called name. Its length
// depends only on the name.
func (r record) encode(name string) []byte {
	holder := "free\n"
	if r.pid != 0 {
		how := "held"
		if r.shared {
			how = "shared"
		}
		holder = fmt.Sprintf("%s by process %d since %s as %s\n", how,
			r.pid, r.since.UTC().Format(time.RFC3339Nano), strconv.Quote(r.label))
	}
	if !r.kept.IsZero() {
		holder += fmt.Sprintf("kept until %s\n", r.kept.UTC().Format(time.RFC3339Nano))
	}
	if !r.under.IsZero() {
		holder += fmt.Sprintf("in any case until %s\n", r.under.UTC().Format(time.RFC3339Nano))
	}
	if r.raised != 0 {
		holder += fmt.Sprintf("raised to %d\n", r.raised)
	}
	text := fmt.Sprintf("%stoken %d\n%s", magic, r.token, holder)
	header := fmt.Sprintf("%ssum %08x", text, crc32.ChecksumIEEE([]byte(text)))
	if len(header) >= headerLen {
		r.label = "" // longer than the engine lets labels be
		return r.encode(name)
	}
	pad := strings.Repeat(" ", headerLen-1-len(header))
	return fmt.Appendf(nil, "%s%s\nname %s\n", header, pad, strconv.Quote(name))
}

var errRecord = errors.New("not what this release writes into the lock file of this name")

// decode reads the output of encode. A crash of the machine may have left nothing but a
// part of the first record, with zeros or nothing for the rest: then only the tokens of
// that part count. Later records replace no more than the first sector, at once.
func decode(content []byte, name string) (record, error) {
	var r record
	var how, since, kept, under string
	_, _ = fmt.Sscanf(string(content), magic+"token %d\n%s by process %d since %s as %q\n", &r.token,
		&how, &r.pid, &since, &r.label)
	r.shared = how == "shared"
	for line := range strings.Lines(string(content)) {
		_, _ = fmt.Sscanf(line, "kept until %s\n", &kept)
		_, _ = fmt.Sscanf(line, "in any case until %s\n", &under)
		_, _ = fmt.Sscanf(line, "raised to %d\n", &r.raised)
	}
	r.since, _ = time.Parse(time.RFC3339Nano, since)
	r.kept, _ = time.Parse(time.RFC3339Nano, kept)
	r.under, _ = time.Parse(time.RFC3339Nano, under)
	whole := r.encode(name)
	header := content[:min(len(content), headerLen)]
	switch start := bytes.TrimRight(header, "\x00"); {
	// Damaged or foreign content differs from the encoded record.
	case len(content) > len(whole), !isStart(content[len(header):], whole[headerLen:]):
		return record{}, errRecord
	case bytes.Equal(header, whole[:headerLen]):
		return r, nil
	case len(start) < headerLen && isStart(start[:min(len(start), len(magic))], []byte(magic)):
		return record{token: r.token, raised: r.raised}, nil
	}
	return record{}, errRecord
}

// isStart reports whether b is the start of whole, with zeros or nothing for the rest.
func isStart(b, whole []byte) bool { return bytes.HasPrefix(whole, bytes.TrimRight(b, "\x00")) }

// read returns the record in f, and its text.
func read(f *os.File, name string) (record, []byte, error) {
	content, err := contentOf(f)
	if err != nil {
		return record{}, nil, err
	}
	r, err := decode(content, name)
	if err != nil {
		err = fmt.Errorf("%s: %w; if nothing uses it, delete it", f.Name(), err)
	}
	return r, content, err
}

// contentOf returns what is in f, but not more than maxContent.
func contentOf(f *os.File) ([]byte, error) {
	content := make([]byte, maxContent)
	n, err := f.ReadAt(content, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return content[:n], nil
}

// left returns how long a MinHold still keeps the lock. It is never more than the
// requested MinHold, however far the clock was set back.
func (r record) left(now time.Time) time.Duration {
	return min(r.kept.Sub(now), r.kept.Sub(r.since))
}

// holder is the State.Holder: sharers have the same token, and a holder that has written no record has none.
func (r record) holder() string { return fmt.Sprintf(holderForm, r.token) }

const holderForm = "file %d"

// take writes a new holder into the locked file f, with a token above all earlier
// tokens. After an error, or if a MinHold still keeps the lock, f is as before.
func take(f *os.File, req locker.Request, now time.Time) (record, error) {
	old, content, err := read(f, req.Name)
	if err != nil {
		return record{}, err // never over what may hold a higher token, or is not ours
	}
	if left := old.left(now); left > 0 {
		return record{}, &locker.HeldError{Remaining: left}
	}
	last := max(old.token, old.raised)
	if last == math.MaxUint64 {
		return record{}, fmt.Errorf("%s: its token cannot rise any more", f.Name())
	}
	r := record{
		// The clock matters if the file was deleted or lost its last changes;
		// otherwise tokens rise without it.
		token:  max(last+1, uint64(max(now.UnixMicro(), 0))),
		shared: req.Shared,
		pid:    os.Getpid(),
		since:  now,
		label:  req.Label,
	}
	if req.MinHold > 0 {
		r.kept = now.Add(req.MinHold)
	}
	return r, write(f, req.Name, r, content)
}

// write replaces the content of f; after an error f is as before.
func write(f *os.File, name string, r record, content []byte) error {
	if _, err := f.WriteAt(r.encode(name), 0); err != nil {
		// A disk that becomes full in the middle must not make the file unreadable.
		_, _ = f.WriteAt(content, 0)
		_ = f.Truncate(int64(len(content)))
		return err
	}
	return nil
}

// clearHolder removes the holder with that token from f, if f still names it.
func clearHolder(f *os.File, name string, token uint64) error {
	r, content, err := read(f, name)
	if err != nil || r.token != token {
		return err
	}
	return write(f, name, record{token: r.token, raised: r.raised}, content)
}
