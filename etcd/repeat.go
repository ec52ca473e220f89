package etcd

import (
	"context"
	"sync"
	"time"
)

const (
	// repeatAfter is how long a request that may be repeated waits for its
	// answer alone. The driver takes turns among the members: the next one goes
	// to another, and a member that hangs costs this and not a time-out.
	repeatAfter = 300 * time.Millisecond
	copies      = 3
)

// repeated makes one request, and the same again while there is no answer.
// It is for requests that can be carried out more than once, and at any
// time later. more tells that they may have been.
func repeated[T any](ctx context.Context, b *Backend, request func(context.Context) (T, error)) (answer T, more bool, err error) {
	if err := b.usable(ctx); err != nil {
		return answer, false, err
	}
	limited, cancel := context.WithCancel(untimed{ctx})
	defer cancel()
	f := &flight[T]{b: b, request: request, ctx: limited, cancel: cancel, began: time.Now(), started: 1}
	f.mu.Lock()
	b.alarms.set(&f.alarm, min(repeatAfter, b.opts.Timeout), f.late)
	f.mu.Unlock()
	answer, err = request(limited)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = true
	b.alarms.off(&f.alarm)
	if f.won {
		return f.answer, true, nil
	}
	return answer, f.started > 1, b.timedOut(ctx, limited, err)
}

// flight is a request that is under way, and its copies.
type flight[T any] struct {
	b       *Backend
	request func(context.Context) (T, error)
	ctx     context.Context
	cancel  context.CancelFunc
	began   time.Time

	mu      sync.Mutex
	alarm   alarm
	started int
	over    bool // the first has ended
	won     bool // a copy was answered before
	answer  T
}

// late is called when there is no answer yet: it sends a copy, or ends it all.
func (f *flight[T]) late() {
	f.mu.Lock()
	defer f.mu.Unlock()
	rest := f.b.opts.Timeout - time.Since(f.began)
	switch {
	case f.over:
		return
	case rest <= 0:
		f.cancel()
		return
	case f.started < copies:
		f.started++
		f.b.spawn(f.copy)
	}
	if f.started < copies {
		rest = min(rest, repeatAfter)
	}
	f.b.alarms.set(&f.alarm, rest, f.late)
}

func (f *flight[T]) copy() {
	a, err := f.request(f.ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil && !f.over && !f.won {
		f.answer, f.won = a, true
		f.cancel()
	}
}
