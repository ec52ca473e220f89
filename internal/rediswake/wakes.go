// Package rediswake tells callers when a lock may have become free: one
// subscription connection for all names of a server (on a Cluster one per shard).
package rediswake

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/golockers/locker/internal/redisconn"
)

// Options tunes [Wakes]. The zero value is the default.
type Options struct {
	// Linger is how long the subscription of a name outlives its last waiter, and
	// the subscription connection its last name, so that a busy name does not
	// subscribe anew at every hand-over. Zero means 1 s.
	Linger time.Duration

	// Silence is how long the subscription connection may be silent before it is
	// asked for a sign of life, and again how long it may take to give one. Zero
	// means 5 s: waiters are to cost the server next to nothing.
	Silence time.Duration

	// Me is what a message says that is for this client first. Others are woken by it
	// only if nothing more is heard of the name for a moment. A message that says
	// nothing is for everybody.
	Me string
}

// Wakes are the subscriptions of a Conn: one topic per name, one connection for
// all of them (on a Cluster one per shard, where shard channels live). A topic
// outlives its last waiter by Options.Linger, and the connection ends with its
// last topic, or with the Conn.
type Wakes struct {
	n    *redisconn.Conn
	opts Options
	// plain: use SUBSCRIBE and not SSUBSCRIBE, since this is no Cluster, or one before 7.0.
	plain atomic.Bool

	mu          sync.Mutex
	topics      map[string]*topic             // by channel
	connections map[*redis.Client]*connection // by shard; nil where there are none
}

// topic is the subscription of one name. Its fields are guarded by Wakes.mu.
type topic struct {
	name, channel string
	connection    *connection
	waiters       map[*waiter]struct{}
	idle          time.Time // since when there is no waiter

	live         bool     // the server has confirmed the subscription
	again        bool     // it was confirmed before: messages may have been lost since
	confirmation *outcome // of the attempt that is under way; nil if live

	later *time.Timer // wakes, since a message was for another client; nil: there was none

	asked bool // subscribed to in this session of the connection, perhaps not yet confirmed
}

// waiter is one call of Subscribe.
type waiter struct {
	wake func()
	gone atomic.Bool
}

// outcome is closed when it is known whether a subscription succeeded.
type outcome struct {
	known chan struct{}
	err   error
}

// New returns the subscriptions of n. It does no I/O.
func New(n *redisconn.Conn, opts Options) *Wakes {
	if opts.Linger <= 0 {
		opts.Linger = time.Second
	}
	if opts.Silence <= 0 {
		opts.Silence = 5 * time.Second
	}
	w := &Wakes{n: n, opts: opts, topics: map[string]*topic{}, connections: map[*redis.Client]*connection{}}
	w.plain.Store(!n.IsCluster())
	return w
}

// Subscribe has wake called whenever the lock may have become free: after its
// release, and after the subscription connection was lost and made again, since a
// message may have been lost meanwhile. It returns once the server has confirmed
// the subscription, so that a release from then on is certain to wake (as long as
// someone's request said that it waits). It fails when ctx ends, after the
// Conn's timeout, or when the first attempt to subscribe fails.
//
// wake is called from one goroutine for all names of a server, without a lock
// held, perhaps when there is no reason; it must not block. cancel may be called
// more than once and never blocks; a call of wake that has begun may still be
// running when it returns.
//
// A wake-up is a help, not a promise (R14): the key can expire without a message,
// and a connection can be broken without anybody having noticed yet (that takes
// up to three times Options.Silence). Poll as well.
func (w *Wakes) Subscribe(ctx context.Context, name string, wake func()) (cancel func(), err error) {
	addr := w.n.Addr()
	fail := func(err error) (func(), error) {
		var known *redisconn.Error
		if !errors.As(err, &known) {
			err = &redisconn.Error{Op: "subscribe", Addr: addr, Err: err}
		}
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	if w.n.Context().Err() != nil {
		return fail(redisconn.ErrClosed)
	}
	r, err := w.n.Route(ctx, name)
	if err != nil {
		return fail(err)
	}
	addr = r.Addr
	me := &waiter{wake: wake}
	t, confirmation := w.join(r, name, me)
	if t == nil {
		return fail(redisconn.ErrClosed)
	}
	cancel = func() { w.leave(t, me) }
	if confirmation == nil {
		return cancel, nil
	}
	stop := time.NewTimer(w.n.Timeout())
	defer stop.Stop()
	for known := false; !known; {
		known = true
		select {
		case <-confirmation.known:
			err = confirmation.err
		case <-ctx.Done():
			err = ctx.Err()
		case <-stop.C:
			// Where others are before this one and the connection works, it is only work (R21).
			if left := w.n.Timeout() - w.unheard(t); left > 0 {
				stop.Reset(left)
				known = false
			} else {
				err = redisconn.ErrTimeout
			}
		case <-w.n.Context().Done():
			err = redisconn.ErrClosed
		}
	}
	if err != nil {
		cancel()
		return fail(err)
	}
	return cancel, nil
}

// unheard is for how long nothing has come from the connection of a topic.
func (w *Wakes) unheard(t *topic) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Since(t.connection.lastHeard())
}

