package locker

import (
	"context"
	"errors"
	"time"

	"github.com/golockers/locker/internal/clock"
)

// takeBack removes, in the background, the leftover of a hold in the service: after a
// request with an unknown outcome, a failed release, or a lost lease (R7). It has a
// context of its own.
type takeBack struct {
	event
	lease *Lease
	hold  Hold // lease.hold is set only once it was granted
	// ghost: the request that made the hold may still be in flight. If nothing is
	// found, it may still arrive.
	ghost bool
	at    time.Time // when it begins
	until time.Time // when to give up: the TTL bounds what is left then; zero: never
	delay time.Duration
	wait  time.Duration // the longest delay
}

const firstTakeBackDelay = 20 * time.Millisecond

// takeBackAt arranges for hold to be taken back, not before the given time.
func (l *Lease) takeBackAt(at time.Time, hold Hold, ghost bool) {
	c := l.client
	if at.IsZero() {
		at = time.Now()
	}
	ttl := l.settings.ttl
	t := &takeBack{
		lease: l, hold: hold, ghost: ghost, at: at,
		delay: firstTakeBackDelay,
		wait:  min(max(ttl/10, firstTakeBackDelay), time.Second),
	}
	if _, ok := hold.(TakeBacker); !ok {
		t.until = at.Add(ttl)
	}
	c.mu.Lock()
	if c.drained {
		// Close has run its last take-backs: only one brief attempt remains.
		c.mu.Unlock()
		if t.kept() {
			t.later()
		} else {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			t.tell(t.ask(ctx))
		}
		return
	}
	if c.pending == nil {
		c.pending = make(map[*takeBack]struct{})
	}
	c.pending[t] = struct{}{}
	c.mu.Unlock()
	c.schedule.set(t, at)
}

// kept reports whether MinHold still keeps the lock.
func (t *takeBack) kept() bool {
	return t.lease.settings.minHold != 0 && !clock.Passed(t.at, time.Now())
}

// later takes the hold back when MinHold is over, although the client is closed by
// then: a lock of a process or a session does not expire by itself. It gives up after
// some two minutes. If the program ends sooner, its locks end with it.
func (t *takeBack) later() {
	delay := time.Second
	var ask func()
	ask = func() {
		if t.ask(context.Background()) != nil && delay < time.Minute {
			delay *= 2
			time.AfterFunc(delay, ask)
		}
	}
	time.AfterFunc(time.Until(t.at), ask)
}

// due is called by the schedule.
func (t *takeBack) due() { t.lease.client.work.do(t.run) }

// run makes one attempt, and arranges for another if something may be left.
func (t *takeBack) run() {
	c := t.lease.client
	err := t.ask(c.rest)
	if err != nil && (t.until.IsZero() || time.Now().Before(t.until)) && !c.isClosed() {
		d := clock.Jitter(t.delay)
		t.delay = min(2*t.delay, t.wait)
		c.schedule.set(t, time.Now().Add(d))
		return
	}
	t.finish(err)
}

// ask makes one attempt; it returns nil if nothing is left, as far as the hold can
// know.
func (t *takeBack) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, unlockTimeout)
	defer cancel()
	if h, ok := t.hold.(TakeBacker); ok {
		return h.TakeBack(ctx)
	}
	err := t.hold.Release(ctx)
	if errors.Is(err, ErrLost) && !t.ghost {
		return nil
	}
	return err
}

func (t *takeBack) finish(err error) {
	c := t.lease.client
	c.mu.Lock()
	_, pending := c.pending[t]
	delete(c.pending, t)
	c.mu.Unlock()
	if pending {
		t.tell(err)
	}
}

// tell counts and traces the end of a take-back.
func (t *takeBack) tell(err error) {
	c := t.lease.client
	if errors.Is(err, ErrLost) {
		err = nil // nothing was there
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
