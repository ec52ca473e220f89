package redisnode

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// eagerFlights is how many batches are under way without anybody having waited long: while the server works
	// on one, the next is written. A third one brought nothing.
	eagerFlights = 2
	// maxFlights bounds what a server that hangs can hold: so many goroutines of this package, each with one connection.
	maxFlights = 8
	// maxBatch bounds one flight, and with it how long its first caller waits for the others' replies.
	maxBatch = 512
	// patience is how long a request waits for flights before it to come back. On a short link that has long happened. On a long one, or
	// where a connection hangs, one more flight starts after it, so that neither costs the others their time.
	patience = 5 * time.Millisecond
)

// lane takes requests to one server and back. Whoever comes while others are under way goes with the next flight: one pipeline,
// one round trip. It is not go-redis's AutoPipeline, which does not look at a command's context once that is queued (R8).
type lane struct {
	ctx     context.Context // ends with the Node
	addr    string
	timeout time.Duration // the longest wait for an answer
	// send gives a batch to the driver, and returns when every cmd in it has its reply or error.
	send func(l *lane, batch []*call)
	// direct, if not nil, does the same with one call in the caller's own goroutine, within shortTime: see direct.go.
	direct func(ctx context.Context, c *call) verdict

	mu      sync.Mutex
	queue   callQueue
	busy    int       // flights under way or about to start, at most maxFlights
	flights []*flight // those that have started
	quick   int       // how many of them came back quickly since the last that did not
	parked  int       // workers that wait for work: none or one
	closed  bool
	alarm   alarm

	work    chan struct{} // wakes the parked worker; closed by close
	workers sync.WaitGroup
}

// flight is one batch under way.
type flight struct {
	calls []*call
	since time.Time
}

// do has c sent, and returns when it is answered, when ctx ends or when the lane's timeout has passed, whichever is first,
// whatever the driver does (R8). With nil, c.cmd has a reply or an error of the driver's. Otherwise c must not be recycled.
func (l *lane) do(ctx context.Context, c *call) *Error {
	if err := ctx.Err(); err != nil {
		return &Error{Err: err}
	}
	c.since = time.Now()
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return &Error{Err: ErrClosed}
	}
	if l.mayGoAlone(ctx, c) {
		if l.goAlone(ctx, c) {
			return nil
		}
		l.mu.Lock()
		if l.closed {
			l.mu.Unlock()
			return &Error{Err: ErrClosed, Unknown: c.resent}
		}
	}
	l.queue.push(c)
	if l.busy < eagerFlights {
		l.takeOff()
	} else {
		l.alarm.set(l.tick, c.since.Add(patience))
	}
	l.mu.Unlock()

	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return l.abandon(ctx, c)
	}
}

// abandon gives up a call whose caller's context has ended.
func (l *lane) abandon(ctx context.Context, c *call) *Error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch c.state {
	case queued:
		l.queue.remove(c)
		c.state = over
		return &Error{Err: ctx.Err(), Unknown: c.resent}
	case flying:
		c.state = over
		return &Error{Err: ctx.Err(), Unknown: true}
	default: // the answer came at the same moment
		<-c.done
		return c.err
	}
}

// takeOff gets a worker to fly. The caller holds mu.
func (l *lane) takeOff() {
	l.busy++
	if l.parked > 0 {
		l.parked--
		l.work <- struct{}{}
		return
	}
	l.workers.Add(1)
	go l.worker()
}

// worker flies for as long as somebody waits, then parks. One is kept, because the stack of
// a new goroutine must grow again on its way through the driver; the others end.
func (l *lane) worker() {
	defer l.workers.Done()
	f := &flight{}
	for {
		flies, stays := l.board(f)
		switch {
		case flies:
			l.send(l, f.calls)
			l.land(f)
		case !stays:
			return
		default:
			if _, ok := <-l.work; !ok {
				return
			}
		}
	}
}

// board fills f from the queue. With nobody there, the flight ends, and the worker is told whether to park.
func (l *lane) board(f *flight) (flies, stays bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f.calls = f.calls[:0]
	for c := l.queue.head; c != nil && len(f.calls) < maxBatch; c = l.queue.head {
		if len(f.calls) > 0 && !c.sameWait(f.calls[0]) {
			break
		}
		l.queue.remove(c)
		c.state = flying
		f.calls = append(f.calls, c)
	}
	if len(f.calls) > 0 {
		f.since = time.Now()
		l.flights = append(l.flights, f)
		l.alarm.set(l.tick, f.since.Add(l.timeout))
		return true, true
	}
	l.busy--
	if l.closed || l.parked > 0 {
		return false, false
	}
	l.parked++
	return false, true
}

// land hands the answers out.
func (l *lane) land(f *flight) {
	l.mu.Lock()
	l.timed(time.Since(f.since))
	l.flights = slices.DeleteFunc(l.flights, func(g *flight) bool { return g == f })
	for i, c := range f.calls {
		if c.state == over {
			f.calls[i] = nil // given up meanwhile
		}
		c.state = over
	}
	l.mu.Unlock()
	for i, c := range f.calls {
		if c == nil {
			continue
		}
		f.calls[i] = nil // from here on it is the caller's, who may use it again
		if c.answered != nil {
			c.answered(c)
		} else {
			c.done <- struct{}{}
		}
	}
}

// wanted returns those calls of a flight whose callers still wait, in place.
func (l *lane) wanted(batch []*call) []*call {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(batch, func(c *call) bool { return c.state == over })
}
