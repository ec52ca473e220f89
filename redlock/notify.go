package redlock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/golockers/locker"
)

// gather is how long a wake-up waits for a quorum's messages once the first has
// come. A holder with a bare quorum frees just that many nodes, and any of its
// messages may be lost.
const gather = 2 * time.Millisecond

// Notify implements [locker.Notifier]: wake is called when so many nodes have
// told of a release that a quorum may be free.
func (b *Backend) Notify(ctx context.Context, name string, wake func()) (stop func(), err error) {
	w := &watch{b: b, wake: wake, told: make([]bool, len(b.nodes)), stops: make([]func(), len(b.nodes)),
		errs: make([]error, len(b.nodes)), changed: make(chan struct{}, 1)}
	limited, cancel := context.WithTimeout(ctx, requestTimeout)
	w.cancel = cancel
	for i, n := range b.nodes {
		w.errs[i] = errNoAnswer
		if !b.start(func() {
			stop, err := n.wakes.Subscribe(limited, name, func() { w.tell(i) })
			w.subscribed(i, stop, ourLimit(ctx, err))
		}) {
			w.stop()
			return nil, locker.ErrClosed
		}
	}
	timer := time.NewTimer(b.patience(0))
	defer timer.Stop()
	for {
		ok, open := w.count()
		// Any quorum that is released has a node among so many.
		enough := ok >= len(b.nodes)-b.quorum+1
		if enough && (open == 0 || ok >= b.quorum) {
			return w.stop, nil
		}
		if open == 0 {
			break
		}
		select {
		case <-w.changed:
			continue
		case <-timer.C:
			if enough {
				return w.stop, nil
			}
		case <-ctx.Done():
		case <-b.ctx.Done():
		}
		break
	}
	w.mu.Lock()
	failed := b.quorumError("notify", "", w.errs)
	w.mu.Unlock()
	w.stop() // which ends what is still under way, and is no reason
	if b.isClosed() {
		return nil, locker.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, errors.Join(err, failed)
	}
	return nil, failed
}

// watch is one Notify.
type watch struct {
	b       *Backend
	wake    func()
	cancel  context.CancelFunc
	changed chan struct{}

	mu    sync.Mutex
	told  []bool // the nodes that have told of a release since the last wake-up
	n     int    // how many
	timer *time.Timer
	stops []func()
	errs  []error // nil: subscribed
	over  bool
	ended int
}

// subscribed notes how the subscription at one node went; it may come late.
func (w *watch) subscribed(i int, stop func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended++
	w.errs[i] = err
	signal(w.changed)
	switch {
	case err != nil:
	case w.over:
		stop()
	default:
		w.stops[i] = stop
	}
}

func (w *watch) count() (ok, open int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, err := range w.errs {
		if err == nil {
			ok++
		}
	}
	return ok, len(w.errs) - w.ended
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
		if stop != nil {
			stop()
		}
	}
}
