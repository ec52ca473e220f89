package file

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/localfile"
)

// maxThreads bounds the blocked threads of a Backend, far below the runtime's limit
// of 10,000, at which a program crashes.
const maxThreads = 256

// waited is what a goroutine waits for: the lock on the file at path, alone or shared.
type waited struct {
	path string
	how  localfile.How
}

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

func (l locked) letGo() {
	if l.err == nil {
		localfile.LetGo(l.file)
	}
}

// get returns when the kernel has granted the lock, or when ctx is done or the
// backend closed. Callers get it in the order in which they came.
func (b *Backend) get(ctx context.Context, on waited) (*os.File, error) {
	if !b.hasWaiters(on) {
		if f, err := b.openLocked(on.path, on.how|localfile.NoWait); !waits(err) {
			return f, err
		}
	}
	mine := make(chan locked, 1)
	b.mu.Lock()
	w := b.waits[on]
	if w == nil {
		if len(b.waits) == maxThreads {
			b.mu.Unlock()
			return nil, locker.ErrHeld // the engine polls
		}
		w = &wait{}
		b.waits[on] = w
		go b.block(on, w)
	}
	w.waiters = append(w.waiters, mine)
	b.mu.Unlock()

	var err error
	select {
	case l := <-mine:
		return l.file, l.err
	case <-ctx.Done():
		err = leaves(ctx)
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
		(<-mine).letGo()
	}
	return nil, err
}

// leaves is the error of one that stops waiting.
func leaves(ctx context.Context) error { return fmt.Errorf("%w (%w)", locker.ErrHeld, ctx.Err()) }

// sleep is a wait for nothing but time.
func (b *Backend) sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return leaves(ctx)
	case <-b.closed:
		return locker.ErrClosed
	}
}

// maxReplaced is how often in a row block may find the file replaced before it
// returns an error: more often than any cleaner deletes files.
const maxReplaced = 1000

// block is the only goroutine of its backend that blocks for this. Each flock serves
// one waiter: the lock itself is never passed on (R13).
func (b *Backend) block(on waited, w *wait) {
	replaced := 0
	for {
		f, err := b.openLocked(on.path, on.how)
		l := locked{f, err}
		if errors.Is(l.err, errReplaced) && replaced < maxReplaced {
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
			delete(b.waits, on)
		}
		b.mu.Unlock()
		if first != nil {
			first <- l
		} else {
			l.letGo()
		}
		if !again {
			return
		}
	}
}

// hasWaiters reports whether others in this process wait for the same; a new caller
// has to wait behind them.
func (b *Backend) hasWaiters(on waited) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.waits[on]
	return w != nil && len(w.waiters) > 0
}
