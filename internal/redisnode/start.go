package redisnode

import "time"

// start takes c into the queue and does not wait: c.answered is called when there is an answer or an error, from one of the lane's
// goroutines or before start returns, unless withdraw was faster. With an error, it is not called.
func (l *lane) start(c *call) *Error {
	c.since = time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return &Error{Err: ErrClosed}
	}
	l.queue.push(c)
	if l.busy < eagerFlights {
		l.takeOff()
	} else {
		l.alarm.set(l.tick, c.since.Add(patience))
	}
	return nil
}

// withdraw gives up a call that was started. It reports false if c.answered has been or is about to be called. Otherwise that will not
// be called any more, and sent says whether the request may have been, or may yet be, carried out.
func (l *lane) withdraw(c *call) (ok, sent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch c.state {
	case queued:
		l.queue.remove(c)
		c.state = over
		return true, c.resent
	case flying:
		c.state = over
		return true, true
	default:
		return false, false
	}
}
