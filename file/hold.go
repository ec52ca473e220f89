package file

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/localfile"
	"github.com/golockers/locker/internal/probe"
)

// hold is a lock that is held: an open file with a lock on it.
type hold struct {
	file   *os.File
	name   string
	record record

	sharers *Backend  // where it is one of them; nil: it holds alone
	before  time.Time // for how long others of them keep the lock: record.kept without its MinHold

	mu       sync.Mutex
	released bool
}

var (
	_ locker.Hold        = (*hold)(nil)
	_ locker.Aser        = (*hold)(nil)
	_ locker.TokenRaiser = (*hold)(nil)
)

// Renew checks that the file is still the one at its path, where others lock it.
// There is no deadline to move.
func (h *hold) Renew(context.Context) (locker.Validity, error) {
	now := time.Now()
	if err := h.check(); err != nil {
		return locker.Validity{}, err
	}
	return locker.Validity{Since: now}, nil
}

// Release unlocks the file, also for children that have inherited it. If its MinHold cannot be removed, Release fails.
func (h *hold) Release(context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.released {
		return fmt.Errorf("%w: released before", locker.ErrLost)
	}
	err := h.check()
	if left := h.leave(); left != nil && h.keeps() {
		_ = localfile.Flock(h.file, localfile.Unlock)
		return unavailable(fmt.Errorf("its MinHold is still in %s: %w", h.file.Name(), left))
	}
	h.released = true
	localfile.LetGo(h.file)
	if h.sharers != nil {
		_ = h.sharers.count(h.file.Name(), h.name, -1)
	}
	if errors.Is(err, locker.ErrLost) {
		return err
	}
	return nil // whatever could not be looked at: it is unlocked now
}

// keeps reports whether a MinHold of this hold's own still keeps the lock.
func (h *hold) keeps() bool {
	return h.record.kept.After(time.Now()) && !h.record.kept.Equal(h.before)
}

// leave takes out of the file what this hold has written. With the file locked alone, or with the turn beside it,
// nobody else writes. Without a MinHold that only helps TryLock and Inspect, which also work without it: a sharer
// looks for the turn only if it has one.
func (h *hold) leave() error {
	err := localfile.Flock(h.file, localfile.Exclusive|localfile.NoWait)
	alone := err == nil
	if errors.Is(err, localfile.ErrBusy) && h.sharers != nil && h.keeps() {
		var turn *os.File
		turn, err = again(context.Background(), func() (*os.File, error) {
			return h.sharers.tryLock(turnOf(h.file.Name()), h.name, localfile.Exclusive)
		})
		if err == nil {
			defer localfile.LetGo(turn)
			err = localfile.Flock(h.file, localfile.Shared|localfile.NoWait)
		}
	}
	if err != nil {
		return err
	}
	r, content, err := read(h.file, h.name)
	if err != nil || r.token != h.record.token {
		return err
	}
	if r.kept.Equal(h.record.kept) {
		r.kept = h.before
	}
	if alone && r.left(time.Now()) <= 0 {
		r = record{token: r.token, raised: r.raised}
	}
	return write(h.file, h.name, r, content)
}

// Undo implements [locker.Hold].
func (h *hold) Undo(ctx context.Context) error {
	if err := h.Release(ctx); !errors.Is(err, locker.ErrLost) {
		return err
	}
	return nil
}

// RaiseToken implements [locker.TokenRaiser].
func (h *hold) RaiseToken(_ context.Context, token uint64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.check(); err != nil {
		return err
	}
	r, content, err := read(h.file, h.name)
	if err != nil || token <= max(r.token, r.raised) {
		return err
	}
	r.raised = token
	return unavailable(write(h.file, h.name, r, content))
}

// check returns an error that matches ErrLost if the lock is certainly gone.
func (h *hold) check() error {
	there, err := localfile.IsAt(h.file, h.file.Name())
	switch {
	case errors.Is(err, os.ErrClosed):
		return fmt.Errorf("%w: its file was closed", locker.ErrLost)
	case err != nil:
		return err
	case !there:
		return fmt.Errorf("%w: %s was deleted or replaced while it was locked: find out what does that, "+
			"and keep it away", locker.ErrLost, h.file.Name())
	}
	return nil
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
