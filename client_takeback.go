package locker

import (
	"context"
	"errors"
	"time"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/clock"
)

// ending is why a lease ended, or why an attempt never became one. It decides what follows, here and
// nowhere else:
//
//	ending      Lease.Err    the lock is removed                 Trace function
//	unlocked    ErrUnlocked  now; under MinHold, when it ends    Released
//	            or ErrClosed
//	lost        its cause    when the service would have ended   Lost, TakenBack
//	                         it too, so that the holder has some
//	                         time to stop; not before MinHold
//	                         ends
//	unreleased  unchanged    as unlocked, a moment after the     TakenBack
//	                         failed release
//	unused      none         now, despite MinHold: it was not    TakenBack
//	                         given out
//
// [Lease.GiveBack] drops the MinHold.
type ending uint8

const (
	unlocked ending = iota // by its holder, or by Close
	lost
	unreleased
	unused
)

// freeAt returns when the service is asked to remove the lock of l.
func (l *Lease) freeAt(why ending, now time.Time) time.Time {
	switch why {
	case unreleased:
		return now.Add(firstTakeBackDelay)
	case lost:
		return later(later(now, l.expiry()), now.Add(l.keeps(now)))
	}
	return now
}

// expiry is the time when the service itself ends the lock; zero: never.
func (l *Lease) expiry() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.grant.Validity.TTL == 0 {
		return time.Time{}
	}
	return l.grant.Validity.Since.Add(l.grant.Validity.TTL)
}

// keeps is how much longer MinHold keeps the lock; 0 if there is no MinHold, or the lock was not used.
// It counts by the monotonic clock alone: nobody else may run earlier, whatever the wall clock says.
func (l *Lease) keeps(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	left := l.start.Add(l.settings.MinHold).Sub(now)
	if l.settings.MinHold == 0 || l.start.IsZero() || l.returned || left <= 0 {
		return 0
	}
	return left + driver.Drift(left)
}

const firstTakeBackDelay = 20 * time.Millisecond

// maxUndoing bounds concurrent take-back requests: while a service hangs, their number has no other
// bound. Renewals and releases are bounded by the number of leases. A server that hangs must not keep
// leases on another server from being renewed (R21).
const maxUndoing = 512

// takeBack arranges for the removal of what an attempt or a lease left in the service, once that is
// allowed, in the background and with a context of its own (R7).
func (l *Lease) takeBack(why ending) {
	if why == unused {
		l.mu.Lock()
		l.returned = true
		l.mu.Unlock()
	}
	c, at := l.client, l.freeAt(why, time.Now())
	c.mu.Lock()
	_, pending := c.pending[l]
	if !l.undoAt.IsZero() && (!pending || !at.Before(l.undoAt)) {
		c.mu.Unlock()
		return // it is done, or due no later
	}
	l.undoAt = at
	c.pending[l] = struct{}{}
	closed := c.isClosed()
	if !closed {
		c.schedule.set(l, at) // under c.mu: a later time must not replace an earlier one
	}
	c.mu.Unlock()
	if closed { // Close may not have seen it
		l.undoAtClose()
	}
}

// undoAtClose ends the wait of a take-back whose client is closed: it makes its last attempt now.
func (l *Lease) undoAtClose() {
	l.client.schedule.remove(l)
	l.client.busy.run(l.undo)
}

// mayUndo reports whether a take-back is due.
func (l *Lease) mayUndo() bool {
	c := l.client
	c.mu.Lock()
	defer c.mu.Unlock()
	_, pending := c.pending[l]
	return pending && !time.Now().Before(l.undoAt)
}

// undo makes one attempt, and schedules another if something may be left.
func (l *Lease) undo() {
	c := l.client
	ctx, last := c.rest, c.isClosed()
	if ctx.Err() != nil { // Close has finished
		ctx = clock.Within(context.Background(), time.Second)
	}
	err := ErrUnavailable // while too many ask, it waits without a goroutine
	if c.undoing.Add(1) <= maxUndoing || last {
		err = l.askUndo(ctx)
	}
	c.undoing.Add(-1)
	if err != nil && !last {
		c.schedule.set(l, time.Now().Add(l.nextPause(err)))
	} else if l.undone() {
		if errors.Is(err, ErrLost) {
			err = nil // nothing was there
		}
		c.happened(l.values, c.trace.TakenBack, Event{Op: "takeback", Name: l.name, Err: err}, &c.stats.TakenBack,
			&c.stats.LeftBehind, "lock may be left behind until its TTL or session ends")
	}
}

// nextPause returns the time to the next attempt after err: twice the last pause, up to a bound. A lock
// that is not found although MinHold keeps it may be kept in another way, as after its session has
// ended: it is undone when the MinHold ends, not before.
func (l *Lease) nextPause(err error) time.Duration {
	c, keep := l.client, l.keeps(time.Now())
	c.mu.Lock()
	defer c.mu.Unlock()
	longest := max(min(l.settings.TTL/10, time.Second), min(keep/20, time.Minute))
	l.refused = l.refused || errors.Is(matching(c.rest, err), ErrRefused)
	switch {
	case errors.Is(err, ErrLost) && keep > 0:
		return keep
	case errors.Is(err, ErrLost):
		longest = max(longest, time.Since(l.undoAt)/8) // it may still arrive until the end of a MinHold of an hour
	}
	l.undoPause = max(min(2*l.undoPause, longest), firstTakeBackDelay)
	return clock.Jitter(l.undoPause)
}

// askUndo makes one attempt. It returns nil if nothing is left but perhaps a lock that ends with its
// MinHold. Until then it does not call Undo, which could let another holder in.
func (l *Lease) askUndo(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, unlockTimeout)
	defer cancel()
	if l.grant.Hold == nil {
		return l.grant.Refused.Undo(ctx)
	}
	if keep := l.keeps(time.Now()); keep > 0 {
		return l.grant.Hold.Release(ctx, keep)
	}
	return l.grant.Hold.Undo(ctx) // this also covers what a refused attempt left
}

// undone removes l from the pending take-backs; it returns false if l was no longer there.
func (l *Lease) undone() bool {
	c := l.client
	c.mu.Lock()
	defer c.mu.Unlock()
	_, pending := c.pending[l]
	if delete(c.pending, l); l.settings.Shared && !l.refused {
		c.undoneAt = time.Now()
	}
	return pending
}
