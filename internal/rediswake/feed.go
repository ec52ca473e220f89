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

// feed is one subscription connection, and the goroutine that keeps it.
type feed struct {
	w      *Wakes
	route  *redisconn.Route
	kicked chan struct{} // there may be something to do

	// Guarded by Wakes.mu.
	topics map[*topic]struct{}
	fresh  []*topic  // to be subscribed in this session; some may have left since
	swept  time.Time // when those that nobody waits for were last looked for

	heard atomic.Int64 // when something came last, as a time.Duration after began: no step of the wall clock matters
}

var began = time.Now()

// lastHeard is when something came last.
func (f *feed) lastHeard() time.Time { return began.Add(time.Duration(f.heard.Load())) }

// The pause after a connection was lost: it doubles from the first to the second, with jitter.
const minPause, maxPause = 50 * time.Millisecond, time.Second

func (f *feed) kick() {
	select {
	case f.kicked <- struct{}{}:
	default:
	}
}

// run keeps a connection for as long as there are topics.
func (f *feed) run() {
	pause := minPause
	var retry *redisconn.Retry
	for {
		began := time.Now()
		err := redisconn.Recovered(f.session)
		if err == nil {
			return
		}
		if retry == nil || time.Since(began) > maxPause {
			retry = redisconn.NewRetry(f.client())
		}
		f.lost(err, retry.Worth(err))
		if time.Since(began) > maxPause {
			pause = minPause // it had worked for a while
		}
		if clock.Sleep(f.w.n.Context(), clock.Jitter(pause)) != nil {
			continue // closed: the next session ends at once
		}
		pause = min(2*pause, maxPause)
	}
}

// client is that of the feed's server.
func (f *feed) client() any {
	if f.route.Shard != nil {
		return f.route.Shard
	}
	return f.w.n.Client()
}

// lost notes that no topic is live any more, and tells those who wait for a first
// confirmation, unless the next session is likely to do better.
func (f *feed) lost(err error, hopeful bool) {
	w := f.w
	w.n.Remap(f.route, err)
	hopeful = hopeful || redisconn.Moved(err)
	if !w.plain.Load() && redis.HasErrorPrefix(err, "unknown command") {
		w.plain.Store(true) // a Cluster before 7.0: without shard channels
		hopeful = true
	}
	fail := redisconn.Failed("subscribe", f.route.Addr, err)
	fail.Unknown = false // whatever the server did, it is undone with the connection
	w.mu.Lock()
	defer w.mu.Unlock()
	for t := range f.topics {
		t.dead()
		if !hopeful {
			t.hope.err = fail
			close(t.hope.known)
			t.hope = newOutcome()
		}
	}
}

// session is the life of one connection. It returns nil when there are no topics left or the Node was closed.
//
// go-redis would make the connection again by itself, but would not say so, and on a Cluster it subscribes to channels of different slots
// in one command, which is an error. So a connection that fails is closed, and the next one begins from nothing.
func (f *feed) session() error {
	ctx, cancel := context.WithCancel(f.w.n.Context())
	sub := f.w.n.Client().Subscribe(ctx) // connects with the first channel
	broken := make(chan error, 1)        // why reading ended
	var reader sync.WaitGroup
	reading := false
	defer func() {
		cancel()
		_ = sub.Close()
		reader.Wait()
	}()
	f.begin()
	var pinged time.Time
	for {
		if f.w.n.Context().Err() != nil {
			return nil
		}
		plan := f.plan()
		if plan.over {
			return nil
		}
		if err := f.carryOut(ctx, sub, plan); err != nil {
			return err
		}
		if !reading { // not before the first channel, which on a Cluster decides where the connection leads
			reading = true
			f.heard.Store(int64(time.Since(began)))
			reader.Go(func() {
				broken <- redisconn.Recovered(func() error { return f.read(ctx, sub) })
			})
		}
		if plan.more {
			continue
		}
		select {
		case <-f.kicked:
		case <-time.After(min(f.w.opts.Linger, f.w.opts.Silence)):
		case <-f.w.n.Context().Done():
		case err := <-broken:
			return err
		}
		switch last := f.lastHeard(); {
		case last.Before(pinged): // no answer yet
			if time.Since(pinged) >= f.w.opts.Silence {
				return errSilent
			}
		case time.Since(last) >= f.w.opts.Silence:
			pinged = time.Now()
			if err := sub.Ping(ctx); err != nil {
				return err
			}
		}
	}
}

var errSilent = errors.New("the subscription connection gives no sign of life")

// begin has all topics subscribed anew.
func (f *feed) begin() {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	f.fresh = nil
	for t := range f.topics {
		t.asked = false
		f.fresh = append(f.fresh, t)
	}
}

// plan is what a session has to do next.
type plan struct {
	add  []string
	drop []string
	more bool // that is not all
	over bool // there are no topics: the feed is no more
}

// maxAdd bounds how many channels are subscribed to before answers are read: a
// client may wait for a hundred thousand names.
const maxAdd = 1000

// plan takes topics that are not subscribed to, and now and then ends those that
// nobody has waited for in a while.
func (f *feed) plan() (p plan) {
	w := f.w
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(f.fresh) > 0 && len(p.add) < maxAdd {
		t := f.fresh[0]
		f.fresh = f.fresh[1:]
		if _, here := f.topics[t]; here && !t.asked && !f.gone(t) {
			t.asked = true
			p.add = append(p.add, t.channel)
		}
	}
	p.more = len(f.fresh) > 0
	if now := time.Now(); now.Sub(f.swept) >= w.opts.Linger {
		f.swept = now
		for t := range f.topics {
			if len(t.waiters) == 0 && now.Sub(t.idle) >= w.opts.Linger {
				delete(f.topics, t)
				delete(w.topics, t.channel)
				if t.asked {
					p.drop = append(p.drop, t.channel)
				}
			}
		}
	}
	if len(f.topics) == 0 {
		delete(w.feeds, f.route.Shard)
		p.over = true
	}
	return p
}

// gone hands a topic to another feed if its slot now belongs to another shard. The caller holds Wakes.mu.
func (f *feed) gone(t *topic) bool {
	if f.route.Shard == nil {
		return false
	}
	r, err := f.w.n.Route(f.w.n.Context(), t.name)
	if err != nil || r.Shard == f.route.Shard {
		return false
	}
	delete(f.topics, t)
	return f.w.attach(t, r)
}

// carryOut sends what a plan says. First new channels, since somebody waits for those.
func (f *feed) carryOut(ctx context.Context, sub *redis.PubSub, p plan) error {
	if f.w.plain.Load() {
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
func (f *feed) read(ctx context.Context, sub *redis.PubSub) error {
	w := f.w
	for {
		message, err := sub.Receive(ctx)
		if err != nil {
			return err
		}
		f.heard.Store(int64(time.Since(began)))
		switch m := message.(type) {
		case *redis.Message:
			w.told(m.Channel, m.Payload)
		case *redis.Subscription:
			switch m.Kind {
			case "subscribe", "ssubscribe":
				w.confirmed(m.Channel)
			case "sunsubscribe":
				w.expelled(m.Channel)
			}
		}
	}
}
