package locker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/golockers/locker/internal/clock"
)

// goneByService is the Lost function of this lease's request.
func (l *Lease) goneByService() {
	l.lose(fmt.Errorf("the service told that it is gone: %w", ErrLost))()
}

// expire ends a lease whose deadline has passed; see lose.
func (l *Lease) expire() (then func()) {
	l.mu.Lock()
	until := l.until
	l.mu.Unlock()
	cause := fmt.Errorf("it could not be renewed before %v: %w", until.Format(time.RFC3339Nano), ErrLost)
	switch limit := l.limit(); {
	case !limit.IsZero() && !until.Before(limit):
		cause = fmt.Errorf("MaxHold of %v is reached: %w", l.settings.maxHold, ErrLost)
	case l.settings.noRenew:
		cause = fmt.Errorf("it was not renewed before %v: %w", until.Format(time.RFC3339Nano), ErrLost)
	}
	return l.lose(cause)
}

// lose ends the lease with a cause that matches ErrLost. then, which the caller
// has to call, tells of it, and clears up.
func (l *Lease) lose(cause error) (then func()) {
	cause = l.fail("lease", cause)
	l.mu.Lock()
	granted := l.granted
	if !granted && l.err == nil {
		l.err = cause // told before it was given out: it never will be
	}
	l.mu.Unlock()
	if !granted || !l.end(cause) {
		return func() {}
	}
	return func() {
		l.lost(cause)
		l.clear()
	}
}

// end makes the lease over, once; it returns false if it was before.
func (l *Lease) end(cause error) bool {
	l.mu.Lock()
	if l.err != nil {
		l.mu.Unlock()
		return false
	}
	l.err = cause
	if l.done != nil {
		close(l.done)
	}
	ends := l.ends
	l.ends = nil
	l.client.schedule.remove(l)
	l.mu.Unlock()
	for end := range ends {
		(*end)(cause)
	}
	return true
}

// clear takes what is left of a lost lease back, once the service would have
// let it go too: until then it does no harm, and gives a holder that has just
// been told some grace. Whoever comes next in line may ask from now on.
func (l *Lease) clear() {
	l.mu.Lock()
	ln, expiry := l.line, l.expiry
	l.line = nil
	l.mu.Unlock()
	if ln == nil {
		return
	}
	l.takeBackAt(later(expiry, l.keep), l.hold, false)
	l.client.lines.leave(ln)
}

// release asks the service to let go, once, and hands what remains to do to
// a take-back. Under MinHold there is nothing to ask for before it is over.
func (l *Lease) release(ctx context.Context) error {
	if now := time.Now(); !l.keep.IsZero() && !clock.Passed(l.keep, now) {
		l.takeBackAt(l.keep, l.hold, false)
		l.leaveLine()
		l.released(ctx, 0, nil)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, unlockTimeout)
	defer cancel()
	if l.client.queue {
		// The service has a queue: who asks while the release is under way comes
		// behind it there, and is not refused.
		l.leaveLine()
	}
	began := time.Now()
	err := l.hold.Release(ctx)
	l.released(ctx, time.Since(began), err)
	switch {
	case err == nil:
	case errors.Is(err, ErrLost):
		err = fmt.Errorf("it was gone before the release: %w", err)
	default:
		l.takeBackAt(time.Now().Add(firstTakeBackDelay), l.hold, false)
		free := ""
		if errors.Is(err, ErrUnavailable) { // and not refused, by a service that may keep it for longer
			free = fmt.Sprintf("; the lock is free after %v at the latest", l.settings.ttl)
		}
		err = fmt.Errorf("the release is not confirmed and is tried again in the background%s: %w", free, err)
	}
	l.leaveLine()
	return err
}

// leaveLine lets whoever comes next in line ask.
func (l *Lease) leaveLine() {
	l.mu.Lock()
	ln := l.line
	l.line = nil
	l.mu.Unlock()
	if ln != nil {
		l.client.lines.leave(ln)
	}
}

func (l *Lease) finishUnlock(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unlocking, l.unlockErr = unlockDone, l.fail("unlock", err)
	if l.unlocked != nil {
		close(l.unlocked)
	}
}

// close ends the lease because its client is closed, and releases it.
func (l *Lease) close() {
	if !l.end(ErrClosed) {
		return
	}
	l.client.work.do(func() { _ = l.release(context.Background()) })
}
