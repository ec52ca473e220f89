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
	sharers *Backend  // set for a sharer; nil: the hold is exclusive

	mu       sync.Mutex
	released bool
	marked   bool // as kept, by Release
	left     bool // nothing of it is left in the file
}

var (
	_ driver.Hold        = (*hold)(nil)
	_ driver.Aser        = (*hold)(nil)
	_ driver.TokenRaiser = (*hold)(nil)
)

// Renew checks that the file is still the one at its path, which others lock. There is no deadline to
// move.
func (h *hold) Renew(context.Context) (driver.Validity, error) {
	now := time.Now()
	if err := h.check(); err != nil {
		return driver.Validity{}, err
	}
	return driver.Validity{Since: now}, nil
}

// Release unlocks the file, also for children that have inherited it. It fails if it cannot write the
// new end of a MinHold; the next Release tries again.
func (h *hold) Release(ctx context.Context, keep time.Duration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.released {
		return h.amend(ctx, keep)
	}
	h.released = true
	err := h.check()
	left := h.leave(ctx, h.file, keep)
	h.letGo()
	if errors.Is(err, driver.ErrLost) {
		return err
	}
	return left // whatever else could not be checked, it is unlocked now
}

// amend writes the new end of the MinHold of an already released hold.
func (h *hold) amend(ctx context.Context, keep time.Duration) error {
	if !h.keeps() {
		return fmt.Errorf("%w: released before", driver.ErrLost)
	}
	f, err := os.OpenFile(h.file.Name(), os.O_RDWR|localfile.OpenFlags, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: its file was deleted", driver.ErrLost)
	case err != nil:
		return unavailable(err)
	}
	defer localfile.LetGo(f)
	return h.leave(ctx, f, keep)
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
	err := h.Release(ctx, 0)
	if errors.Is(err, driver.ErrLost) {
		err = h.Release(ctx, 0) // even if its file was closed, its MinHold may remain
	}
	if errors.Is(err, driver.ErrLost) {
		return nil
	}
	return err
}

// keeps reports whether this hold's own MinHold still keeps the lock, or may do so.
func (h *hold) keeps() bool { return !h.left && h.kept.After(time.Now()) }

// leave removes from the file what this hold has written, if it may write: its name, which only helps
// TryLock and Inspect, and its MinHold beyond keep. If several sharers have asked for a MinHold, the
// file has only the longest, and that one stays until its end.
func (h *hold) leave(ctx context.Context, f *os.File, keep time.Duration) error {
	if keep == 0 && !h.keeps() {
		_ = h.write(f, time.Time{})
		h.left = true
		return nil
	}
	var end time.Time
	if keep > 0 {
		end = time.Now().Add(keep)
	}
	_, err := again(ctx, func() (struct{}, error) { return struct{}{}, h.write(f, end) })
	switch {
	case errors.Is(err, driver.ErrLost):
		h.left = true
		return err
	case err == nil && keep == 0:
		h.left = true
	case err == nil && !h.marked:
		h.kept, h.marked = end, true
	case err == nil:
	case f == h.file && keep > 0 && h.kept.Sub(end) <= minHoldSlack: // the file already says nearly that
		h.marked = true
	default:
		return fmt.Errorf("%w: its MinHold is still in %s: %w", driver.ErrUnavailable, f.Name(), err)
	}
	return nil
}

// write replaces the record of an ending hold by one that keeps the lock until end, or not at all if
// end is zero. It has the lock exclusively or, if other sharers have it too, takes the turn for a
// MinHold of its own, as a joining sharer does.
func (h *hold) write(f *os.File, end time.Time) error {
	alone, keeps := true, h.keeps() || !end.IsZero()
	err := localfile.Flock(f, localfile.Exclusive|localfile.NoWait)
	if errors.Is(err, localfile.ErrBusy) && h.sharers != nil && keeps {
		alone = false
		h.sharers.turns.Lock()
		defer h.sharers.turns.Unlock()
		turn, busy := h.sharers.tryLock(turnOf(h.file.Name()), h.name, localfile.Exclusive)
		if busy != nil {
			return busy
		}
		defer localfile.LetGo(turn)
		err = localfile.Flock(f, localfile.Shared|localfile.NoWait)
	}
	if err != nil {
		return err
	}
	r, content, err := read(f, h.name)
	now := time.Now()
	switch {
	case err != nil:
		return err
	case r.Token != h.token && f == h.file && end.IsZero():
		return nil // other sharers have come
	case r.Token != h.token, f != h.file && r.left(now) <= 0:
		return fmt.Errorf("%w: its MinHold was ended", driver.ErrLost)
	case h.marked && !end.IsZero():
		return nil // it is already kept
	case r.Several && !end.IsZero() && !r.Kept.Equal(h.kept):
		return nil // another sharer has a longer one
	case keeps && r.Several:
		return errors.New("another sharer's MinHold is in it, too")
	case keeps:
		r.Kept = end.UTC()
	}
	if r.Since.After(now) {
		r.Since = now.UTC() // the clock was set back: see record.left
	}
	if alone {
		r.Process = 0
	}
	if alone && r.left(now) <= 0 {
		r = r.free()
	}
	return write(f, h.name, r, content)
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
