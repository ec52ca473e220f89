// Package batch has the concurrent callers of a service share its round trips.
//
// A caller that comes alone is sent at once, in its own goroutine: a switch to another one would cost it as
// much as half of a short round trip. Callers that come while others are under way wait, and the next round
// trip takes them together. The number of round trips under way is bounded; one that is slow does not
// count, so that a connection that hangs holds nobody up but those on it (R22). A caller returns when its
// context ends, whatever its round trip does (R8), and a round trip whose callers have all left is given up
// a little later.
//
// Time in the queue is bounded by the caller's context alone: a crowd is no outage (R21).
package batch

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Options are the bounds of a Batcher. All of them have to be set that have no meaning for zero.
type Options struct {
	// Max is how many callers share a round trip at most.
	Max int
	// Flights is how many round trips are under way, not counting the slow ones.
	Flights int
	// Most is how many round trips are under way, the slow ones counted. 0: no bound.
	Most int
	// Timeout is how long a round trip may take.
	Timeout time.Duration
	// Slow is after how long a round trip does not keep others from being sent any more.
	Slow time.Duration
	// Patient requests wait for those under way if they are fewer or Flights are full, but not longer than
	// Slow for each round trip: a server that does one thing after the other answers no later then, and has
	// less to do. Otherwise they go when less than Flights are under way that are not slow.
	Patient bool
	// Late is how long a round trip goes on whose callers have all left. Most are answered by then, and their
	// connection is of use to others; drivers close the connection of a request that they give up.
	Late time.Duration
}

// Batcher has callers with requests of type Q share round trips whose answers are of type A. Make it with
// [New].
type Batcher[Q, A any] struct {
	life  context.Context
	send  func(ctx context.Context, requests []Q) ([]A, error)
	key   func(Q) string
	opts  Options
	calls sync.Pool // of *call[Q, A], for their channel's sake

	came atomic.Int64 // how many requests were ever queued

	mu       sync.Mutex
	waiting  []*call[Q, A] // those that have left are among them for a while
	left     int           // how many
	flights  []*flight[Q, A]
	starting bool           // a flight is about to take off
	waking   bool           // launch is called when a flight has become slow
	ended    bool           // so has the life
	busy     sync.WaitGroup // all flights
}

// Answer is what became of one request.
type Answer[A any] struct {
	Value A
	Since time.Time // from before it was sent
	Sent  bool      // it was handed to send: beside an error, it may have been carried out
}

// call is a request, and who waits for its answer.
type call[Q, A any] struct {
	request Q
	since   time.Time     // when it was asked
	done    chan struct{} // of capacity 1
	flight  *flight[Q, A] // nil: not sent yet
	over    bool          // it has its answer, or its caller has left
	answer  Answer[A]
	err     error
}

// New returns a Batcher that works until life ends.
//
// send makes a round trip, and returns an answer for each of the requests, or one error for all. It is
// called in several goroutines at once. Its context ends with life, after Options.Timeout, or when no
// caller waits any more.
//
// If key is not nil, no two requests of one key go together, and those that do are in the order of their
// keys, so that two clients lock the same rows in the same order. If it is nil, requests go in the order in
// which they came.
func New[Q, A any](
	life context.Context, opts Options, key func(Q) string, send func(context.Context, []Q) ([]A, error),
) *Batcher[Q, A] {
	b := &Batcher[Q, A]{life: life, send: send, key: key, opts: opts}
	b.calls.New = func() any { return &call[Q, A]{done: make(chan struct{}, 1)} }
	b.busy.Add(1)
	context.AfterFunc(life, b.end)
	return b
}

// Do has request sent, and returns when there is an answer, or ctx or the Batcher's life ends. The error is
// send's, that of ctx, or the cause of the end of the Batcher's life.
func (b *Batcher[Q, A]) Do(ctx context.Context, request Q) (Answer[A], error) {
	b.mu.Lock()
	err := ctx.Err()
	if b.ended || b.life.Err() != nil {
		err = context.Cause(b.life)
	}
	if err != nil {
		b.mu.Unlock()
		return Answer[A]{}, err
	}
	now := time.Now()
	if len(b.waiting) == 0 && !b.starting && b.room(now, 0, 1) {
		f := &flight[Q, A]{since: now}
		b.busy.Add(1)
		b.flights = append(b.flights, f)
		b.mu.Unlock()
		return b.alone(ctx, request, f)
	}
	c := b.calls.Get().(*call[Q, A])
	c.request, c.since = request, now
	b.waiting = append(b.waiting, c)
	b.came.Add(1)
	b.launch(now)
	b.mu.Unlock()
	select {
	case <-c.done:
	case <-ctx.Done():
		if sent, left := b.leave(c); left {
			return Answer[A]{Sent: sent}, ctx.Err()
		}
		<-c.done // the answer came at the same moment
	}
	answer, err := c.answer, c.err
	*c = call[Q, A]{done: c.done}
	b.calls.Put(c)
	return answer, err
}

// Wait returns when nothing is under way. It is called after the Batcher's life has ended.
func (b *Batcher[Q, A]) Wait() { b.busy.Wait() }

// end ends all requests with the Batcher's life.
func (b *Batcher[Q, A]) end() {
	defer b.busy.Done()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	for _, c := range b.waiting {
		b.fail(c, Answer[A]{})
	}
	b.waiting, b.left = nil, 0
	for _, f := range b.flights {
		for _, c := range f.calls {
			b.fail(c, Answer[A]{Since: f.since, Sent: true})
		}
		f.calls = nil // their callers use them again
		if f.cancel != nil {
			f.cancel()
		}
	}
}

// fail ends a call with the Batcher's life, unless it is over. b.mu is held.
func (b *Batcher[Q, A]) fail(c *call[Q, A], answer Answer[A]) {
	if !c.over {
		c.over, c.answer, c.err = true, answer, context.Cause(b.life)
		c.done <- struct{}{}
	}
}

// alone sends one request in its caller's goroutine.
func (b *Batcher[Q, A]) alone(ctx context.Context, request Q, f *flight[Q, A]) (Answer[A], error) {
	defer b.busy.Done()
	defer b.land(f)
	answer := Answer[A]{Since: f.since, Sent: true}
	bounded, cancel := context.WithTimeout(ctx, b.opts.Timeout)
	defer cancel()
	defer context.AfterFunc(b.life, cancel)()
	values, err := b.send(bounded, []Q{request})
	if err == nil {
		answer.Value = values[0]
	}
	return answer, err
}

// leave ends a call whose caller waits no more, unless it is over.
func (b *Batcher[Q, A]) leave(c *call[Q, A]) (sent, left bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.over {
		return false, false
	}
	c.over = true
	if c.flight == nil { // it is in the line
		if b.left++; b.left > len(b.waiting)/2 {
			b.waiting = slices.DeleteFunc(b.waiting, func(other *call[Q, A]) bool { return other.over })
			b.left = 0
		}
		return false, true
	}
	switch c.flight.callers--; {
	case c.flight.callers > 0:
	case b.opts.Late > 0:
		time.AfterFunc(b.opts.Late, c.flight.cancel)
	default:
		c.flight.cancel() // before the last caller is told that it has left
	}
	return true, true
}
