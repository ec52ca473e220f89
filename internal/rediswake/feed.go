package rediswake

import (
	"context"
	"errors"
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

	topics map[*topic]struct{} // guarded by Wakes.mu
}

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
	for {
		began := time.Now()
		err := f.session()
		if err == nil {
			return
		}
		f.lost(err)
		if time.Since(began) > maxPause {
			pause = minPause // it had worked for a while
		}
		if clock.Sleep(f.w.n.Context(), clock.Jitter(pause)) != nil {
			continue // closed: the next session ends at once
		}
		pause = min(2*pause, maxPause)
	}
}

// lost notes that no topic is live any more, and tells those who wait for a first confirmation, unless
// the next session will do better.
func (f *feed) lost(err error) {
	w := f.w
	w.n.Remap(f.route, err)
	hopeful := redisconn.Moved(err)
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
	in := &inbox{feed: f, sub: sub, broken: make(chan error, 1)}
	defer func() {
		cancel()
		_ = sub.Close()
		in.wait()
	}()
	asked := map[*topic]struct{}{} // subscribed in this session, perhaps not yet confirmed
	var pinged time.Time
	for {
		if f.w.n.Context().Err() != nil {
			return nil
		}
		plan := f.plan(asked)
		if plan.over {
			return nil
		}
		if err := f.carryOut(ctx, sub, plan); err != nil {
			return err
		}
		in.start(ctx)

		wait := time.Until(plan.next)
		select {
		case <-f.kicked:
		case <-time.After(wait):
		case <-f.w.n.Context().Done():
		case err := <-in.broken:
			return err
		}
		switch last := in.lastHeard(); {
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

// plan is what a session has to do next.
type plan struct {
	add  []string
	drop []string
	next time.Time // when to look again
	over bool      // there are no topics: the feed is no more
}

// plan compares the topics with what was asked for, and ends those that nobody has waited for in a while.
func (f *feed) plan(asked map[*topic]struct{}) plan {
	w := f.w
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	p := plan{next: now.Add(min(w.opts.Silence, w.opts.Linger))}
	for t := range f.topics {
		_, was := asked[t]
		if t.expelled {
			t.dead()
			delete(asked, t)
			was = false
		}
		switch {
		case len(t.waiters) == 0 && now.Sub(t.idle) >= w.opts.Linger:
			delete(f.topics, t)
			delete(w.topics, t.channel)
			if was {
				delete(asked, t)
				p.drop = append(p.drop, t.channel)
			}
		case was:
		case f.gone(t):
			// plan of the other feed does the rest
		default:
			asked[t] = struct{}{}
			p.add = append(p.add, t.channel)
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
