package fileguard

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"time"

	"github.com/golockers/locker/internal/localfile"
)

var errReplaced = errors.New("it is deleted and made again all the time: find out what does that")

// maxTries is how often a sidecar that appears, disappears or cannot be opened
// yet is looked for again.
const maxTries = 50

// lock opens the sidecar and locks it, for which it waits until ctx is done. If
// it is missing, lock makes one, or, unless create is set, returns an error that
// matches fs.ErrNotExist.
func (g *Guard) lock(ctx context.Context, create bool) (*os.File, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var err error
	for range maxTries {
		var f *os.File
		f, err = g.open(create)
		switch {
		case err == nil:
			if err = wait(ctx, f); err == nil {
				if err = g.isThere(f); err == nil {
					return f, nil
				}
			}
			localfile.LetGo(f)
			if !errors.Is(err, errReplaced) {
				return nil, err
			}
		case errors.Is(err, fs.ErrExist), errors.Is(err, fs.ErrNotExist) && create:
			// Somebody made or deleted it at this moment.
		case errors.Is(err, fs.ErrPermission) && create && g.sideMode != ownSide:
			// Another user may have made it and not yet opened it to all.
			if err := sleep(ctx, time.Millisecond); err != nil {
				return nil, err
			}
		default:
			return nil, err
		}
	}
	return nil, err
}

// open opens the sidecar. Making one can fail with fs.ErrExist.
func (g *Guard) open(create bool) (*os.File, error) {
	f, err := os.OpenFile(g.side, os.O_RDWR|localfile.OpenFlags, 0)
	if create && errors.Is(err, fs.ErrNotExist) {
		f, err = os.OpenFile(g.side, os.O_RDWR|os.O_CREATE|os.O_EXCL|localfile.OpenFlags, ownSide)
	}
	if err != nil {
		return nil, err
	}
	info, err := regular(f)
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	if g.sideMode&^info.Mode().Perm() != 0 {
		_ = f.Chmod(g.sideMode) // if it is another user's, it is for that one to do
	}
	return f, nil
}

func regular(f *os.File) (fs.FileInfo, error) {
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no file but %v: find out what made it, and delete it", f.Name(), info.Mode())
	}
	return info, err
}

// isThere returns errReplaced if f is not the sidecar any more: what is locked
// is then of no meaning to others.
func (g *Guard) isThere(f *os.File) error {
	own, err := f.Stat()
	if err != nil {
		return err
	}
	there, err := os.Lstat(g.side)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(own, there) {
		return fmt.Errorf("%s: %w", g.side, errReplaced)
	}
	return err
}

// How long to wait between two looks at a lock that another has.
const (
	minPause = 200 * time.Microsecond
	maxPause = 10 * time.Millisecond
)

// wait locks f, or returns the cause of ctx when that is done. It asks again
// and again, since a thread that waits in the kernel cannot be called back.
func wait(ctx context.Context, f *os.File) error {
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		err := localfile.Flock(f, localfile.Exclusive|localfile.NoWait)
		if !errors.Is(err, localfile.ErrBusy) {
			return err
		}
		if err := sleep(ctx, pause/2+rand.N(pause)); err != nil {
			return fmt.Errorf("another one is in the middle of a write (or is stopped there): %w", err)
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ownSide are the permissions of a sidecar in a directory that is one user's own.
const ownSide fs.FileMode = 0o600

// sideModeIn returns the permissions of sidecars in a directory with these: who
// may replace files there has to be able to lock them, and nobody else.
func sideModeIn(dir fs.FileMode) fs.FileMode {
	mode := ownSide
	if dir&0o020 != 0 {
		mode |= 0o060
	}
	if dir&0o002 != 0 {
		mode |= 0o006
	}
	return mode
}
