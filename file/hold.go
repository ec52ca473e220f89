package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/localfile"
	"github.com/golockers/locker/internal/probe"
)

// hold is a lock that is held: an open file with a lock on it.
type hold struct {
	file    *os.File
	name    string
	token   uint64
	kept    time.Time // the end of its MinHold; zero: none
	sharers *Backend  // where it is one of them; nil: it holds alone

	mu       sync.Mutex
	released bool
	left     bool // nothing of it is in the file
}

var (
	_ driver.Hold        = (*hold)(nil)
	_ driver.Aser        = (*hold)(nil)
	_ driver.TokenRaiser = (*hold)(nil)
)

// Renew checks that the file is still the one at its path, where others lock it.
// There is no deadline to move.
func (h *hold) Renew(context.Context) (driver.Validity, error) {
	now := time.Now()
	if err := h.check(); err != nil {
		return driver.Validity{}, err
	}
	return driver.Validity{Since: now}, nil
}

// Release unlocks the file, also for children that have inherited it. It fails if a MinHold cannot be removed.
func (h *hold) Release(context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.released {
		return fmt.Errorf("%w: released before", driver.ErrLost)
	}
	h.released = true
	err := h.check()
	left := h.leave(h.file)
	h.letGo()
	if errors.Is(err, driver.ErrLost) {
		return err
	}
	return left // whatever else could not be looked at: it is unlocked now
}

// letGo unlocks the file.
func (h *hold) letGo() {
	localfile.LetGo(h.file)
	if h.sharers != nil {
		_ = h.sharers.count(h.file.Name(), h.name, -1)
	}
}

// Undo implements [driver.Hold].
func (h *hold) Undo(ctx context.Context) error {
	if err := h.Release(ctx); !errors.Is(err, driver.ErrLost) && err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.keeps() {
		return nil
	}
	f, err := os.OpenFile(h.file.Name(), os.O_RDWR|localfile.OpenFlags, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return unavailable(err)
	}
	defer localfile.LetGo(f)
	return h.leave(f)
}

// keeps reports whether a MinHold of this hold's own still keeps the lock, or may yet.
func (h *hold) keeps() bool { return !h.left && h.kept.After(time.Now()) }

// leave takes out of the file what this hold has written, if it can lock the file alone: its MinHold, and its name,
// which only helps TryLock and Inspect. Where several sharers have asked for a MinHold, the file has only the longest,
// and that stays until its time.
func (h *hold) leave(f *os.File) error {
	keeps := h.keeps()
	err := localfile.Flock(f, localfile.Exclusive|localfile.NoWait)
	var r record
	var content []byte
	if err == nil {
		r, content, err = read(f, h.name)
	}
	switch {
	case err != nil, r.Token != h.token: // others have come
	case keeps && r.Several:
		err = errors.New("that of another is there, too")
	default:
		if keeps {
			r.Kept = time.Time{}
		}
		if r.left(time.Now()) <= 0 {
			r = r.free()
		}
		err = write(f, h.name, r, content)
	}
	if h.left = err == nil; h.left || !keeps {
		return nil
	}
	return fmt.Errorf("%w: its MinHold is still in %s: %w", driver.ErrUnavailable, f.Name(), err)
}

// RaiseToken implements [driver.TokenRaiser].
func (h *hold) RaiseToken(_ context.Context, token uint64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.check(); err != nil {
		return err
	}
	r, content, err := read(h.file, h.name)
	if err != nil || token <= max(r.Token, r.Raised) {
		return err
	}
	r.Raised = token
	return unavailable(write(h.file, h.name, r, content))
}

// check returns an error that matches ErrLost if the lock is certainly gone.
func (h *hold) check() error {
	err := localfile.IsAt(h.file, h.file.Name())
	switch {
	case errors.Is(err, os.ErrClosed):
		return fmt.Errorf("%w: its file was closed", driver.ErrLost)
	case errors.Is(err, localfile.ErrReplaced):
		return fmt.Errorf("%w: while it was locked, %w", driver.ErrLost, err)
	}
	return err
}

// As sets a **os.File to the open, locked file. "Children" in the package comment
// says how it may be used.
func (h *hold) As(target any) bool {
	switch target := target.(type) {
	case **os.File:
		*target = h.file
	case *probe.Remains:
		*target = func(context.Context) error { return os.Remove(h.file.Name()) }
	default:
		return false
	}
	return true
}
