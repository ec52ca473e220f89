package locker

import (
	"context"
	"errors"
	"time"
)

// takeBack removes, in the background, what may be left of a hold in the
// service: after a request whose outcome is not known, a release that failed,
// or a lease that was lost (R7). It has a context of its own.
type takeBack struct {
	event
	client *Client
	name   string
	hold   Hold
	// ghost: the request that made the hold may still be under way. Finding
	// nothing is then no proof that nothing will be there.
	ghost bool
	until time.Time // when to give up: the TTL bounds what is left then
	delay time.Duration
	wait  time.Duration // the longest delay
}

const firstTakeBackDelay = 20 * time.Millisecond

// takeBackAt arranges for hold to be released, at the earliest at the given time.
func (c *Client) takeBackAt(at time.Time, name string, hold Hold, ttl time.Duration, ghost bool) {
	if at.IsZero() {
		at = time.Now()
	}
	t := &takeBack{
		client: c, name: name, hold: hold, ghost: ghost,
		until: at.Add(ttl),
		delay: firstTakeBackDelay,
		wait:  min(max(ttl/10, firstTakeBackDelay), time.Second),
	}
	c.mu.Lock()
	if c.drained {
		// Close has done its last round: one attempt is all that is left.
		c.mu.Unlock()
		t.tell(t.release())
		return
	}
	if c.pending == nil {
		c.pending = make(map[*takeBack]struct{})
	}
	c.pending[t] = struct{}{}
	c.mu.Unlock()
	c.schedule.set(t, at)
}

// due is called by the schedule.
func (t *takeBack) due(time.Time) (then func()) {
	t.client.work.do(t.run)
	return nil
}

// wallMoved has no part in a take-back: only monotonic delays count.
func (t *takeBack) wallMoved(time.Time) (then func()) { return nil }

// run asks once, and arranges for another time if that was not the end of it.
func (t *takeBack) run() {
	err := t.release()
	gone := err == nil || errors.Is(err, ErrLost) && !t.ghost
	if !gone && time.Now().Before(t.until) && !t.client.isClosed() {
		d := jitter(t.delay)
		t.delay = min(2*t.delay, t.wait)
		t.client.schedule.set(t, time.Now().Add(d))
		return
	}
	t.finish(err)
}

func (t *takeBack) release() error {
	ctx, cancel := context.WithTimeout(context.Background(), unlockTimeout)
	defer cancel()
	return t.hold.Release(ctx)
}

func (t *takeBack) finish(err error) {
	c := t.client
	c.mu.Lock()
	_, pending := c.pending[t]
	delete(c.pending, t)
	c.mu.Unlock()
	if pending {
		t.tell(err)
	}
}

// tell counts and reports the end of a take-back.
func (t *takeBack) tell(err error) {
	c := t.client
	if errors.Is(err, ErrLost) {
		err = nil // nothing was there
	}
	if err == nil {
		c.counters.takenBack.Add(1)
	} else {
		c.counters.leftBehind.Add(1)
		c.warn("lock may be left behind until its TTL ends", t.name, err)
	}
	if c.opts.Trace != nil && c.opts.Trace.TakenBack != nil {
		c.opts.Trace.TakenBack(t.name, err)
	}
}
