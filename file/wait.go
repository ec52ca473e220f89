package file

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/localfile"
)

// maxThreads bounds the blocked threads of a Backend, far below the runtime's limit
// of 10,000, at which a program crashes.
const maxThreads = 256

// waited is what a goroutine waits for: the lock on the file at path, exclusive or shared.
type waited struct {
	path string
	how  localfile.How
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

// wait begins to wait for a lock. granted receives it once; waiters that share a thread get it in
// order. leave ends the wait, and unlocks what was not taken out of granted.
func (b *Backend) wait(on waited) (granted <-chan locked, leave func()) {
	mine := make(chan locked, 1)
	leave = func() {
		b.mu.Lock()
		if queue, blocked := b.waits[on]; blocked {
			b.waits[on] = slices.DeleteFunc(queue, func(c chan locked) bool { return c == mine })
		}
		b.mu.Unlock()
		select {
		case l := <-mine:
			l.letGo()
		default:
		}
	}
	if f, err := b.openLocked(on.path, on.how|localfile.NoWait); !errors.Is(err, localfile.ErrBusy) {
		mine <- locked{f, err} // without a thread
		return mine, leave
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	queue, blocked := b.waits[on]
	if !blocked && len(b.waits) == maxThreads {
		mine <- locked{err: driver.ErrHeld} // the engine polls
		return mine, leave
	}
	b.waits[on] = append(queue, mine)
	if !blocked {
		go b.block(on)
	}
	return mine, leave
}

// get returns when the kernel has granted the lock, or when ctx is done.
func (b *Backend) get(ctx context.Context, on waited) (*os.File, error) {
	granted, leave := b.wait(on)
	defer leave()
	select {
	case l := <-granted:
		return l.file, l.err
	case <-ctx.Done():
		return nil, b.leaves(ctx)
	}
}

// leaves is the error of a caller that stops waiting.
func (b *Backend) leaves(ctx context.Context) error {
	if b.life.Err() != nil {
		return driver.ErrClosed
	}
	return fmt.Errorf("%w (%w)", driver.ErrHeld, ctx.Err())
}

// block is the only goroutine of its backend that blocks for this lock, until it has no waiters. Each
// flock serves one waiter: the lock itself is never passed on (R13).
func (b *Backend) block(on waited) {
	for again := true; again; {
		var l locked
		l.file, l.err = b.openLocked(on.path, on.how)
		b.mu.Lock()
		queue := b.waits[on]
		if len(queue) > 0 {
			queue[0] <- l
			queue = queue[1:]
		} else {
			l.letGo()
		}
		b.waits[on] = queue
		if again = len(queue) > 0; !again {
			delete(b.waits, on)
		}
		b.mu.Unlock()
	}
}
