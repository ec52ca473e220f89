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
	"strings"
	"sync"
	"time"
)

// Options are the bounds of a Batcher. All of them have to be set.
type Options struct {
	// Max is how many callers share a round trip at most.
	Max int
	// Flights is how many round trips are under way, not counting the slow ones.
	Flights int
	// Timeout is how long a round trip may take.
	Timeout time.Duration
	// Slow is after how long a round trip does not keep others from being sent any more.
	Slow time.Duration
	// Late is how long a round trip goes on whose callers have all left. Most are answered by then, and their
	// connection is of use to others; drivers close the connection of a request that they give up.
	Late time.Duration
}

// Batcher has callers with requests of type Q share round trips whose answers are of type A. Make it with
// [New].
type Batcher[Q, A any] struct {
	life context.Context
	send func(ctx context.Context, requests []Q) ([]A, error)
	key  func(Q) string
	opts Options

	mu      sync.Mutex
	waiting []*call[Q, A]
	flying  int            // flights that are not slow
	busy    sync.WaitGroup // all flights
}

// Answer is what became of one request.
type Answer[A any] struct {
	Value A
	Since time.Time // from before it was sent
	Sent  bool      // it was handed to send: beside an error, it may have been carried out
}

// call is one caller that waits.
type call[Q, A any] struct {
	request Q
	flight  *flight // nil: not sent yet
	done    chan struct{}
	answer  Answer[A]
	err     error
}

// flight is a round trip of callers that wait.
type flight struct {
	callers int // that have not left
	cancel  context.CancelFunc
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
	return &Batcher[Q, A]{life: life, send: send, key: key, opts: opts}
}

// Do has request sent, and returns when there is an answer, or ctx or the Batcher's life ends. The error is
// send's, or the cause of the context that ended.
func (b *Batcher[Q, A]) Do(ctx context.Context, request Q) (Answer[A], error) {
	b.mu.Lock()
	if err := ended(ctx, b.life); err != nil {
		b.mu.Unlock()
		return Answer[A]{}, err
	}
	if b.flying == 0 {
		b.flying++
		b.busy.Add(1)
		b.mu.Unlock()
		return b.alone(ctx, request)
	}
	c := &call[Q, A]{request: request, done: make(chan struct{})}
	b.waiting = append(b.waiting, c)
	b.launch()
	b.mu.Unlock()
	select {
	case <-c.done:
		return c.answer, c.err
	case <-ctx.Done():
		return b.leave(ctx, c)
	}
}

// Wait returns when nothing is under way. It is called after the Batcher's life has ended.
func (b *Batcher[Q, A]) Wait() {
	b.mu.Lock()   // whoever comes later sees that it has ended
	b.mu.Unlock() //nolint:staticcheck // there is nothing to do in between
	b.busy.Wait()
}

func ended(all ...context.Context) error {
	for _, ctx := range all {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// alone sends one request in its caller's goroutine.
func (b *Batcher[Q, A]) alone(ctx context.Context, request Q) (answer Answer[A], err error) {
	defer b.busy.Done()
	bounded, cancel := context.WithTimeout(ctx, b.opts.Timeout)
	defer cancel()
	defer context.AfterFunc(b.life, cancel)()
	defer b.lands()()
	answer.Since, answer.Sent = time.Now(), true
	values, err := b.send(bounded, []Q{request})
	if err == nil {
		answer.Value = values[0]
	}
	return answer, err
}

// leave ends a call whose context has ended, unless its answer came at the same time.
func (b *Batcher[Q, A]) leave(ctx context.Context, c *call[Q, A]) (Answer[A], error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-c.done:
		return c.answer, c.err
	default:
	}
	if c.flight == nil {
		b.waiting = slices.DeleteFunc(b.waiting, func(other *call[Q, A]) bool { return other == c })
		return Answer[A]{}, context.Cause(ctx)
	}
	if c.flight.callers--; c.flight.callers == 0 {
		time.AfterFunc(b.opts.Late, c.flight.cancel)
	}
	return Answer[A]{Sent: true}, context.Cause(ctx)
}

// lands returns what makes room for the next flight, once: it is called when this one has landed, and by
// itself when it is slow.
func (b *Batcher[Q, A]) lands() func() {
	landed := sync.OnceFunc(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.flying--
		b.launch()
	})
	slow := time.AfterFunc(b.opts.Slow, landed)
	return func() {
		slow.Stop()
		landed()
	}
}

// launch sends what waits, as far as it may. b.mu is held.
func (b *Batcher[Q, A]) launch() {
	for b.flying < b.opts.Flights && len(b.waiting) > 0 {
		calls := b.share()
		ctx, cancel := context.WithTimeout(b.life, b.opts.Timeout)
		f := &flight{callers: len(calls), cancel: cancel}
		for _, c := range calls {
			c.flight = f
		}
		b.flying++
		b.busy.Go(func() {
			defer cancel()
			b.fly(ctx, calls)
		})
	}
}

// share takes those that go now from the line. It looks no further than it has to: thousands may be waiting.
func (b *Batcher[Q, A]) share() (now []*call[Q, A]) {
	var passed []*call[Q, A]
	keys := make(map[string]bool)
	n := 0
	for ; n < len(b.waiting) && len(now) < b.opts.Max; n++ {
		c := b.waiting[n]
		if b.key != nil {
			if key := b.key(c.request); keys[key] {
				passed = append(passed, c)
				continue
			} else {
				keys[key] = true
			}
		}
		now = append(now, c)
	}
	copy(b.waiting[n-len(passed):], passed)
	clear(b.waiting[:n-len(passed)])
	b.waiting = b.waiting[n-len(passed):]
	if b.key != nil {
		slices.SortFunc(now, func(x, y *call[Q, A]) int {
			return strings.Compare(b.key(x.request), b.key(y.request))
		})
	}
	return now
}

func (b *Batcher[Q, A]) fly(ctx context.Context, calls []*call[Q, A]) {
	lands := b.lands()
	requests := make([]Q, len(calls))
	for i, c := range calls {
		requests[i] = c.request
	}
	since := time.Now()
	values, err := b.send(ctx, requests)
	lands()
	for i, c := range calls {
		c.answer.Since, c.answer.Sent = since, true
		if c.err = err; err == nil {
			c.answer.Value = values[i]
		}
		close(c.done)
	}
}
