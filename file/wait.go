package file

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/localfile"
)

// maxThreads bounds the blocked threads of a Backend, far below the runtime's limit
// of 10,000, at which a program crashes.
const maxThreads = 256

// wait is a goroutine that is blocked in flock, with the callers of this process for
// which it waits. Callers come and go. The goroutine stays until the lock is granted,
// and releases it at once if nobody waits any more.
type wait struct {
	waiters []chan<- locked // the longest waiting first; guarded by Backend.mu
}

// locked is the result of flock.
type locked struct {
	file *os.File
	err  error
}

// wait returns when the kernel has granted the lock on the file at path, or
// when ctx is done or the backend closed.
func (b *Backend) wait(ctx context.Context, path string) (*os.File, error) {
	mine := make(chan locked, 1)
	b.mu.Lock()
	w := b.waits[path]
	if w == nil {
		if len(b.waits) == maxThreads {
			b.mu.Unlock()
			return nil, locker.ErrHeld // the engine polls
		}
		w = &wait{}
		b.waits[path] = w
		go b.block(path, w)
	}
	w.waiters = append(w.waiters, mine)
	b.mu.Unlock()

	var err error
	select {
	case l := <-mine:
		return l.file, l.err
	case <-ctx.Done():
		err = fmt.Errorf("%w (%w)", locker.ErrHeld, ctx.Err())
	case <-b.closed:
		err = locker.ErrClosed
	}
	b.mu.Lock()
	i := slices.Index(w.waiters, mine)
	if i >= 0 {
		w.waiters = slices.Delete(w.waiters, i, i+1)
	}
	b.mu.Unlock()
	if i < 0 {
		// The lock was granted at this very moment.
		if l := <-mine; l.err == nil {
			localfile.LetGo(l.file)
		}
	}
	return nil, err
}

// maxReplaced is how often in a row block may find the file replaced before it
// returns an error: more often than any cleaner deletes files.
const maxReplaced = 1000

// block is the only goroutine of its backend that blocks for the file at path. Each
// flock serves one waiter: the lock itself is never passed on (R13).
func (b *Backend) block(path string, w *wait) {
	replaced := 0
	for {
		f, err := b.openLocked(path, localfile.Exclusive)
		if errors.Is(err, errReplaced) && replaced < maxReplaced {
			replaced++
		} else {
			replaced = 0
		}
		b.mu.Lock()
		var first chan<- locked
		if len(w.waiters) > 0 && replaced == 0 {
			first = w.waiters[0]
			w.waiters = slices.Delete(w.waiters, 0, 1)
		}
		again := len(w.waiters) > 0
		if !again {
			delete(b.waits, path)
		}
		b.mu.Unlock()
		switch {
		case first != nil:
			first <- locked{f, err}
		case err == nil:
			localfile.LetGo(f)
		}
		if !again {
			return
		}
	}
}

// hasWaiters reports whether others in this process wait for the file at path; a new
// caller has to wait behind them.
func (b *Backend) hasWaiters(path string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.waits[path]
	return w != nil && len(w.waiters) > 0
}
