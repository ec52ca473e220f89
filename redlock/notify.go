package redlock

import (
	"context"
	"iter"
	"sync"
	"time"

	"github.com/golockers/locker/internal/redisnode"
)

// gather is how long a wake-up waits for a quorum's messages once the first has
// come. A holder with a bare quorum frees just that many nodes, and any of its
// messages may be lost.
const gather = 2 * time.Millisecond

// Notify implements [driver.Notifier]: wake is called when so many nodes have
// told of a release that a quorum may be free.
func (b *Backend) Notify(ctx context.Context, name string, wake func()) (stop func(), err error) {
	w := &watch{b: b, wake: wake}
	w.timer = time.AfterFunc(time.Hour, w.enough)
	// Subscriptions that are slower than a quorum's go on when Notify has returned, and ctx has ended.
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	w.cancel = cancel
	waiting, done := context.WithTimeout(ctx, b.patience(0))
	defer done()
	subscribed, causes := 0, b.unanswered()
	for o := range each(waiting, b, func(n *node) (struct{}, error) {
		stop, err := n.wakes.Subscribe(limited, name, w.tell)
		if err == nil {
			w.keep(stop)
		}
		return struct{}{}, ourLimit(ctx, err)
	}) {
		if causes[o.node] = o.err; o.err == nil {
			subscribed++
		}
		if subscribed >= b.quorum {
			break
		}
	}
	// Any quorum that is released has a node among so many.
	if subscribed >= b.quorum || subscribed > len(b.nodes)-b.quorum && ctx.Err() == nil {
		return w.stop, nil
	}
	w.stop()
	return nil, b.tooFew(ctx, "notify", causes)
}

// watch is one Notify.
type watch struct {
	b      *Backend
	wake   func()
	cancel context.CancelFunc

	mu    sync.Mutex
	told  int // messages since the last wake-up
	timer *time.Timer
	stops []func() // the subscriptions' own
	over  bool
}

// keep is for the end of a node's subscription, which may come late.
func (w *watch) keep(stop func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		stop()
		return
	}
	w.stops = append(w.stops, stop)
}

// tell counts a node's message.
func (w *watch) tell() {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch w.told++; {
	case w.told >= w.b.quorum:
		w.timer.Reset(0)
	case w.told == 1:
		w.timer.Reset(gather)
	}
}

// enough wakes with the messages that there are.
func (w *watch) enough() {
	w.mu.Lock()
	due := w.told > 0 && !w.over
	w.told = 0
	w.mu.Unlock()
	if due {
		w.wake()
	}
}

func (w *watch) stop() {
	w.cancel()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.timer.Stop()
	for _, stop := range w.stops {
		stop()
	}
}

// outcome is what came of asking one node by each.
type outcome[T any] struct {
	node int
	got  T
	err  error
}

// each puts to all nodes at once a question whose function blocks, and yields the outcomes as they come, until ctx is
// done. They are asked now, and the outcomes can be had once. Nobody waits for the other nodes after that, nor after a
// break: each is asked by a goroutine of the Backend.
func each[T any](ctx context.Context, b *Backend, ask func(n *node) (T, error)) iter.Seq[outcome[T]] {
	came := make(chan outcome[T], len(b.nodes))
	for i, n := range b.nodes {
		if !b.start(func() {
			got, err := ask(n)
			came <- outcome[T]{i, got, err}
		}) {
			came <- outcome[T]{node: i, err: redisnode.ErrClosed}
		}
	}
	return func(yield func(outcome[T]) bool) {
		for range b.nodes {
			var o outcome[T]
			select {
			case o = <-came:
			case <-ctx.Done():
				select {
				case o = <-came: // before its end, perhaps
				default:
					return
				}
			}
			if !yield(o) {
				return
			}
		}
	}
}
