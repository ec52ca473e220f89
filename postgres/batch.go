package postgres

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// maxBatch is how many callers share a statement at most. Each needs one place in the server's table
	// of locks, which has 64 for each connection by default.
	maxBatch = 64
	// maxFlights is how many statements of a kind are under way, not counting those that are slow.
	maxFlights = 2
	// slowFlight is when a statement does not keep others from being sent any more (R22).
	slowFlight = 100 * time.Millisecond
	// lateFlight is how long a statement goes on whose callers have all left. Most are answered then, and
	// their connection is of use to others; pgx closes that of a statement which it gives up.
	lateFlight = 250 * time.Millisecond
)

// batcher sends what concurrent callers ask in as few statements as it can: one that comes alone is sent
// at once, and those that come while two are under way share the next one. No two for one name go together,
// of which an UPDATE would answer only one.
type batcher[A any] struct {
	b    *Backend
	send func(ctx context.Context, asks []ask) ([]A, error)

	mu      sync.Mutex
	waiting []*call[A]
	flying  int
}

// ask is what one caller asks.
type ask struct {
	name, owner, label string
	ttl                time.Duration
	waits              bool
}

// call is one caller.
type call[A any] struct {
	ask    ask
	flight *flight // nil: not sent yet
	done   chan struct{}
	since  time.Time // before it was sent
	answer A
	err    error
}

// flight is a statement under way.
type flight struct {
	callers int // that have not left
	cancel  context.CancelFunc
}

// do returns when there is an answer or ctx ends. It is sent if the statement may have been carried out.
func (q *batcher[A]) do(ctx context.Context, a ask) (answer A, since time.Time, sent bool, err error) {
	if ctx.Err() != nil {
		return answer, since, false, context.Cause(ctx)
	}
	c := &call[A]{ask: a, done: make(chan struct{})}
	q.mu.Lock()
	if q.flying == 0 && q.b.begin() {
		q.flying++
		q.mu.Unlock()
		return q.alone(ctx, a)
	}
	q.waiting = append(q.waiting, c)
	q.launch()
	q.mu.Unlock()
	select {
	case <-c.done:
		return c.answer, c.since, true, c.err
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-c.done:
		return c.answer, c.since, true, c.err
	default:
	}
	if c.flight == nil {
		q.waiting = slices.DeleteFunc(q.waiting, func(other *call[A]) bool { return other == c })
		return answer, since, false, context.Cause(ctx)
	}
	if c.flight.callers--; c.flight.callers == 0 {
		time.AfterFunc(lateFlight, c.flight.cancel)
	}
	return answer, since, true, context.Cause(ctx)
}

// alone sends what one caller asks in the caller's goroutine: each switch to another one costs it as much as
// half of the round trip. pgx gives it up when ctx ends, and closes the connection.
func (q *batcher[A]) alone(ctx context.Context, a ask) (answer A, since time.Time, sent bool, err error) {
	defer q.b.busy.Done()
	bounded, cancel := context.WithTimeout(ctx, q.b.opts.Timeout)
	defer cancel()
	defer context.AfterFunc(q.b.life, cancel)()
	landed := sync.OnceFunc(q.landed)
	defer landed()
	defer time.AfterFunc(slowFlight, landed).Stop()
	since = time.Now()
	answers, err := q.send(bounded, []ask{a})
	switch {
	case err == nil:
		answer = answers[0]
	case ctx.Err() != nil && unknown(err):
		err = context.Cause(ctx)
	}
	return answer, since, true, err
}

// landed makes room for the next statement.
func (q *batcher[A]) landed() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.flying--
	q.launch()
}

// launch sends what waits, as far as it may. q.mu is held.
func (q *batcher[A]) launch() {
	for q.flying < maxFlights && len(q.waiting) > 0 {
		calls := q.share()
		ctx, cancel := context.WithTimeout(q.b.life, q.b.opts.Timeout)
		f := &flight{callers: len(calls), cancel: cancel}
		for _, c := range calls {
			c.flight = f
		}
		q.flying++
		q.b.background(func() { q.fly(ctx, f, calls) })
	}
}

// share takes those who go now from the line. They are in the order of their names, so that two clients lock rows in the
// same order. It looks no further than it has to: thousands may be waiting.
func (q *batcher[A]) share() (now []*call[A]) {
	names := make(map[string]bool, maxBatch)
	var passed []*call[A]
	n := 0
	for ; n < len(q.waiting) && len(now) < maxBatch; n++ {
		if c := q.waiting[n]; names[c.ask.name] {
			passed = append(passed, c)
		} else {
			names[c.ask.name] = true
			now = append(now, c)
		}
	}
	copy(q.waiting[n-len(passed):], passed)
	clear(q.waiting[:n-len(passed)])
	q.waiting = q.waiting[n-len(passed):]
	slices.SortFunc(now, func(a, b *call[A]) int { return strings.Compare(a.ask.name, b.ask.name) })
	return now
}

func (q *batcher[A]) fly(ctx context.Context, f *flight, calls []*call[A]) {
	defer f.cancel()
	landed := sync.OnceFunc(q.landed)
	slow := time.AfterFunc(slowFlight, landed)
	asks := make([]ask, len(calls))
	for i, c := range calls {
		asks[i] = c.ask
	}
	since := time.Now()
	answers, err := q.send(ctx, asks)
	slow.Stop()
	landed()
	for i, c := range calls {
		if c.since, c.err = since, err; err == nil {
			c.answer = answers[i]
		}
		close(c.done)
	}
}
