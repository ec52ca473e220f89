// Package wake tells callers when a name may have become free: one connection to the service, on which it
// says so, for all callers and all names of a client (or one to each of its servers).
//
// A connection is opened for its first name. A name stays for a while when nobody waits for it any more,
// since on a busy one the next caller is near, and the connection is closed with its last name. One that is
// lost is opened again; then every caller is told, since a message may have been missed in the gap (R14).
package wake

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golockers/locker/internal/clock"
)

// Conn is a connection that hears.
type Conn interface {
	// Next waits for what comes, or for ctx to end.
	Next(ctx context.Context) (Event, error)
	// Close is called when Next has returned.
	Close()
}

// Listener is a Conn that hears only of the names that it is told. Next is first called after Listen.
type Listener interface {
	Conn
	// Listen begins to hear of names; Next says of each when that is so.
	Listen(ctx context.Context, names []string) error
	// Forget ends that.
	Forget(ctx context.Context, names []string) error
}

// Event is what comes from a connection.
type Event struct {
	Name string // one that nobody waits for does no harm
	Kind Kind
}

// Kind is what an Event says of its name.
type Kind int

// The kinds.
const (
	Free  Kind = iota // it may have become free
	Hears             // it is heard of from now on
	Deaf              // it is not any more: it has moved to another server
)

// Options are how a Wakes works. All of them have to be set that are not said to be optional.
type Options struct {
	// Route, if it is not nil, returns the server that tells of a name, which Open is then given.
	Route func(ctx context.Context, name string) (server any, err error)
	// Open connects. Messages that are sent from then on are heard, unless the Conn is a Listener.
	Open func(ctx context.Context, server any) (Conn, error)
	// Linger is how long a name stays, and with it the connection, that nobody waits for.
	Linger time.Duration
	// Pause is called with the error that a connection, or the attempt to open one, ended with, and how many
	// have failed before in a row. It returns the time until the next attempt, to which jitter is added.
	Pause func(server any, err error, failed int) time.Duration
	// Go, if it is not nil, runs f in a goroutine, unless the life has ended. Otherwise Wait waits for those.
	Go func(f func()) bool
}

// Wakes has the callers that wait. Make it with [New].
type Wakes struct {
	life context.Context
	opts Options
	busy sync.WaitGroup

	mu          sync.Mutex
	topics      map[string]*topic
	connections map[any]*connection // by server
}

// topic is a name, and who waits for it. Its fields are guarded by Wakes.mu.
type topic struct {
	name  string
	conn  *connection
	calls map[*call]struct{}
	idle  time.Time     // since when there is none
	asked bool          // Listen was called for it on this connection
	heard chan struct{} // closed when it is heard of; nil: it is
	again bool          // it was heard of before: messages may have been missed since
}

// call is one call of Notify.
type call struct {
	wake func()
	gone atomic.Bool
}

// connection is the goroutine that keeps a connection to one server.
type connection struct {
	w      *Wakes
	server any
	kicked chan struct{} // there may be something to do

	// Guarded by Wakes.mu.
	topics map[*topic]struct{}
	fresh  []*topic  // to listen for; some may have left since
	all    bool      // it hears of all names
	swept  time.Time // when those that nobody waits for were last looked for
}

// New returns a Wakes that works until life ends. It does no I/O.
func New(life context.Context, opts Options) *Wakes {
	if opts.Route == nil {
		opts.Route = func(context.Context, string) (any, error) { return nil, nil } // there is one server
	}
	return &Wakes{life: life, opts: opts, topics: make(map[string]*topic),
		connections: make(map[any]*connection)}
}

