package redlock

import (
	"context"
	"sync"
	"time"
)

// gather is how long a wake-up waits for a quorum's messages once the first has
// come. A holder with a bare quorum frees just that many nodes, and any of its
// messages may be lost.
const gather = 2 * time.Millisecond

// Notify implements [locker.Notifier]: wake is called when so many nodes have
// told of a release that a quorum may be free.
func (b *Backend) Notify(ctx context.Context, name string, wake func()) (stop func(), err error) {
	w := &watch{b: b, wake: wake, told: make([]bool, len(b.nodes))}
	// Subscriptions that are slower than a quorum's go on when Notify has returned, and ctx has ended.
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	w.cancel = cancel
	waiting, done := context.WithTimeout(ctx, b.patience(0))
	defer done()
	subscribed, causes := 0, b.unanswered()
	for o := range each(waiting, b, func(n *node) (struct{}, error) {
		stop, err := n.wakes.Subscribe(limited, name, func() { w.tell(n.index) })
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
	told  []bool // the nodes that have told of a release since the last wake-up
	n     int    // how many
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
func (w *watch) tell(i int) {
	w.mu.Lock()
	if w.over || w.told[i] {
		w.mu.Unlock()
		return
	}
	w.told[i] = true
	w.n++
	now := w.n >= w.b.quorum
	if now {
		w.reset()
	} else if w.timer == nil {
		w.timer = time.AfterFunc(gather, w.enough)
	}
	w.mu.Unlock()
	if now {
		w.wake()
	}
}

// enough wakes with the messages that there are.
func (w *watch) enough() {
	w.mu.Lock()
	due := w.timer != nil && !w.over
	w.reset()
	w.mu.Unlock()
	if due {
		w.wake()
	}
}

// reset begins to count anew. w.mu is held.
func (w *watch) reset() {
	clear(w.told)
	w.n = 0
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
}

func (w *watch) stop() {
	w.cancel()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return
	}
	w.over = true
	w.reset()
	for _, stop := range w.stops {
		stop()
	}
}
