package file

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/localfile"
)

// hold is one lock held: an open file with a lock on it.
type hold struct {
	file   *os.File
	name   string
	record record

	released atomic.Bool
}

// Renew looks whether the file is still the one at its path, where others
// look for it: there is no deadline to move.
func (h *hold) Renew(context.Context) (locker.Validity, error) {
	now := time.Now()
	if err := h.check(); err != nil {
		return locker.Validity{}, err
	}
	return locker.Validity{Since: now}, nil
}

// Release unlocks the file, also for children that have it.
func (h *hold) Release(context.Context) error {
	err := h.check()
	if !h.released.CompareAndSwap(false, true) {
		return fmt.Errorf("%w: released before", locker.ErrLost)
	}
	// The note is for TryLock and Inspect, which can do without it.
	_ = clearHolder(h.file, h.name, h.record)
	localfile.LetGo(h.file)
	if errors.Is(err, locker.ErrLost) {
		return err
	}
	return nil // whatever could not be looked at: it is unlocked now
}

// check returns an error that matches ErrLost if the lock is gone for certain.
func (h *hold) check() error {
	there, err := localfile.IsAt(h.file, h.file.Name())
	switch {
	case errors.Is(err, os.ErrClosed):
		return fmt.Errorf("%w: its file was closed", locker.ErrLost)
	case err != nil:
		return err
	case !there:
		return fmt.Errorf("%w: %s was deleted or replaced while it was locked: find out what does that, and keep it away", locker.ErrLost, h.file.Name())
	}
	return nil
}

// As gives the open, locked file to a **os.File. See "Children" in the package
// comment for what may be done with it.
func (h *hold) As(target any) bool {
	f, ok := target.(**os.File)
	if ok {
		*f = h.file
	}
	return ok
}
