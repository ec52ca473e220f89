package redisnode

import (
	"sync"
	"time"
)

// call is one request on its way through a lane.
type call struct {
	script   *script
	cmd      command
	final    any           // for an acquire: how long a first copy of it is to be void, should it be sent again
	replicas int           // > 0: after the script, WAIT for so many
	waitFor  time.Duration // and at most so long

	done chan struct{} // capacity 1: the answer, or err, is there
	// answered, if not nil, is called in place of that: nobody waits for done. It must not block.
	answered func(*call)
	since    time.Time // when it came to the lane

	// Guarded by the lane's mutex until the call is over; the caller's after that.
	state      callState
	err        *Error // why there is no answer; nil: ask cmd
	resent     bool   // sent twice, since the first sending got no answer in a short time
	acked      int    // what WAIT said
	waitErr    error  // or why it said nothing
	prev, next *call  // in the queue
}

type callState uint8

const (
	queued callState = iota // nothing has been sent: it can still be withdrawn
	flying                  // given to the driver: from here on the outcome may be unknown
	over                    // answered, or given up by the caller
)

// calls are used again, for their channel's sake.
var calls = sync.Pool{New: func() any { return &call{done: make(chan struct{}, 1)} }}

func newCall(s *script, cmd command) *call {
	c := calls.Get().(*call)
	c.script, c.cmd = s, cmd
	return c
}

// recycle is for calls that were answered: the driver may still write to one that was given up.
func (c *call) recycle() {
	*c = call{done: c.done}
	calls.Put(c)
}

// sameWait reports whether the two can share a pipeline: one WAIT ends it and speaks for all its writes.
func (c *call) sameWait(d *call) bool {
	return c.replicas == d.replicas && c.waitFor == d.waitFor
}

// callQueue is a first-in first-out line from which anybody can step out.
type callQueue struct{ head, tail *call }

func (q *callQueue) push(c *call) {
	c.state, c.prev, c.next = queued, q.tail, nil
	if q.tail == nil {
		q.head = c
	} else {
		q.tail.next = c
	}
	q.tail = c
}

func (q *callQueue) remove(c *call) {
	if c.prev == nil {
		q.head = c.next
	} else {
		c.prev.next = c.next
	}
	if c.next == nil {
		q.tail = c.prev
	} else {
		c.next.prev = c.prev
	}
	c.prev, c.next = nil, nil
}
