package locker

import (
	"context"
	"errors"
	"time"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/clock"
)

// ending is why a lease is over, or what was asked for never became one. It decides what
// follows, here and nowhere else:
//
//	ending      Lease.Err    the lock may go                       Trace is told
//	unlocked    ErrUnlocked, now; under MinHold, when that ends    Released
//	            or ErrClosed
//	lost        its cause    when the service would have ended it  Lost, TakenBack
//	                         too, so that a holder that has just
//	                         been told has some time to stop;
//	                         under MinHold, not before
//	unreleased  as it was    a moment after the release that has   TakenBack
//	                         failed; under MinHold, when that ends
//	unused      none         now, MinHold or not: nobody was told  TakenBack
//	                         that it is held
//
// What is given back ([Lease.GiveBack]) has no MinHold any more.
type ending uint8

const (
	unlocked ending = iota // by its holder, or by Close
	lost
	unreleased
	unused
)

// freeAt returns when the lock of l may go.
func (l *Lease) freeAt(why ending, now time.Time) time.Time {
	at := now
	switch why {
	case unused:
		return now
	case unreleased:
		at = now.Add(firstTakeBackDelay)
	case lost:
		at = later(now, l.expiry())
	}
	return later(at, l.keep())
}

// expiry is the time when the service ends the lock by itself; zero: never.
func (l *Lease) expiry() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.grant.Validity.TTL == 0 {
		return time.Time{}
	}
	return l.grant.Validity.Since.Add(l.grant.Validity.TTL)
}

// keep is the time when MinHold is over; zero if there is none, nobody was told that the lock is
// held, or its holder has given it back. It counts by the monotonic clock alone: nobody else may run
// before, whatever the wall clock is set to.
func (l *Lease) keep() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.settings.MinHold == 0 || l.start.IsZero() || l.returned {
		return time.Time{}
	}
	return l.start.Add(l.settings.MinHold + driver.Drift(l.settings.MinHold))
}

const firstTakeBackDelay = 20 * time.Millisecond

// maxUndoing bounds the take-backs that ask at the same time: while a service hangs, there can be any
// number of them. There are only as many renewals and releases as leases; a server that hangs must
// not keep the leases of another one from being renewed (R21).
const maxUndoing = 512

// takeBack arranges for what an attempt or a lease has left in the service to be removed when it may
// go, in the background and with a context of its own (R7).
func (l *Lease) takeBack(why ending) {
	c, at := l.client, l.freeAt(why, time.Now())
	c.mu.Lock()
	_, pending := c.pending[l]
	if !l.undoAt.IsZero() && (!pending || !at.Before(l.undoAt)) {
		c.mu.Unlock()
		return // it is through, or comes as soon
	}
	l.undoAt = at
	c.pending[l] = struct{}{}
	closed := c.isClosed()
	if !closed {
		c.schedule.set(l, at) // before c.mu is free: a later time does not replace a sooner one
	}
	c.mu.Unlock()
	if closed { // Close may not have seen it
		l.undoAtClose()
	}
}

// undoAtClose ends the wait of a take-back whose client is closed: it asks now. While MinHold keeps the
// lock, it leaves that to the service, if that ends it by then: the backend may be closed, too.
func (l *Lease) undoAtClose() {
	c, keep, expiry := l.client, l.keep(), l.expiry()
	c.schedule.remove(l)
	if !time.Now().Before(keep) {
		c.busy.run(l.undo)
		return
	}
	ends := !expiry.IsZero() && (c.owned || !expiry.After(keep))
	if l.grant.Session {
		ends = c.owned // with its backend
	}
	if !l.undone() || ends {
		return
	}
	// Without this, a long TTL or the process would keep the lock. If the program ends sooner, its
	// locks end with it.
	delay := time.Second / 2
	var ask func()
	ask = func() {
		if err := l.askUndo(context.Background()); err != nil && !errors.Is(err, ErrClosed) {
			delay = min(2*delay, time.Minute)
			time.AfterFunc(delay, ask)
		}
	}
	time.AfterFunc(time.Until(keep), ask)
}

// mayUndo reports whether it is time for a take-back.
func (l *Lease) mayUndo() bool {
	c := l.client
	c.mu.Lock()
	defer c.mu.Unlock()
	_, pending := c.pending[l]
	return pending && !time.Now().Before(l.undoAt)
}

// undo makes one attempt, and arranges for another if something may be left.
func (l *Lease) undo() {
	c := l.client
	ctx, last := c.rest, c.isClosed()
	if ctx.Err() != nil { // Close is through
		ctx = clock.Within(context.Background(), time.Second)
	}
	err := ErrUnavailable // it waits without a goroutine while too many ask
	if c.undoing.Add(1) <= maxUndoing || last {
		err = l.askUndo(ctx)
	}
	c.undoing.Add(-1)
	if err != nil && !last {
		c.schedule.set(l, time.Now().Add(clock.Jitter(l.nextPause(err))))
	} else if l.undone() {
		if errors.Is(err, ErrLost) {
			err = nil // nothing is there
		}
		c.happened(l.values, c.trace.TakenBack, Event{Op: "takeback", Name: l.name, Err: err}, &c.stats.TakenBack,
			&c.stats.LeftBehind, "lock may be left behind until its TTL or session ends")
	}
}

// nextPause returns the time to the next attempt, after err: twice as long as the last, up to a bound.
func (l *Lease) nextPause(err error) time.Duration {
	c := l.client
	c.mu.Lock()
	defer c.mu.Unlock()
	longest := min(l.settings.TTL/10, time.Second)
	l.refused = l.refused || errors.Is(matching(c.rest, err), ErrRefused)
	if errors.Is(err, ErrLost) {
		longest = max(longest, time.Since(l.undoAt)/8) // it may arrive until an hour of MinHold is over
	}
	l.undoPause = max(min(2*l.undoPause, longest), firstTakeBackDelay)
	return l.undoPause
}

// askUndo makes one attempt; it returns nil if nothing is left.
func (l *Lease) askUndo(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, unlockTimeout)
	defer cancel()
	if l.grant.Hold == nil {
		return l.grant.Refused.Undo(ctx)
	}
	return l.grant.Hold.Undo(ctx) // which has all that is left, beside a refusal, too
}

// undone takes l off the list of take-backs; it returns false if it was not there any more.
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