// join adds a waiter to the topic of a name, which is made if need be. confirmation is nil if the
// topic is live already; t is nil if the Conn is closed.
func (w *Wakes) join(r *redisconn.Route, name string, me *waiter) (t *topic, confirmation *outcome) {
	channel := redisconn.WakeChannel(name)
	w.mu.Lock()
	defer w.mu.Unlock()
	t = w.topics[channel]
	if t == nil {
		t = &topic{name: name, channel: channel, waiters: map[*waiter]struct{}{}, confirmation: newOutcome()}
		if !w.attach(t, r) {
			return nil, nil
		}
		w.topics[channel] = t
	}
	t.waiters[me] = struct{}{}
	return t, t.confirmation
}

// leave removes a waiter. The topic stays for a while: on a busy name the next waiter is near.
func (w *Wakes) leave(t *topic, me *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if me.gone.Swap(true) {
		return
	}
	delete(t.waiters, me)
	if len(t.waiters) == 0 {
		t.idle = time.Now()
	}
}

// attach gives a topic to the connection of a route, which is started if need be. The caller holds mu.
func (w *Wakes) attach(t *topic, r *redisconn.Route) bool {
	c := w.connections[r.Shard]
	if c == nil {
		c = &connection{w: w, route: r, topics: map[*topic]struct{}{}, kicked: make(chan struct{}, 1)}
		if !w.n.Go(c.run) {
			return false
		}
		w.connections[r.Shard] = c
	}
	t.connection = c
	c.topics[t] = struct{}{}
	c.subscribe(t)
	return true
}

// subscribe has the connection subscribe to a topic soon. The caller holds Wakes.mu.
func (c *connection) subscribe(t *topic) {
	t.asked = false
	c.fresh = append(c.fresh, t)
	c.kick()
}

// confirmed notes that the server has subscribed us to a channel.
func (w *Wakes) confirmed(channel string) {
	w.mu.Lock()
	t := w.topics[channel]
	if t == nil {
		w.mu.Unlock()
		return
	}
	missed := t.again
	t.live, t.again = true, true
	if t.confirmation != nil {
		close(t.confirmation.known)
		t.confirmation = nil
	}
	w.mu.Unlock()
	if missed {
		w.wake(channel)
	}
}

// unsubscribed notes that the server has ended a subscription: its slot has moved to another shard.
// (Our own unsubscribing is confirmed in the same words. If somebody has subscribed again in
// between, that is done once more, for nothing.)
func (w *Wakes) unsubscribed(channel string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.topics[channel]; t != nil {
		t.unconfirmed()
		t.connection.subscribe(t)
	}
}

// unconfirmed notes that a topic is not live any more. The caller holds mu.
func (t *topic) unconfirmed() {
	t.live = false
	if t.confirmation == nil {
		t.confirmation = newOutcome()
	}
}

// turnTime is how long a lock that was released is another client's, at least: see
// pass.lua of package single. A client that asks too early learns for how much longer.
const turnTime = 10 * time.Millisecond

// message takes a message for a channel.
func (w *Wakes) message(channel, whom string) {
	w.mu.Lock()
	mine := whom == "" || whom == w.opts.Me
	if t := w.topics[channel]; t != nil {
		switch {
		case t.later != nil && mine:
			t.later.Stop()
		case t.later != nil:
			t.later.Reset(turnTime)
		case !mine:
			t.later = time.AfterFunc(turnTime, func() { w.wake(channel) })
		}
	}
	w.mu.Unlock()
	if mine {
		w.wake(channel)
	}
}

// wake calls all waiters of a channel. No lock is held meanwhile: they may call back.
func (w *Wakes) wake(channel string) {
	w.mu.Lock()
	var waiters []*waiter
	if t := w.topics[channel]; t != nil {
		for me := range t.waiters {
			waiters = append(waiters, me)
		}
	}
	w.mu.Unlock()
	for _, me := range waiters {
		if !me.gone.Load() {
			me.wake()
		}
	}
}

func newOutcome() *outcome { return &outcome{known: make(chan struct{})} }
