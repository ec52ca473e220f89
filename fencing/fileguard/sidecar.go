package fileguard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"strings"
	"time"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/internal/clock"
	"github.com/golockers/locker/internal/localfile"
)

const (
	magic = "fencing 1: the mark of the file beside it; do not edit, do not delete\n"
	// recordLen is no more than a disk writes at once, so that a power failure does not tear the
	// record.
	recordLen = 512
)

// encode returns the content of a sidecar, which always has the same length.
func encode(mark fencing.Token) []byte {
	text := fmt.Sprintf("%smark %d\n", magic, mark)
	text += fmt.Sprintf("sum %08x", crc32.ChecksumIEEE([]byte(text)))
	return []byte(text + strings.Repeat(" ", recordLen-1-len(text)) + "\n")
}

// readMark returns the mark in the sidecar f. An empty sidecar is new: its first mark is written before
// the first content.
func readMark(f *os.File) (mark fencing.Token, err error) {
	content := make([]byte, recordLen+1)
	n, err := f.ReadAt(content, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	if content = content[:n]; n == 0 {
		return 0, nil
	}
	_, _ = fmt.Sscanf(string(content), magic+"mark %d\n", &mark)
	// Damaged or foreign content differs from the encoded mark.
	if !bytes.Equal(encode(mark), content) {
		return 0, fmt.Errorf("%s: the content is not the record of a guard: find out what wrote it; the mark is lost,"+
			" so delete the file only when no holder of an old token can still be running", f.Name())
	}
	return mark, nil
}

// raise writes the mark to the sidecar f, and syncs it to disk.
func (g *Guard) raise(f *os.File, mark fencing.Token) error {
	if _, err := f.WriteAt(encode(mark), 0); err != nil {
		return err
	}
	if err := g.sync(f, "raised"); err != nil {
		return err
	}
	return g.syncDir() // the sidecar may be new
}

// lock opens the sidecar, creates it if it is missing, and waits for the lock on it until ctx is done.
func (g *Guard) lock(ctx context.Context) (*os.File, error) {
	for {
		if over := clock.Over(ctx); over != nil {
			return nil, over
		}
		f, err := localfile.Open(g.side, localfile.Exclusive|localfile.NoWait, g.create)
		if !errors.Is(err, localfile.ErrBusy) {
			return f, err
		}
		if clock.Sleep(ctx, clock.Jitter(5*time.Millisecond)) != nil {
			return nil, fmt.Errorf("another writer is in the middle of a write, or is stopped in it: %w: %w", err,
				clock.Over(ctx))
		}
	}
}

// create creates the sidecar.
func (g *Guard) create() (*os.File, error) {
	return os.OpenFile(g.side, os.O_RDWR|os.O_CREATE|os.O_EXCL|localfile.OpenFlags, 0o600)
}
