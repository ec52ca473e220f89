package file

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

// lookFirst and lookMost are how long a sharer waits for the turn before it looks at the lock itself: at first,
// and at most later. Each pause is up to a half longer or shorter.
const (
	lookFirst = time.Second
	lookMost  = 4 * time.Second
)

// takeTurn returns the turn for a sharer, or nil and the result of Acquire. Who has the turn may be stopped, and then
// leaves the lock free, and the turn locked, for as long. So the first of those who wait for the turn looks now and
// then whether it can have the lock alone. That is safe without the turn; it may be before its turn.
func (b *Backend) takeTurn(ctx context.Context, turn, on waited, req locker.Request) (
	*os.File, locker.Grant, error,
) {
	var g locker.Grant
	var got error
	t, err := b.get(ctx, turn, func() bool {
		if b.hasWaiters(on) {
			return false // of this process, so not stopped
		}
		alone := req
		alone.Shared = false
		g, got = b.grab(on.path, alone)
		return !waits(got)
	})
	if errors.Is(err, errLooked) {
		return nil, g, got
	}
	return t, locker.Grant{}, err
}

// errLooked is the error of get if its look has ended the wait.
var errLooked = errors.New("the look has ended the wait")

// get returns when the kernel has granted the lock, or when ctx is done,
// or a look has returned true: the first who waits calls it now and then,
// unless it is nil. Callers get the lock in the order in which they came.
func (b *Backend) get(ctx context.Context, on waited, look func() bool) (*os.File, error) {
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
	for pause := lookFirst; err == nil; pause = min(2*pause, lookMost) {
		var next <-chan time.Time
		if look != nil {
			next = time.After(pause/2 + rand.N(pause))
		}
		select {
		case l := <-mine:
			return l.file, l.err
		case <-ctx.Done():
			err = b.leaves(ctx)
		case <-next:
			b.mu.Lock()
			first := len(w.waiters) > 0 && w.waiters[0] == mine
			b.mu.Unlock()
			if first && look() {
				err = errLooked
			}
		}
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
func (b *Backend) leaves(ctx context.Context) error {
	if b.life.Err() != nil {
		return locker.ErrClosed
	}
	return fmt.Errorf("%w (%w)", locker.ErrHeld, ctx.Err())
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
