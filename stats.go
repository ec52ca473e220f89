package locker

import (
	"errors"
	"sync/atomic"
	"time"
)

// counters are the live numbers behind Stats.
type counters struct {
	acquired, attempts, refused, failed  atomic.Uint64
	renewed, renewFailed, lost, released atomic.Uint64
	takenBack, leftBehind                atomic.Uint64
	waitTime                             atomic.Int64
}

// Stats returns the client's numbers since it was made. They are read one by
// one, not at one moment.
func (c *Client) Stats() Stats {
	c.mu.Lock()
	pending := len(c.pending)
	c.mu.Unlock()
	held, waiting := c.lines.count()
	n := &c.counters
	return Stats{
		Held:        held,
		Waiting:     waiting,
		Pending:     pending,
		Acquired:    n.acquired.Load(),
		Attempts:    n.attempts.Load(),
		Refused:     n.refused.Load(),
		Failed:      n.failed.Load(),
		Renewed:     n.renewed.Load(),
		RenewFailed: n.renewFailed.Load(),
		Lost:        n.lost.Load(),
		Released:    n.released.Load(),
		TakenBack:   n.takenBack.Load(),
		LeftBehind:  n.leftBehind.Load(),
		WaitTime:    time.Duration(n.waitTime.Load()),
	}
}

func (c *Client) attempted(name string, took time.Duration, err error) {
	c.counters.attempts.Add(1)
	switch {
	case err == nil:
	case errors.Is(err, ErrHeld):
		c.counters.refused.Add(1)
	default:
		c.counters.failed.Add(1)
	}
	if t := c.opts.Trace; t != nil && t.Attempt != nil {
		t.Attempt(name, took, err)
	}
}

func (c *Client) acquired(l *Lease, waited time.Duration) {
	c.counters.acquired.Add(1)
	c.counters.waitTime.Add(int64(waited))
	if t := c.opts.Trace; t != nil && t.Acquired != nil {
		t.Acquired(l.name, l.token, waited)
	}
}

func (c *Client) renewed(name string, took time.Duration, err error) {
	if err == nil {
		c.counters.renewed.Add(1)
	} else {
		c.counters.renewFailed.Add(1)
		c.warn("renewal failed", name, err)
	}
	if t := c.opts.Trace; t != nil && t.Renewed != nil {
		t.Renewed(name, took, err)
	}
}

func (c *Client) lost(name string, cause error) {
	c.counters.lost.Add(1)
	c.warn("lease lost", name, cause)
	if t := c.opts.Trace; t != nil && t.Lost != nil {
		t.Lost(name, cause)
	}
}

func (c *Client) released(name string, took time.Duration, err error) {
	if err == nil {
		c.counters.released.Add(1)
	} else {
		c.warn("release failed", name, err)
	}
	if t := c.opts.Trace; t != nil && t.Released != nil {
		t.Released(name, took, err)
	}
}
