package rediswake

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/golockers/locker/internal/clock"
	"github.com/golockers/locker/internal/redisconn"
)

// connection is one subscription connection, and the goroutine that keeps it.
type connection struct {
	w      *Wakes
	route  *redisconn.Route
	kicked chan struct{} // there may be something to do

	// Guarded by Wakes.mu.
	topics map[*topic]struct{}
	fresh  []*topic  // to be subscribed in this session; some may have left since
	swept  time.Time // when those that nobody waits for were last looked for

	// when something came last, as a time.Duration after began: no step of the wall clock matters
	heard atomic.Int64
}

var began = time.Now()

// lastHeard is when something came last.
func (c *connection) lastHeard() time.Time { return began.Add(time.Duration(c.heard.Load())) }

// The pause after a connection was lost: it doubles from the first to the second, with jitter.
const minPause, maxPause = 50 * time.Millisecond, time.Second

func (c *connection) kick() {
	select {
	case c.kicked <- struct{}{}:
	default:
	}
}

// run keeps a connection for as long as there are topics.
func (c *connection) run() {
	pause := minPause
	var retry *redisconn.Retry
	for {
		began := time.Now()
		err := redisconn.Recovered(c.session)
		if err == nil {
			return
		}
		if retry == nil || time.Since(began) > maxPause {
			retry = redisconn.NewRetry(c.client())
		}
		c.lost(err, retry.Worth(err))
		if time.Since(began) > maxPause {
			pause = minPause // it had worked for a while
		}
		if clock.Sleep(c.w.n.Context(), clock.Jitter(pause)) != nil {
			continue // closed: the next session ends at once
		}
		pause = min(2*pause, maxPause)
	}
}

// client is that of the connection's server.
func (c *connection) client() any {
	if c.route.Shard != nil {
		return c.route.Shard
	}
	return c.w.n.Client()
}

// lost notes that no topic is live any more, and tells those who wait for a first
// confirmation, unless the next session is likely to do better.
func (c *connection) lost(err error, retrying bool) {
	w := c.w
	w.n.Remap(c.route, err)
	retrying = retrying || redisconn.Moved(err)
	if !w.plain.Load() && redis.HasErrorPrefix(err, "unknown command") {
		w.plain.Store(true) // a Cluster before 7.0: without shard channels
		retrying = true
	}
	fail := redisconn.Failed("subscribe", c.route.Addr, err)
	fail.Unknown = false // whatever the server did, it is undone with the connection
	w.mu.Lock()
	defer w.mu.Unlock()
	for t := range c.topics {
		t.unconfirmed()
		if !retrying {
			t.confirmation.err = fail
			close(t.confirmation.known)
			t.confirmation = newOutcome()
		}
	}
}

// session is the life of one connection. It returns nil when there are no topics left or the Node
// was closed.
//
// go-redis would make the connection again by itself, but would not say so, and on a Cluster it
// subscribes to channels of different slots in one command, which is an error. So a connection that
// fails is closed, and the next one begins from nothing.
func (c *connection) session() error {
	ctx, cancel := context.WithCancel(c.w.n.Context())
	sub := c.w.n.Client().Subscribe(ctx) // connects with the first channel
	broken := make(chan error, 1)        // why reading ended
	var reader sync.WaitGroup
	reading := false
	defer func() {
		cancel()
		_ = sub.Close()
		reader.Wait()
	}()
	c.begin()
	var pinged time.Time
	for {
		if c.w.n.Context().Err() != nil {
			return nil
		}
		plan := c.plan()
		if plan.over {
			return nil
		}
		if err := c.carryOut(ctx, sub, plan); err != nil {
			return err
		}
		if !reading { // not before the first channel, which on a Cluster decides where the connection leads
			reading = true
			c.heard.Store(int64(time.Since(began)))
			reader.Go(func() {
				broken <- redisconn.Recovered(func() error { return c.read(ctx, sub) })
			})
		}
		if plan.more {
			continue
		}
		select {
		case <-c.kicked:
		case <-time.After(min(c.w.opts.Linger, c.w.opts.Silence)):
		case <-c.w.n.Context().Done():
		case err := <-broken:
			return err
		}
		switch last := c.lastHeard(); {
		case last.Before(pinged): // no answer yet
			if time.Since(pinged) >= c.w.opts.Silence {
				return errSilent
			}
		case time.Since(last) >= c.w.opts.Silence:
			pinged = time.Now()
			if err := sub.Ping(ctx); err != nil {
				return err
			}
		}
	}
}

