package redisconn

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// eagerFlights is how many batches are under way without any request having
	// waited long: while the server works on one, the next is written. A third
	// one brought nothing.
	eagerFlights = 2
	// maxFlights bounds the batches that answers are waited for. With those that
	// were given up while the driver still has them, maxWorkers is the bound.
	maxFlights = 8
	maxWorkers = 3 * maxFlights
	// maxBatch bounds one batch, and with it how long its first caller waits for
	// the replies of the others.
	maxBatch = 512
	// patience is how long a request waits for batches before it to come back.
	// On a short link that has long happened. On a long one, or where a
	// connection hangs, one more batch starts after it.
	patience = 5 * time.Millisecond
)

// lane takes requests to one server and back. Requests that arrive while others
// are under way share the next batch: one pipeline, one round trip. It is not
// go-redis's AutoPipeline, which does not look at a command's context once that
// is queued (R8).
type lane struct {
	ctx     context.Context // ends with the Conn
	timeout time.Duration   // the longest wait for an answer
	driver  driver
	ping    func(ctx context.Context) error
	// direct, if not nil, sends one call in the caller's own goroutine: see direct.go.
	direct func(ctx context.Context, c *Call) verdict

	mu      sync.Mutex
	queue   callQueue
	busy    int           // batches that are waited for or about to start
	flights []*flight     // all batches that the driver has
	quick   int           // how many came back quickly since the last that did not
	usual   time.Duration // what batches take that are answered, lately
	probes  int
	probeAt time.Time // no probe before
	closed  bool
	alarm   alarm

	workers sync.WaitGroup
	running int
}

// flight is one batch under way.
type flight struct {
	calls    []*Call
	since    time.Time
	wait     time.Duration // what WAIT may add
	doomed   time.Time     // see heard; zero: nothing is known against its connection
	given    bool          // given up: nothing waits for it
	deadline time.Time     // when the first of its calls is out of time
}

// driver is the part of a go-redis client that batches need.
type driver interface {
	Process(ctx context.Context, cmd redis.Cmder) error
	Pipeline() redis.Pipeliner
}

// do has c sent, and returns when it is answered, when ctx ends or when its
// limit has passed, whichever is first, whatever the driver does (R8).
func (l *lane) do(ctx context.Context, c *Call, alone bool) *Error {
	if err := ctx.Err(); err != nil {
		return &Error{Err: err}
	}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return &Error{Err: ErrClosed}
	}
	if alone && l.mayGoAlone(ctx, c) {
		if l.goAlone(ctx, c) {
			return c.err
		}
		l.mu.Lock()
		if l.closed {
			l.mu.Unlock()
			return &Error{Err: ErrClosed}
		}
	}
	l.enqueue(c)
	l.mu.Unlock()

	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.state == over { // the answer came at the same moment
		<-c.done
		return c.err
	}
	return &Error{Err: ctx.Err(), Unknown: l.leave(c)}
}

// start takes c into the queue and does not wait. c.answered is called once,
// unless withdraw is first.
func (l *lane) start(c *Call) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		c.answered(c, c.complete(&Error{Err: ErrClosed}, ""))
		return
	}
	l.enqueue(c)
	l.mu.Unlock()
}

// withdraw gives up a call that was started and not sent: it never will be.
func (l *lane) withdraw(c *Call) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.state != queued {
		return false
	}
	l.leave(c)
	return true
}

// leave makes c over without an answer, and reports whether it was sent. The
// caller holds mu.
func (l *lane) leave(c *Call) (sent bool) {
	sent = c.state == flying
	if !sent {
		l.queue.remove(c)
	}
	c.state = over
	return sent
}

// enqueue queues c, and starts a batch if there is room for one. The caller
// holds mu.
func (l *lane) enqueue(c *Call) {
	c.sent = time.Now() // for now: since when it waits
	l.queue.push(c)
	if l.busy < eagerFlights {
		l.takeOff()
	} else {
		l.alarm.set(l.tick, c.sent.Add(patience))
	}
}

// takeOff starts a worker. The caller holds mu.
func (l *lane) takeOff() {
	if l.closed || l.running >= maxWorkers {
		return // the worker that ends next looks at the queue
	}
	l.busy++
	l.running++
	l.workers.Go(l.worker)
}

// worker sends batches for as long as there is something to send.
func (l *lane) worker() {
	f := &flight{}
	for l.board(f) {
		l.send(f.calls)
		if !l.land(f) {
			return
		}
	}
}

// board fills f from the queue, or ends the worker.
func (l *lane) board(f *flight) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	*f = flight{calls: f.calls[:0], since: now, deadline: now.Add(l.timeout)}
	for c := l.queue.head; c != nil && len(f.calls) < maxBatch; c = l.queue.head {
		if len(f.calls) > 0 && !c.sameWait(f.calls[0]) {
			break
		}
		l.queue.remove(c)
		c.state, c.sent = flying, now
		f.calls = append(f.calls, c)
		if c.Limit > 0 && c.Limit < f.deadline.Sub(now) {
			f.deadline = now.Add(c.Limit)
		}
	}
	if len(f.calls) == 0 {
		l.busy--
		l.running--
		return false
	}
	if f.calls[0].Replicas > 0 {
		f.wait = f.calls[0].ReplicaTimeout
	}
	l.flights = append(l.flights, f)
	l.alarm.set(l.tick, f.deadline)
	l.alarm.set(l.tick, now.Add(l.silence(f)))
	return true
}

// land hands the answers of f out. It returns false if the worker is to end,
// since f was given up and its place was given to another.
func (l *lane) land(f *flight) bool {
	l.mu.Lock()
	l.flights = slices.DeleteFunc(l.flights, func(g *flight) bool { return g == f })
	answered := slices.ContainsFunc(f.calls, func(c *Call) bool { return c.cmd.Err() == nil })
	l.timed(time.Since(f.since), answered)
	if answered {
		l.heard(f.since)
	}
	for i, c := range f.calls {
		if c.state == over {
			f.calls[i] = nil // given up meanwhile
		}
		c.state = over
	}
	goOn := !f.given
	if !goOn {
		l.running--
		if l.queue.head != nil && l.busy < eagerFlights {
			l.takeOff()
		}
	}
	l.mu.Unlock()
	for i, c := range f.calls {
		if c == nil {
			continue
		}
		f.calls[i] = nil // from here on it is the caller's, who may use it again
		c.tell()
	}
	return goOn
}

// tell hands c, which is over, to who waits for it.
func (c *Call) tell() {
	if c.answered == nil {
		c.done <- struct{}{}
		return
	}
	c.answered(c, nil)
}

// wanted returns those calls of a batch whose callers still wait.
func (l *lane) wanted(batch []*Call) []*Call {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(batch, func(c *Call) bool { return c.state == over })
}
