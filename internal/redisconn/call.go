package redisconn

import (
	"sync"
	"time"
)

// Call is one request: a script with its keys and arguments, for one lock. Make
// it with [Script.Call].
type Call struct {
	Op   string // for errors: "acquire", "renew", …
	Name string // the lock's name, which decides the shard of a Cluster

	// Limit is how long the answer is waited for once the request was sent. The
	// time before, in the queue of this process, does not count (R21). 0: the
	// timeout of the Conn.
	Limit time.Duration

	// Replicas > 0: after the script, WAIT for so many replicas for at most
	// ReplicaTimeout. Acked is how many have it, unless WaitErr is set.
	Replicas       int
	ReplicaTimeout time.Duration
	Acked          int
	WaitErr        error

	script   *Script
	asked    []any // as cmd was made; never changed
	cmd      command
	answered func(*Call, error) // or nil: done is signalled
	done     chan struct{}      // capacity 1

	// Guarded by the lane's mutex until the call is over; the caller's after.
	state      callState
	sent       time.Time
	err        *Error // why there is no answer; nil: ask cmd
	prev, next *Call  // in the queue
}

// callState is the life of a call: queued -> flying -> over, or queued -> over.
type callState uint8

const (
	queued callState = iota // nothing has been sent: it can still be withdrawn
	flying                  // given to the driver: the outcome may be unknown
	over                    // answered, or given up
)

// Reply is the server's reply.
func (c *Call) Reply() any { return c.cmd.Val() }

// Sent is a time before the request was given to the driver (R1); zero: it was
// not.
func (c *Call) Sent() time.Time { return c.sent }

// Again makes the same call once more, for one that was not answered.
func (c *Call) Again() *Call {
	d := calls.Get().(*Call)
	d.Op, d.Name, d.Limit, d.Replicas, d.ReplicaTimeout = c.Op, c.Name, c.Limit, c.Replicas, c.ReplicaTimeout
	// The driver may still be at work on the cmd of c, but leaves the arguments alone.
	d.script, d.asked, d.cmd = c.script, c.asked, newCommand(c.asked)
	return d
}

// calls are used again, for their channel's sake.
var calls = sync.Pool{New: func() any { return &Call{done: make(chan struct{}, 1)} }}

// Recycle is for calls that were answered, and only for the goroutine that
// waited: the driver may still write to a call that was given up.
func (c *Call) Recycle() {
	*c = Call{done: c.done}
	calls.Put(c)
}

// complete fills in what a lane does not know.
func (c *Call) complete(err *Error, addr string) *Error {
	err.Op, err.Addr = c.Op, addr
	return err
}

// sameWait reports whether the two can share a pipeline: one WAIT ends it and
// speaks for all its writes.
func (c *Call) sameWait(d *Call) bool {
	return c.Replicas == d.Replicas && c.ReplicaTimeout == d.ReplicaTimeout
}

// callQueue is a first-in first-out line from which anybody can step out.
type callQueue struct{ head, tail *Call }

func (q *callQueue) push(c *Call) {
	c.state, c.prev, c.next = queued, q.tail, nil
	if q.tail == nil {
		q.head = c
	} else {
		q.tail.next = c
	}
	q.tail = c
}

func (q *callQueue) remove(c *Call) {
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
