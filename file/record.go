package file

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/localfile"
	"github.com/golockers/locker/internal/refusal"
)

// record is the content of a lock file. The holder writes it while it has the lock;
// the kernel keeps the lock itself.
type record struct {
	Token   uint64    `json:"-"`                // the last one granted
	Raised  uint64    `json:"raised,omitzero"`  // later tokens are also greater than this; 0: not raised
	Process int       `json:"process,omitzero"` // the holder's, as it sees itself; 0: released, or kept
	Label   string    `json:"label,omitzero"`
	Shared  bool      `json:"shared,omitzero"` // the holder is a sharer; all sharers have this token
	Since   time.Time `json:"since,omitzero"`
	Kept    time.Time `json:"kept,omitzero"`    // until then the lock is not free, held or not
	Several bool      `json:"several,omitzero"` // the MinHolds of more than one sharer keep it
}

const (
	magic = "locker 1: do not edit, do not delete while in use\n"
	// The first headerLen bytes hold everything that changes. A disk writes them at once, so that even
	// a crash of the machine does not tear them.
	headerLen = 512
	// maxContent is more than the length of any record.
	maxContent = 4096
)

// encode returns the whole content of the file for the lock called name. Its length
// depends only on the name.
func (r record) encode(name string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%stoken %d\n", magic, r.Token)
	text := json.NewEncoder(&b)
	text.SetEscapeHTML(false)
	_ = text.Encode(r)
	fmt.Fprintf(&b, "sum %08x", crc32.ChecksumIEEE(b.Bytes()))
	if b.Len() >= headerLen {
		r.Label = "" // longer than the engine lets labels be
		return r.encode(name)
	}
	pad := strings.Repeat(" ", headerLen-1-b.Len())
	return fmt.Appendf(nil, "%s%s\nname %s\n", &b, pad, strconv.Quote(name))
}

var errRecord = errors.New("not what this release writes into the lock file of this name")

// decode reads the output of encode. A crash of the machine may have left a new file empty or full of
// zeros. Later records replace only the first sector, at once.
func decode(content []byte, name string) (r record, err error) {
	if len(bytes.Trim(content, "\x00")) == 0 {
		return r, nil
	}
	_, _ = fmt.Sscanf(string(content), magic+"token %d\n", &r.Token)
	_, text, _ := bytes.Cut(content, []byte("\n{"))
	_ = json.Unmarshal(fmt.Appendf(nil, "{%s", bytes.Split(text, []byte("\n"))[0]), &r)
	if !bytes.Equal(content, r.encode(name)) { // damaged, or not ours
		return record{}, errRecord
	}
	return r, nil
}

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

// contentOf returns the content of f, at most maxContent.
func contentOf(f *os.File) ([]byte, error) {
	content := make([]byte, maxContent)
	n, err := f.ReadAt(content, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return content[:n], nil
}

// left returns how long a MinHold still keeps the lock: never more than the requested MinHold, however
// far the clock was set back.
func (r record) left(now time.Time) time.Duration {
	return min(r.Kept.Sub(now), r.Kept.Sub(r.Since))
}

// holder is the State.Holder: sharers have the same token, and a holder that has written no record has none.
func (r record) holder() string { return fmt.Sprintf(holderForm, r.Token) }

const holderForm = "file %d"

// free is the record after that of the last holder.
func (r record) free() record { return record{Token: r.Token, Raised: r.Raised} }

// next returns the record of the holder after r, with a token above all earlier ones. A sharer joins
// the sharers of r, unless it has the lock alone and no MinHold of theirs is left. It replaces what a
// dead process has written, so that the record names a living one.
func (r record) next(req driver.Request, alone bool, now time.Time) (record, error) {
	left, now := r.left(now), now.UTC()
	kept := now.Add(req.MinHold)
	last := max(r.Token, r.Raised)
	switch joins := req.Shared && r.Shared && (!alone || left > 0); {
	case joins && req.MinHold > 0:
		r.Several = left > 0
		if kept.After(r.Kept) {
			r.Kept, r.Since = kept, now
		}
	case joins && localfile.Alive(r.Process):
		return r, nil
	case joins:
	case left > 0:
		return record{}, &refusal.Error{Refusal: driver.Refusal{Remaining: left}}
	case last == math.MaxUint64:
		return record{}, errors.New("the token in its file cannot rise any more")
	default:
		// The clock matters if the file was deleted or lost its last changes; otherwise tokens increase
		// without it.
		r = record{Token: max(last+1, uint64(max(now.UnixMicro(), 0))), Shared: req.Shared, Since: now}
		if req.MinHold > 0 {
			r.Kept = kept
		}
	}
	r.Process, r.Label = os.Getpid(), req.Label
	return r, nil
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
