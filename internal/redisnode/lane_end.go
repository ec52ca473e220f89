package redisnode

import "time"

// tick ends what has taken too long, and starts a flight for who has waited for others' too long.
func (l *lane) tick() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	now := time.Now()
	l.alarm.rang()
	for c := l.queue.head; c != nil && now.Sub(c.since) >= l.timeout; c = l.queue.head {
		l.queue.remove(c)
		c.end(&Error{Err: ErrTimeout, Unknown: c.resent}) // not sent, for all flights hang
	}
	for _, f := range l.flights {
		if now.Sub(f.since) >= l.timeout {
			f.giveUp(ErrTimeout)
		} else {
			l.alarm.set(l.tick, f.since.Add(l.timeout))
		}
	}
	if c := l.queue.head; c != nil {
		if now.Sub(c.since) >= patience && l.busy < maxFlights {
			l.takeOff()
		}
		// The head may not be the one that boards now: look again after another while.
		next := now.Add(patience)
		if l.busy == maxFlights {
			next = c.since.Add(l.timeout)
		}
		l.alarm.set(l.tick, next)
	}
}

// giveUp tells the callers of a flight that they will not hear from it. The driver keeps its commands until it comes back.
// The caller holds the lane's mutex.
func (f *flight) giveUp(err error) {
	for _, c := range f.calls {
		if c != nil && c.state == flying {
			c.end(&Error{Err: err, Unknown: true})
		}
	}
}

// end answers a call with an error. The caller holds the lane's mutex.
func (c *call) end(err *Error) {
	c.state, c.err = over, err
	if c.answered != nil {
		go c.answered(c) // not under the lane's mutex
		return
	}
	c.done <- struct{}{}
}

// close ends all calls. It does not wait for the workers.
func (l *lane) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.closed = true
	l.alarm.stop()
	for c := l.queue.head; c != nil; c = l.queue.head {
		l.queue.remove(c)
		c.end(&Error{Err: ErrClosed, Unknown: c.resent})
	}
	for _, f := range l.flights {
		f.giveUp(ErrClosed)
	}
	close(l.work)
}

// alarm is a timer that is set to the earliest of many times, and rarely reset: one per lane instead of one per
// request. It is guarded by the lane's mutex.
type alarm struct {
	timer *time.Timer
	at    time.Time // zero: not set
}

// set has f called at t at the latest.
func (a *alarm) set(f func(), t time.Time) {
	if !a.at.IsZero() && !t.Before(a.at) {
		return
	}
	a.at = t
	if a.timer == nil {
		a.timer = time.AfterFunc(time.Until(t), f)
		return
	}
	a.timer.Reset(time.Until(t))
}

func (a *alarm) rang() { a.at = time.Time{} }

func (a *alarm) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}