// Notify has wake called whenever name may have become free, until stop is called. It returns when that is
// heard of, or when ctx or the life of the Wakes ends: the error is the cause of that, and wake is not called
// any more. wake is called from one goroutine for all names of a server, without a mutex held, and must not
// block. stop does not block; a call of wake that has begun may still be running when it returns.
func (w *Wakes) Notify(ctx context.Context, name string, wake func()) (stop func(), err error) {
	server, err := w.opts.Route(ctx, name)
	if err != nil {
		return nil, err
	}
	c := &call{wake: wake}
	w.mu.Lock()
	t := w.topics[name]
	switch {
	case w.life.Err() != nil:
		err = context.Cause(w.life)
	case t == nil:
		t = &topic{name: name, calls: make(map[*call]struct{}), heard: make(chan struct{})}
		if !w.attach(t, server) {
			err = context.Cause(w.life)
			break
		}
		w.topics[name] = t
	}
	if err != nil {
		w.mu.Unlock()
		return nil, err
	}
	t.calls[c] = struct{}{}
	heard := t.heard
	w.mu.Unlock()
	stop = func() { w.leave(t, c) }
	if heard == nil {
		return stop, nil
	}
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

// Wake tells all who wait for a name.
func (w *Wakes) Wake(name string) {
	w.mu.Lock()
	var calls []*call
	if t := w.topics[name]; t != nil {
		for c := range t.calls {
			calls = append(calls, c)
		}
	}
	w.mu.Unlock()
	for _, c := range calls {
		if !c.gone.Load() {
			c.wake()
		}
	}
}

// Wait returns when all connections are closed. It is called after the life of the Wakes has ended.
func (w *Wakes) Wait() {
	w.mu.Lock()   // whoever comes later sees that it has ended
	w.mu.Unlock() //nolint:staticcheck // there is nothing to do in between
	w.busy.Wait()
}

func (w *Wakes) leave(t *topic, c *call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c.gone.Store(true)
	delete(t.calls, c)
	if len(t.calls) == 0 {
		t.idle = time.Now()
	}
}

// attach gives a topic to the connection to a server, which is made if need be. w.mu is held.
func (w *Wakes) attach(t *topic, server any) bool {
	c := w.connections[server]
	if c == nil {
		c = &connection{w: w, server: server, topics: make(map[*topic]struct{}), kicked: make(chan struct{}, 1)}
		switch {
		case w.opts.Go == nil:
			w.busy.Go(c.run)
		case !w.opts.Go(c.run):
			return false
		}
		w.connections[server] = c
	}
	t.conn = c
	c.topics[t] = struct{}{}
	if c.all {
		t.hears()
	} else {
		c.listen(t)
	}
	return true
}

// listen has a topic listened for soon. w.mu is held.
func (c *connection) listen(t *topic) {
	t.asked = false
	c.fresh = append(c.fresh, t)
	select {
	case c.kicked <- struct{}{}:
	default:
	}
}

// hears notes that a topic is heard of, and reports whether messages may have been missed. w.mu is held.
func (t *topic) hears() (missed bool) {
	missed, t.again = t.again, true
	if t.heard != nil {
		close(t.heard)
		t.heard = nil
	}
	return missed
}

// deaf notes that a topic is not heard of any more. w.mu is held.
func (t *topic) deaf() {
	if t.heard == nil {
		t.heard = make(chan struct{})
	}
}

// run keeps a connection for as long as there are topics.
func (c *connection) run() {
	for failed := 0; ; failed++ {
		began := time.Now()
		err := c.session()
		if err == nil || c.w.life.Err() != nil {
			return
		}
		c.w.mu.Lock()
		c.all, c.fresh = false, nil
		for t := range c.topics {
			t.deaf()
			c.listen(t)
		}
		c.w.mu.Unlock()
		if time.Since(began) > time.Second {
			failed = 0 // it had worked for a while
		}
		_ = clock.Sleep(c.w.life, clock.Jitter(c.w.opts.Pause(c.server, err, failed))) // the session ends at once
	}
}

// session is the life of one connection. It returns nil when there are no topics left, or life has ended.
func (c *connection) session() error {
	c.w.mu.Lock()
	_, over := c.sweep()
	c.w.mu.Unlock()
	if over {
		return nil
	}
	ctx, cancel := context.WithCancel(c.w.life)
	defer cancel()
	conn, err := c.w.opts.Open(ctx, c.server)
	if err != nil {
		return err
	}
	defer conn.Close()
	var reader sync.WaitGroup
	defer reader.Wait()
	defer cancel()
	listener, _ := conn.(Listener)
	if listener == nil {
		c.hearsAll()
	}
	broken := make(chan error, 1)
	for reading := false; ; {
		p := c.plan()
		if p.over {
			return nil
		}
		if listener != nil && len(p.add) > 0 { // first, since somebody waits for those
			err = listener.Listen(ctx, p.add)
		}
		if listener != nil && len(p.drop) > 0 && err == nil {
			err = listener.Forget(ctx, p.drop)
		}
		if err != nil {
			return err
		}
		if !reading {
			reading = true
			reader.Go(func() { broken <- c.read(ctx, conn) })
		}
		if p.more {
			continue
		}
		select {
		case <-c.kicked:
		case <-time.After(c.w.opts.Linger):
		case <-ctx.Done():
		case err := <-broken:
			return err
		}
	}
}

// hearsAll notes that all names are heard of.
func (c *connection) hearsAll() {
	c.w.mu.Lock()
	var missed []string
	c.all, c.fresh = true, nil
	for t := range c.topics {
		if t.hears() {
			missed = append(missed, t.name)
		}
	}
	c.w.mu.Unlock()
	for _, name := range missed {
		c.w.Wake(name)
	}
}

// read passes on what comes, until the connection ends.
func (c *connection) read(ctx context.Context, conn Conn) error {
	w := c.w
	for {
		e, err := conn.Next(ctx)
		if err != nil {
			return err
		}
		wakes := e.Kind == Free
		w.mu.Lock()
		if t := w.topics[e.Name]; t != nil && t.conn == c {
			switch e.Kind {
			case Hears:
				wakes = t.hears()
			case Deaf:
				t.deaf()
				c.listen(t)
			case Free:
			}
		}
		w.mu.Unlock()
		if wakes {
			w.Wake(e.Name)
		}
	}
}

// plan is what a session has to do next.
type plan struct {
	add, drop []string
	more      bool // that is not all
	over      bool // see sweep
}

// maxAdd bounds how many names are listened for before answers are read: a client may wait for a hundred
// thousand.
const maxAdd = 1000

// plan takes topics that are not listened for, and those that nobody has waited for in a while.
func (c *connection) plan() (p plan) {
	w := c.w
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(c.fresh) > 0 && len(p.add) < maxAdd {
		t := c.fresh[0]
		c.fresh = c.fresh[1:]
		if _, here := c.topics[t]; here && !t.asked && !c.moves(t) {
			t.asked = true
			p.add = append(p.add, t.name)
		}
	}
	p.more = len(c.fresh) > 0
	p.drop, p.over = c.sweep()
	return p
}

// moves hands a topic to the connection to another server if that now tells of its name. w.mu is held.
func (c *connection) moves(t *topic) bool {
	if server, err := c.w.opts.Route(c.w.life, t.name); err != nil || server == c.server {
		return false
	} else {
		delete(c.topics, t)
		return c.w.attach(t, server)
	}
}

// sweep now and then ends topics that nobody has waited for in a while, and returns those that were listened
// for. over: there are none left, and the connection is no more, or life has ended. w.mu is held.
func (c *connection) sweep() (drop []string, over bool) {
	w := c.w
	if now := time.Now(); now.Sub(c.swept) >= w.opts.Linger {
		c.swept = now
		for t := range c.topics {
			if len(t.calls) == 0 && now.Sub(t.idle) >= w.opts.Linger {
				delete(c.topics, t)
				delete(w.topics, t.name)
				if t.asked {
					drop = append(drop, t.name)
				}
			}
		}
	}
	if len(c.topics) == 0 {
		delete(w.connections, c.server)
		return drop, true
	}
	return drop, w.life.Err() != nil
}
