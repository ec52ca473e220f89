// Package wake tells callers when a name may have become free: one connection to the service, on which it
// says so, for all callers and all names of a client.
//
// The connection is opened for the first caller, and closed when nobody has waited for a while. One that is
// lost is opened again; then every caller is told, since a message may have been missed in the gap (R14).
package wake

import (
	"context"
	"sync"
	"time"

	"github.com/golockers/locker/internal/clock"
)

// Conn is a connection that hears.
type Conn interface {
	// Next waits for a message, and returns the name that it is about; a name that nobody waits for is none.
	Next(ctx context.Context) (name string, err error)
	Close()
}

// Options are how a Wakes works. All of them have to be set.
type Options struct {
	// Open connects, and returns when messages that are sent from then on are heard.
	Open func(ctx context.Context) (Conn, error)
	// Linger is how long the connection stays that nobody needs.
	Linger time.Duration
	// Pause is called with the error that a connection, or the attempt to open one, ended with, and returns
	// the time until the next attempt, to which jitter is added. It is called from one goroutine.
	Pause func(err error) time.Duration
}

// Wakes has the callers that wait. Make it with [New].
type Wakes struct {
	life context.Context
	opts Options
	busy sync.WaitGroup // run

	mu     sync.Mutex
	calls  map[string]map[*call]struct{} // by name
	heard  chan struct{}                 // closed when the connection hears; nil: nobody needs one
	hangUp context.CancelFunc            // ends the connection
	idle   *time.Timer                   // calls hangUp
}

// call is one call of Notify.
type call struct{ wake func() }

// New returns a Wakes that works until life ends. It does no I/O.
func New(life context.Context, opts Options) *Wakes {
	return &Wakes{life: life, opts: opts, calls: make(map[string]map[*call]struct{})}
}

// Notify has wake called whenever name may have become free, until stop is called. It returns when the
// connection hears, or ctx or the life of the Wakes ends: the error is the cause of that, and wake is not
// called any more. wake must not block. It is called with a mutex held, and so must not call Notify or
// stop.
func (w *Wakes) Notify(ctx context.Context, name string, wake func()) (stop func(), err error) {
	c := &call{wake}
	w.mu.Lock()
	if w.life.Err() != nil {
		w.mu.Unlock()
		return nil, context.Cause(w.life)
	}
	if w.calls[name] == nil {
		w.calls[name] = make(map[*call]struct{})
	}
	w.calls[name][c] = struct{}{}
	if w.idle != nil {
		w.idle.Stop()
	}
	if w.heard == nil {
		w.heard = make(chan struct{})
		w.busy.Go(w.run)
	}
	heard := w.heard
	w.mu.Unlock()
	stop = func() { w.leave(name, c) }
	select {
	case <-heard:
		return stop, nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-w.life.Done():
		err = context.Cause(w.life)
	}
	stop()
	return nil, err
}

// Wait returns when the connection is closed. It is called after the life of the Wakes has ended.
func (w *Wakes) Wait() {
	w.mu.Lock()   // whoever comes later sees that it has ended
	w.mu.Unlock() //nolint:staticcheck // there is nothing to do in between
	w.busy.Wait()
}

func (w *Wakes) leave(name string, c *call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.calls[name], c)
	if len(w.calls[name]) == 0 {
		delete(w.calls, name)
	}
	w.linger()
}

// linger ends a connection that nobody needs, in a while. w.mu is held.
func (w *Wakes) linger() {
	if len(w.calls) == 0 && w.hangUp != nil {
		w.idle = time.AfterFunc(w.opts.Linger, w.hangUp)
	}
}

// run listens for as long as somebody waits, on one connection after the other.
func (w *Wakes) run() {
	for w.needed() {
		ctx, cancel := context.WithCancel(w.life)
		err := w.listen(ctx, cancel)
		cancel()
		if w.lost() {
			_ = clock.Sleep(w.life, clock.Jitter(w.opts.Pause(err))) // needed looks why it ended
		}
	}
}

// listen is the life of one connection.
func (w *Wakes) listen(ctx context.Context, hangUp context.CancelFunc) error {
	conn, err := w.opts.Open(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	w.hears(hangUp)
	for {
		name, err := conn.Next(ctx)
		if err != nil {
			return err
		}
		w.mu.Lock()
		for c := range w.calls[name] {
			c.wake()
		}
		w.mu.Unlock()
	}
}

// needed reports whether somebody waits; if not, the next caller begins anew.
func (w *Wakes) needed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.calls) > 0 && w.life.Err() == nil {
		return true
	}
	w.heard = nil
	return false
}

// hears tells those that wait for the connection, and those that have waited longer, since something may
// have been missed while there was none.
func (w *Wakes) hears(hangUp context.CancelFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hangUp = hangUp
	for _, calls := range w.calls {
		for c := range calls {
			c.wake()
		}
	}
	close(w.heard)
	w.linger()
}

// lost notes that there is no connection, and reports whether somebody needs one.
func (w *Wakes) lost() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hangUp = nil
	select {
	case <-w.heard:
		w.heard = make(chan struct{}) // of the next one
	default:
	}
	return len(w.calls) > 0
}
