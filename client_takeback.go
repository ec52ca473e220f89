package locker

import (
	"context"
	"errors"
	"time"

	"github.com/golockers/locker/internal/clock"
)

// ending is why a lease is over, or what was asked for never became one. It decides what
// follows, here and nowhere else:
//
//	ending      Lease.Err    the lock may go                       Trace is told
//	unlocked    ErrUnlocked  now; under MinHold, when that ends    Released
//	closed      ErrClosed    the same                              Released
//	lost        its cause    when the service would have ended it  Lost, TakenBack
//	                         too, so that a holder that has just
//	                         been told has some time to stop;
//	                         under MinHold, not before
//	unreleased  as it was    a moment after the release that has   TakenBack
//	                         failed; under MinHold, when that ends
//	unused      none         now, MinHold or not: nobody was told  TakenBack
//	                         that it is held
type ending uint8

const (
	unlocked ending = iota
	closed
	lost
	unreleased
	unused
)

// freeAt returns when the lock of l may go.
func (l *Lease) freeAt(why ending, now time.Time) time.Time {
	at := now
	switch why {
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

// keep is the time when MinHold is over; zero if there is none, or nobody was told that the lock is
// held. It counts by the monotonic clock alone: nobody else may run before, whatever the wall clock
// is set to.
func (l *Lease) keep() time.Time {
	if l.settings.MinHold == 0 || l.start.IsZero() {
		return time.Time{}
	}
	return l.start.Add(l.settings.MinHold + drift(l.settings.MinHold))
}

// takeBack removes, in the background and with a context of its own, what an attempt
// or a lease has left in the service (R7).
type takeBack struct {
	event
	lease  *Lease
	begins time.Time     // client.mu guards it
	delay  time.Duration // and this
}

const firstTakeBackDelay = 20 * time.Millisecond

// maxUndoing bounds the take-backs that ask at the same time: while a service hangs, there can be any
// number of them. There are only as many renewals and releases as leases; a server that hangs must
// not keep the leases of another one from being renewed (R21).
const maxUndoing = 512

// takeBack arranges for the lock of l to be taken back, when it may go.
func (l *Lease) takeBack(why ending) {
	c, at := l.client, l.freeAt(why, time.Now())
	c.mu.Lock()
	t := l.leftover
	if _, pending := c.pending[t]; t != nil && (!pending || !at.Before(t.begins)) {
		c.mu.Unlock()
		return // it is through, or comes as soon
	}
	if t == nil {
		t = &takeBack{lease: l, delay: firstTakeBackDelay}
	}
	t.begins, l.leftover = at, t
	c.pending[t] = struct{}{}
	c.mu.Unlock()
	if c.isClosed() { // Close may not have seen it
		t.close()
	} else {
		c.schedule.set(t, at)
	}
}

// close ends the wait of a take-back whose client is closed: it asks now. While MinHold keeps the lock,
// it leaves that to the service, if that ends it by then: the backend may be closed, too.
func (t *takeBack) close() {
	l, c, keep := t.lease, t.lease.client, t.lease.keep()
	c.schedule.remove(t)
	if !time.Now().Before(keep) {
		c.busy.run(t.run)
		return
	}
	expiry := l.expiry()
	ends := !expiry.IsZero() && !expiry.After(keep)
	if l.grant.Session {
		ends = c.owned // with its backend
	}
	if !t.forget() || ends {
		return
	}
	// Without this, a long TTL or the process would keep the lock. If the program ends sooner, its
	// locks end with it.
	time.AfterFunc(time.Until(keep), func() {
		for delay := time.Second; delay < 2*time.Minute; delay *= 2 {
			if err := t.ask(context.Background()); err == nil || errors.Is(err, ErrClosed) {
				return
			}
			time.Sleep(delay)
		}
	})
}

// due is called by the schedule.
func (t *takeBack) due() { t.lease.client.busy.run(t.run) }

// run makes one attempt, and arranges for another if something may be left.
func (t *takeBack) run() {
	c := t.lease.client
	ctx := c.rest
	if ctx.Err() != nil { // Close is through: only one brief attempt remains
		brief, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		ctx = brief
	}
	c.undoing <- struct{}{}
	err := t.ask(ctx)
	<-c.undoing
	if err != nil && !c.isClosed() {
		c.schedule.set(t, time.Now().Add(clock.Jitter(t.pause(err))))
	} else if t.forget() {
		t.tell(err)
	}
}

// pause returns the time to the next attempt, after err.
func (t *takeBack) pause(err error) time.Duration {
	c := t.lease.client
	c.mu.Lock()
	defer c.mu.Unlock()
	longest := max(min(t.lease.settings.TTL/10, time.Second), firstTakeBackDelay)
	if errors.Is(err, ErrLost) {
		longest = max(longest, time.Since(t.begins)/8) // it may arrive until an hour of MinHold is over
	}
	pause := t.delay
	t.delay = min(2*t.delay, longest)
	return pause
}

// ask makes one attempt; it returns nil if nothing is left.
func (t *takeBack) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, unlockTimeout)
	defer cancel()
	return t.lease.grant.Hold.Undo(ctx)
}

// forget takes t off the list; it returns false if it was not there any more.
func (t *takeBack) forget() bool {
	c := t.lease.client
	c.mu.Lock()
	defer c.mu.Unlock()
	_, pending := c.pending[t]
	delete(c.pending, t)
	return pending
}

// tell counts and traces the end of a take-back.
func (t *takeBack) tell(err error) {
	c := t.lease.client
	if errors.Is(err, ErrLost) {
		err = nil // nothing is there
	}
	if err == nil {
		c.count(func(s *Stats) { s.TakenBack++ })
	} else {
		c.count(func(s *Stats) { s.LeftBehind++ })
		c.warn("lock may be left behind until its TTL or session ends", t.lease.name, err)
	}
	tell(t.lease.values, c.trace.TakenBack, Event{Op: "takeback", Name: t.lease.name, Err: err})
}
