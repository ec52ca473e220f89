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
	case unused:
		return now
	case unreleased:
		at = now.Add(firstTakeBackDelay)
	case lost:
		at = later(now, l.expiry)
	}
	return later(at, l.keep())
}

// keep is the time when MinHold is over; zero if there is none. It counts by the
// monotonic clock alone: nobody else may run before, whatever the wall clock is set to.
func (l *Lease) keep() time.Time {
	if l.settings.minHold == 0 {
		return time.Time{}
	}
	return l.start.Add(l.settings.minHold + drift(l.settings.minHold))
}

// takeBack removes, in the background and with a context of its own, what an attempt
// or a lease has left in the service (R7).
type takeBack struct {
	event
	lease *Lease
	why   ending
	at    time.Time // when it begins
	delay time.Duration
}

const firstTakeBackDelay = 20 * time.Millisecond

// takeBack arranges for the lock of l to be taken back, when it may go.
func (l *Lease) takeBack(why ending) {
	c := l.client
	t := &takeBack{lease: l, why: why, at: l.freeAt(why, time.Now()), delay: firstTakeBackDelay}
	c.mu.Lock()
	if old := l.leftover; old != nil {
		if _, waits := c.pending[old]; !waits || !t.at.Before(old.at) {
			c.mu.Unlock()
			return // it is through, or comes as soon
		}
		delete(c.pending, old)
		c.schedule.remove(old)
	}
	l.leftover = t
	drained := c.drained
	if !drained {
		if c.pending == nil {
			c.pending = make(map[*takeBack]struct{})
		}
		c.pending[t] = struct{}{}
	}
	c.mu.Unlock()
	switch {
	case !drained:
		c.schedule.set(t, t.at)
	case t.kept():
		t.keep()
	default: // Close has run its last take-backs: only one brief attempt remains
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		t.tell(t.ask(ctx))
	}
}

// kept reports whether MinHold still keeps the lock.
func (t *takeBack) kept() bool {
	return t.why != unused && time.Now().Before(t.lease.keep())
}

// keep leaves the lock of a closed client to the service, if that ends it with its MinHold:
// the backend may be closed by then, too. A session keeps it until its backend is closed.
func (t *takeBack) keep() {
	l := t.lease
	l.mu.Lock()
	ends := !l.expiry.IsZero() && !l.expiry.After(l.keep())
	l.mu.Unlock()
	if l.session {
		ends = l.client.owned
	}
	if !ends {
		t.later()
	}
}

// hasDeadline reports whether the service ends the lock by itself.
func (l *Lease) hasDeadline() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.expiry.IsZero()
}

// later takes the lock back when MinHold is over, although the client is closed by then:
// without it, a long TTL or the process would keep the lock. It gives up after
// some two minutes. If the program ends sooner, its locks end with it.
func (t *takeBack) later() {
	delay := time.Second
	var ask func()
	ask = func() {
		err := t.ask(context.Background())
		if err != nil && !errors.Is(err, ErrClosed) && delay < time.Minute {
			delay *= 2
			time.AfterFunc(delay, ask)
		}
	}
	time.AfterFunc(time.Until(t.lease.keep()), ask)
}

// close ends the wait of a take-back whose client is closed: it asks now, or, where
// MinHold still keeps the lock, once that is over.
func (t *takeBack) close() {
	c := t.lease.client
	c.schedule.remove(t)
	if !t.kept() {
		c.work.do(t.run)
	} else if t.forget() {
		t.keep()
	}
}

// due is called by the schedule.
func (t *takeBack) due() { t.lease.client.work.do(t.run) }

// run makes one attempt, and arranges for another if something may be left.
func (t *takeBack) run() {
	c := t.lease.client
	err := t.ask(c.rest)
	if err != nil && !c.isClosed() && t.isPending() {
		c.schedule.set(t, time.Now().Add(clock.Jitter(t.delay)))
		longest := max(min(t.lease.settings.ttl/10, time.Second), firstTakeBackDelay)
		if errors.Is(err, ErrLost) {
			longest = max(longest, time.Since(t.at)/8) // it may arrive until an hour of MinHold is over
		}
		t.delay = min(2*t.delay, longest)
		return
	}
	if t.forget() {
		t.tell(err)
	}
}

// ask makes one attempt; it returns nil if nothing is left.
func (t *takeBack) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, unlockTimeout)
	defer cancel()
	return t.lease.hold.Undo(ctx)
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

// isPending reports whether t is on the list: false if another has taken its place.
func (t *takeBack) isPending() bool {
	c := t.lease.client
	c.mu.Lock()
	defer c.mu.Unlock()
	_, pending := c.pending[t]
	return pending
}

// tell counts and traces the end of a take-back.
func (t *takeBack) tell(err error) {
	c := t.lease.client
	if errors.Is(err, ErrLost) {
		err = nil // nothing is there
	}
	if err == nil {
		c.counters.add(func(s *Stats) { s.TakenBack++ })
	} else {
		c.counters.add(func(s *Stats) { s.LeftBehind++ })
		c.warn("lock may be left behind until its TTL or session ends", t.lease.name, err)
	}
	if c.trace.TakenBack != nil {
		c.trace.TakenBack(t.lease.values, Event{Op: "takeback", Name: t.lease.name, Err: err})
	}
}
