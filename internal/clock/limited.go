package clock

import (
	"context"
	"sync"
	"time"
)

// Limited is a context that ends with another one, or at a time of its own. The
// timer and the context behind it are made when somebody first asks for Done, Err
// or Value: where a fast service answers each request, they are a seventh of the
// client's work.
//
// Whoever can keep the time in another way asks for the [Parts], and uses those.
type Limited struct {
	parent context.Context
	end    time.Time

	mu     sync.Mutex
	over   bool // Cancel was called
	made   context.Context
	cancel context.CancelFunc
}

// Within returns a context that ends with ctx, and d from now.
func Within(ctx context.Context, d time.Duration) *Limited {
	return &Limited{parent: ctx, end: time.Now().Add(d)}
}

// Parts returns what ctx is made of if it is a Limited: a context, and how long it
// lasts at most; 0: as long as the context.
func Parts(ctx context.Context) (parent context.Context, limit time.Duration) {
	l, ok := ctx.(*Limited)
	if !ok {
		return ctx, 0
	}
	return l.parent, max(time.Until(l.end), time.Nanosecond)
}

// Deadline implements [context.Context].
func (l *Limited) Deadline() (time.Time, bool) {
	if end, ok := l.parent.Deadline(); ok && end.Before(l.end) {
		return end, true
	}
	return l.end, true
}

// Done implements [context.Context].
func (l *Limited) Done() <-chan struct{} { return l.make().Done() }

// Err implements [context.Context].
func (l *Limited) Err() error { return l.make().Err() }

// Value implements [context.Context].
func (l *Limited) Value(key any) any { return l.make().Value(key) }

func (l *Limited) make() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.made == nil {
		l.made, l.cancel = context.WithDeadline(l.parent, l.end)
		if l.over {
			l.cancel()
		}
	}
	return l.made
}

// Cancel ends it, and frees what it holds.
func (l *Limited) Cancel() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	if l.cancel != nil {
		l.cancel()
	}
}