var errSilent = errors.New("the subscription connection gives no sign of life")

// begin has all topics subscribed anew.
func (c *connection) begin() {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.fresh = nil
	for t := range c.topics {
		t.asked = false
		c.fresh = append(c.fresh, t)
	}
}

// plan is what a session has to do next.
type plan struct {
	add  []string
	drop []string
	more bool // that is not all
	over bool // there are no topics: the connection is no more
}

// maxAdd bounds how many channels are subscribed to before answers are read: a
// client may wait for a hundred thousand names.
const maxAdd = 1000

// plan takes topics that are not subscribed to, and now and then ends those that
// nobody has waited for in a while.
func (c *connection) plan() (p plan) {
	w := c.w
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(c.fresh) > 0 && len(p.add) < maxAdd {
		t := c.fresh[0]
		c.fresh = c.fresh[1:]
		if _, here := c.topics[t]; here && !t.asked && !c.gone(t) {
			t.asked = true
			p.add = append(p.add, t.channel)
		}
	}
	p.more = len(c.fresh) > 0
	if now := time.Now(); now.Sub(c.swept) >= w.opts.Linger {
		c.swept = now
		for t := range c.topics {
			if len(t.waiters) == 0 && now.Sub(t.idle) >= w.opts.Linger {
				delete(c.topics, t)
				delete(w.topics, t.channel)
				if t.asked {
					p.drop = append(p.drop, t.channel)
				}
			}
		}
	}
	if len(c.topics) == 0 {
		delete(w.connections, c.route.Shard)
		p.over = true
	}
	return p
}

// gone hands a topic to another connection if its slot now belongs to another shard. The caller
// holds Wakes.mu.
func (c *connection) gone(t *topic) bool {
	if c.route.Shard == nil {
		return false
	}
	r, err := c.w.n.Route(c.w.n.Context(), t.name)
	if err != nil || r.Shard == c.route.Shard {
		return false
	}
	delete(c.topics, t)
	return c.w.attach(t, r)
}

// carryOut sends what a plan says. First new channels, since somebody waits for those.
func (c *connection) carryOut(ctx context.Context, sub *redis.PubSub, p plan) error {
	if c.w.plain.Load() {
		if len(p.add) > 0 {
			if err := sub.Subscribe(ctx, p.add...); err != nil {
				return err
			}
		}
		if len(p.drop) > 0 {
			return sub.Unsubscribe(ctx, p.drop...)
		}
		return nil
	}
	// One by one: shard channels of one command must be of one slot.
	for _, channel := range p.add {
		if err := sub.SSubscribe(ctx, channel); err != nil {
			return err
		}
	}
	for _, channel := range p.drop {
		if err := sub.SUnsubscribe(ctx, channel); err != nil {
			return err
		}
	}
	return nil
}

// read ends with an error.
func (c *connection) read(ctx context.Context, sub *redis.PubSub) error {
	w := c.w
	for {
		message, err := sub.Receive(ctx)
		if err != nil {
			return err
		}
		c.heard.Store(int64(time.Since(began)))
		switch m := message.(type) {
		case *redis.Message:
			w.message(m.Channel, m.Payload)
		case *redis.Subscription:
			switch m.Kind {
			case "subscribe", "ssubscribe":
				w.confirmed(m.Channel)
			case "sunsubscribe":
				w.unsubscribed(m.Channel)
			}
		}
	}
}
