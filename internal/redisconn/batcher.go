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
	server  redis.UniversalClient // the same server, without the way of a Cluster's client
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
func (b *batcher) do(ctx context.Context, c *Call) *Error {
	if err := ctx.Err(); err != nil {
		return &Error{Err: err}
	}
	b.mu.Lock()
	if b.mayGoAlone(ctx, c) {
		if b.goAlone(ctx, c) {
			return c.err
		}
		b.mu.Lock()
	}
	queued := b.enqueue(c)
	b.mu.Unlock()
	if !queued {
		return c.err
	}
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
	}
	b.mu.Lock()
	if c.state == over { // the answer came at the same moment
		b.mu.Unlock() // who hands it out may need the mutex for others first
		<-c.done
		return c.err
	}
	defer b.mu.Unlock()
	return &Error{Err: ctx.Err(), Unknown: b.leave(c)}
}

// withdraw gives up a call that was started and not sent: it never will be.
func (b *batcher) withdraw(c *Call) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.state != queued {
		return false
	}
	b.leave(c)
	return true
}

// leave makes c over without an answer, and reports whether it was sent. The
// caller holds mu.
func (b *batcher) leave(c *Call) (sent bool) {
	sent = c.state == underWay
	if !sent {
		b.queue.remove(c)
	}
	c.state = over
	return sent
}

// enqueue queues c, and starts a batch if there is room for one. It returns false
// if the batcher is closed. The caller holds mu.
func (b *batcher) enqueue(c *Call) bool {
	if b.closed {
		c.state, c.sent, c.err = over, time.Now(), &Error{Err: ErrClosed}
		return false
	}
	c.sent = time.Now() // for now: since when it waits
	b.queue.push(c)
	b.arrived.Add(1)
	b.startSoon(c.sent)
	return true
}

// startSoon starts a batch for the queue, now or when it is crowded no more.
// The caller holds mu.
func (b *batcher) startSoon(now time.Time) {
	switch c := b.queue.head; {
	case c == nil || b.starting > 0:
	case b.busy >= maxBatches:
		b.alarm.set(b.ticking, now.Add(patience))
	case b.crowded(now):
		b.alarm.set(b.ticking, c.sent.Add(b.patience()))
	default:
		b.startWorker()
	}
}

// patience is how long the head of the queue waits for what is under way: longer
// where there is more of that, since a batch for one call is what a server that has
// much to do needs least. The caller holds mu.
func (b *batcher) patience() time.Duration {
	return patience * time.Duration(max(1, b.busy))
}

// crowded reports that the queue is to wait for what is under way, since that is
// more: it will be back soon, and what is sent with many others costs both sides
// less. The caller holds mu.
func (b *batcher) crowded(now time.Time) bool {
	if now.Sub(b.queue.head.sent) >= b.patience() {
		return false
	}
	under := b.alone
	for _, batch := range b.batches {
		if !batch.given {
			under += len(batch.calls)
		}
	}
	return b.busy >= eagerBatches || b.queue.n < under
}

// startWorker starts a worker. The caller holds mu.
func (b *batcher) startWorker() {
	if b.closed || b.running >= maxWorkers {
		return // the worker that ends next looks at the queue
	}
	b.busy++
	b.starting++
	b.running++
	b.workers.Go(b.worker)
}

// worker sends batches for as long as there is something to send.
func (b *batcher) worker() {
	_ = deepen(0)
	var room []*Call
	for {
		b.gather()
		batch := b.fill(room)
		if batch == nil {
			return
		}
		b.exchange(batch.calls)
		ended := b.landed(batch)
		tell(batch.calls)
		if ended {
			return
		}
		room = batch.calls
	}
}

// maxRefused is how often calls are sent that the server refuses unseen: see deliver.
const maxRefused = 3

// exchange takes calls to the server and back, and sends those again that did nothing
// there, or whose connection was to blame.
func (b *batcher) exchange(calls []*Call) {
	retry := NewRetry(b.server)
	for refused := 0; len(calls) > 0 && refused < maxRefused; {
		again, broken := transmit(b.ctx, b.driver, pack(calls))
		if len(again) > 0 {
			refused++
		}
		if len(broken) > 0 && retry.Worth(broken[0].failure()) {
			again = append(again, broken...)
		}
		calls = b.wanted(again)
	}
}

// deepen gives a new goroutine at once the stack that the driver needs. Left alone,
// it is doubled twice below the driver's calls, all of which have to be copied then:
// that was a seventh of the client's time for a lone caller of redlock.
//
//go:noinline
func deepen(i int) byte {
	var room [4 << 10]byte
	return room[i]
}

// gather lets the goroutines run that were just answered, or are about to ask, for
// as long as more come: their requests share the batch.
func (b *batcher) gather() {
	for range maxYields {
		before := b.arrived.Load()
		runtime.Gosched()
		if b.arrived.Load() == before {
			return
		}
	}
}

// fill makes a batch of what is in the queue. It returns nil if the worker is to
// end, since there is nothing to send yet.
func (b *batcher) fill(room []*Call) *batch {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.starting--
	b.busy-- // until it is known that there is something to send
	if b.queue.head == nil || b.busy >= maxBatches || b.crowded(now) {
		b.running--
		b.startSoon(now)
		return nil
	}
	b.busy++
	batch := &batch{calls: room[:0], since: now, deadline: now.Add(b.timeout)}
	for c := b.queue.head; c != nil && len(batch.calls) < maxCalls; c = b.queue.head {
		if len(batch.calls) > 0 && !c.sameWait(batch.calls[0]) {
			break
		}
		b.queue.remove(c)
		c.state, c.sent = underWay, now
		batch.calls = append(batch.calls, c)
		if c.Limit > 0 && c.Limit < batch.deadline.Sub(now) {
			batch.deadline = now.Add(c.Limit)
		}
	}
	if batch.calls[0].Replicas > 0 {
		batch.wait = batch.calls[0].ReplicaTimeout
	}
	b.batches = append(b.batches, batch)
	b.alarm.set(b.ticking, batch.deadline)
	b.alarm.set(b.ticking, now.Add(b.silence(batch)))
	b.startSoon(now) // for what does not go with these
	return batch
}

// landed takes a batch off the list: its calls are over, and those that were given
// up meanwhile are nil from here on. ended: so was the batch, its place was given to
// another, and the worker has to end.
func (b *batcher) landed(batch *batch) (ended bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.batches, batch)
	b.batches = slices.Delete(b.batches, i, i+1)
	answered := slices.ContainsFunc(batch.calls, func(c *Call) bool { return c.cause == nil })
	b.timed(time.Since(batch.since), answered)
	if answered {
		b.heard(batch.since)
	}
	for i, c := range batch.calls {
		if c.state == over {
			batch.calls[i] = nil
		}
		c.state = over
	}
	if batch.given {
		b.running--
		b.startSoon(time.Now())
	} else {
		b.starting++
	}
	return batch.given
}

// tell hands calls that are over to their callers.
func tell(calls []*Call) {
	for i, c := range calls {
		calls[i] = nil // from here on it is the caller's, who may use it again
		switch {
		case c == nil:
		case c.answered != nil:
			c.answered(c)
		default:
			c.done <- struct{}{}
		}
	}
}

// wanted returns those calls whose callers still wait, and which are sent again.
func (b *batcher) wanted(calls []*Call) []*Call {
	if len(calls) == 0 {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	calls = slices.DeleteFunc(calls, func(c *Call) bool { return c.state == over })
	for _, c := range calls {
		c.repeated = c.repeated || HungUp(c.failure())
	}
	return calls
}
