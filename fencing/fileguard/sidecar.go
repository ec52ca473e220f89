package fileguard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/internal/clock"
	"github.com/golockers/locker/internal/localfile"
)

const (
	magic = "fencing 1: the mark of the file beside it; do not edit, do not delete\n"
	// recordLen is not more than a disk writes at once, so that a power failure does
	// not tear the record.
	recordLen = 512
)

// encode returns the content of a sidecar, which always has the same length.
func encode(mark fencing.Token) []byte {
	text := fmt.Sprintf("%smark %d\n", magic, mark)
	text += fmt.Sprintf("sum %08x", crc32.ChecksumIEEE([]byte(text)))
	return []byte(text + strings.Repeat(" ", recordLen-1-len(text)) + "\n")
}

// readMark returns the mark in the sidecar f. An empty sidecar was just made: its first
// mark is written before the first content.
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

// lock opens the sidecar and locks it. It creates the sidecar if it is missing, and
// waits for the lock until ctx is done. It tries a sidecar some times that appears
// or disappears.
func (g *Guard) lock(ctx context.Context) (f *os.File, err error) {
	const tries, pause, busyPause = 50, 200 * time.Microsecond, 5 * time.Millisecond
	for try := 0; try < tries; {
		if over := context.Cause(ctx); over != nil && err != nil {
			return nil, fmt.Errorf("%w: %w", err, over)
		} else if over != nil {
			return nil, over
		}
		if f, err = g.open(os.O_RDWR); errors.Is(err, fs.ErrNotExist) {
			f, err = g.open(os.O_RDWR | os.O_CREATE | os.O_EXCL)
		}
		if err == nil {
			if err = localfile.Flock(f, localfile.Exclusive|localfile.NoWait); err == nil {
				// If somebody has deleted it in between, others lock a new one.
				var there bool
				if there, err = localfile.IsAt(f, g.side); err == nil && there {
					return f, nil
				}
			}
			localfile.LetGo(f)
		}
		switch {
		case errors.Is(err, localfile.ErrBusy):
			err = fmt.Errorf("another writer is in the middle of a write (or is stopped there): %w", err)
			_ = clock.Sleep(ctx, clock.Jitter(busyPause))
			continue
		case err == nil:
			err = fmt.Errorf("%s: it is deleted and created again all the time: find out what does that",
				g.side)
		case errors.Is(err, fs.ErrExist), errors.Is(err, fs.ErrNotExist):
		default:
			return nil, err
		}
		try++
		_ = clock.Sleep(ctx, pause)
	}
	return nil, err
}

// open opens the sidecar.
func (g *Guard) open(flags int) (*os.File, error) {
	f, err := os.OpenFile(g.side, flags|localfile.OpenFlags, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file (%v): find out what made it, and delete it", g.side,
			info.Mode())
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}
