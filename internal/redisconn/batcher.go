package redisconn

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// eagerBatches is how many batches are under way without any request having
	// waited long: while the server works on one, the next is written.
	eagerBatches = 2
	// maxBatches bounds the batches that answers are waited for. With those that
	// were given up while the driver still has them, maxWorkers is the bound.
	maxBatches = 8
	maxWorkers = 3 * maxBatches
	// maxCalls bounds one batch, and with it how long its first caller waits for
	// the replies of the others.
	maxCalls = 512
	// maxYields is how often a worker lets others run before it sends: of 256
	// callers 20 and more share a batch then, and without it 4.
	maxYields = 8
	// patience is how long a request waits, for each batch before it, for one to
	// come back. On a short link that has long happened. On a long one, or where
	// a connection hangs, one more batch starts after it.
	patience = 2 * time.Millisecond
)

// batcher takes requests to one server and back. Requests that arrive while others
// are under way share the next batch: one pipeline, one round trip. It is not
// go-redis's AutoPipeline, which does not look at a command's context once that
// is queued (R8).
type batcher struct {
	ctx     context.Context // ends with the Conn
	timeout time.Duration   // the longest wait for an answer
	driver  driver
	ping    func(ctx context.Context) error
	// direct, if not nil, sends one call in the caller's own goroutine: see direct.go.
	direct func(ctx context.Context, c *Call) verdict

	arrived atomic.Int64 // how many calls were ever queued

	mu       sync.Mutex
	queue    callQueue
	busy     int           // batches that are waited for or about to start, and the call that went alone
	starting int           // those about to start
	batches  []*batch      // all batches that the driver has
	quick    int           // how many came back quickly since the last that did not
	usual    time.Duration // what batches take that are answered, lately
	alone    int           // calls that went alone: 0 or 1
	probes   int
	probeAt  time.Time // no probe before
	closed   bool
	alarm    alarm
	ticking  func() // tick, made once

	workers sync.WaitGroup
	running int
}

// batch is one batch under way.
type batch struct {
	calls      []*Call
	since      time.Time
	wait       time.Duration // what WAIT may add
	silentFrom time.Time     // see heard; zero: nothing is known against its connection
	given      bool          // given up: nothing waits for it
	deadline   time.Time     // when the first of its calls is out of time
}

// driver is the part of a go-redis client that batches need.
type driver interface {
	Process(ctx context.Context, cmd redis.Cmder) error
	Pipeline() redis.Pipeliner
}

// do has c sent, and returns when it is answered, when ctx ends or when its
// limit has passed, whichever is first, whatever the driver does (R8).
func (l *batcher) do(ctx context.Context, c *Call, alone bool) *Error {
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
func (l *batcher) start(c *Call) {
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
func (l *batcher) withdraw(c *Call) bool {
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
func (l *batcher) leave(c *Call) (sent bool) {
	sent = c.state == underWay
	if !sent {
		l.queue.remove(c)
	}
	c.state = over
	return sent
}

// enqueue queues c, and starts a batch if there is room for one. The caller
// holds mu.
func (l *batcher) enqueue(c *Call) {
	c.sent = time.Now() // for now: since when it waits
	l.queue.push(c)
	l.arrived.Add(1)
	l.startSoon(c.sent)
}

// startSoon starts a batch for the queue, now or when it is crowded no more.
// The caller holds mu.
func (l *batcher) startSoon(now time.Time) {
	switch c := l.queue.head; {
	case c == nil || l.starting > 0:
	case l.busy >= maxBatches:
		l.alarm.set(l.ticking, now.Add(patience))
	case l.crowded(now):
		l.alarm.set(l.ticking, c.sent.Add(l.patience()))
	default:
		l.startWorker()
	}
}

// patience is how long the head of the queue waits for what is under way: longer
// where there is more of that, since a batch for one call is what a server that has
// much to do needs least. The caller holds mu.
func (l *batcher) patience() time.Duration {
	return patience * time.Duration(max(1, l.busy))
}

// crowded reports that the queue is to wait for what is under way, since that is
// more: it will be back soon, and what is sent with many others costs both sides
// less. The caller holds mu.
func (l *batcher) crowded(now time.Time) bool {
	if now.Sub(l.queue.head.sent) >= l.patience() {
		return false
	}
	under := l.alone
	for _, f := range l.batches {
		if !f.given {
			under += len(f.calls)
		}
	}
	return l.busy >= eagerBatches || l.queue.n < under
}

// startWorker starts a worker. The caller holds mu.
func (l *batcher) startWorker() {
	if l.closed || l.running >= maxWorkers {
		return // the worker that ends next looks at the queue
	}
	l.busy++
	l.starting++
	l.running++
	l.workers.Go(l.worker)
}

// worker sends batches for as long as there is something to send.
func (l *batcher) worker() {
	f := &batch{}
	for l.gather(); l.fill(f); l.gather() {
		l.send(f.calls)
		if !l.handOut(f) {
			return
		}
	}
}

// gather lets the goroutines run that were just answered, or are about to ask, for
// as long as more come: their requests share the batch.
func (l *batcher) gather() {
	for range maxYields {
		before := l.arrived.Load()
		runtime.Gosched()
		if l.arrived.Load() == before {
			return
		}
	}
}

// fill fills f from the queue, or ends the worker.
func (l *batcher) fill(f *batch) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	*f = batch{calls: f.calls[:0], since: now, deadline: now.Add(l.timeout)}
	l.starting--
	l.busy-- // until it is known that there is something to send
	if l.queue.head == nil || l.busy >= maxBatches || l.crowded(now) {
		l.running--
		l.startSoon(now)
		return false
	}
	l.busy++
	for c := l.queue.head; c != nil && len(f.calls) < maxCalls; c = l.queue.head {
		if len(f.calls) > 0 && !c.sameWait(f.calls[0]) {
			break
		}
		l.queue.remove(c)
		c.state, c.sent = underWay, now
		f.calls = append(f.calls, c)
		if c.Limit > 0 && c.Limit < f.deadline.Sub(now) {
			f.deadline = now.Add(c.Limit)
		}
	}
	if f.calls[0].Replicas > 0 {
		f.wait = f.calls[0].ReplicaTimeout
	}
	l.batches = append(l.batches, f)
	l.alarm.set(l.ticking, f.deadline)
	l.alarm.set(l.ticking, now.Add(l.silence(f)))
	l.startSoon(now) // for what does not go with these
	return true
}

// handOut hands the answers of f out. It returns false if the worker is to end,
// since f was given up and its place was given to another.
func (l *batcher) handOut(f *batch) bool {
	l.mu.Lock()
	l.batches = slices.DeleteFunc(l.batches, func(g *batch) bool { return g == f })
	answered := slices.ContainsFunc(f.calls, func(c *Call) bool { return c.cause == nil })
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
	if goOn {
		l.starting++
	} else {
		l.running--
		l.startSoon(time.Now())
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
func (l *batcher) wanted(calls []*Call) []*Call {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(calls, func(c *Call) bool { return c.state == over })
}
