package redisnode

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/golockers/locker/internal/clock"
	"github.com/golockers/locker/internal/wake"
)

const (
	// linger is how long the subscription of a name outlives its last waiter, and the subscription connection
	// its last name, so that a busy name does not subscribe anew at every hand-over.
	linger = time.Second
	// silence is how long the subscription connection may be silent before it is asked for a sign of life, and
	// again how long it may take to give one: waiters are to cost the server next to nothing.
	silence = 5 * time.Second
)

// Wakes tell callers when a lock may have become free: package wake with one subscription connection for all names of
// a server (on a Cluster one per shard).
type Wakes struct {
	n     *Node
	me    string
	wakes *wake.Wakes

	mu    sync.Mutex
	later map[string]*time.Timer // of names whose last message was for another client
}

// Wakes returns the subscriptions of n. It does no I/O. A message that says me is for this client first; those who
// are not meant are woken by one only if nothing more is heard of the name for a moment. A message that says
// nothing is for everybody.
//
// A client with a name listens on a channel of its own beside each lock's, which tells the server whether it is there
// at all: see pass.lua of package single.
func (n *Node) Wakes(me string) *Wakes {
	if n.IsCluster() {
		me = "" // there are no turns
	}
	w := &Wakes{n: n, me: me, later: map[string]*time.Timer{}}
	w.wakes = wake.New(n.Context(), wake.Options{
		Route: func(ctx context.Context, name string) (any, error) {
			l, err := n.lane(ctx, name)
			if err != nil {
				err.Op = "subscribe"
				return nil, err
			}
			return l, nil
		},
		Open: w.open, Linger: linger, Pause: w.pause, Go: n.Go,
	})
	return w
}

// Subscribe has wake called whenever the lock may have become free: after its
// release, and after the subscription connection was lost and made again, since a
// message may have been lost meanwhile. It returns once the server has confirmed
// the subscription, so that a release from then on is certain to wake (as long as
// someone's request said that it waits), or when ctx or the Node's life ends. wake
// must not block. stop may be called more than once and never blocks.
//
// A wake-up is a help, not a promise (R14): the key can expire without a message,
// and a connection can be broken without anybody having noticed yet (that takes
// up to ten seconds). Poll as well.
func (w *Wakes) Subscribe(ctx context.Context, name string, wake func()) (stop func(), err error) {
	stop, err = w.wakes.Notify(ctx, name, wake)
	var known *Error
	if err != nil && !errors.As(err, &known) {
		err = &Error{Op: "subscribe", Addr: w.n.Addr, Err: err}
	}
	return stop, err
}

// Wake wakes those who wait here for the name.
func (w *Wakes) Wake(name string) { w.wakes.Wake(name) }

// The pause after a connection was lost: it doubles from the first to the second.
const minPause, maxPause = 50 * time.Millisecond, time.Second

func (w *Wakes) pause(_ any, err error, failed int) time.Duration {
	if c := w.n.cluster; c != nil && !redis.HasErrorPrefix(err, "NOPERM") {
		c.ReloadState(w.n.ctx) // the map of the Cluster may be out of date
	}
	return clock.BackOff(failed, minPause, maxPause)
}

// ear is one subscription connection. go-redis would make it again by itself, but would not say so, and on a
// Cluster it subscribes to channels of different slots in one command, which is an error. So one that fails
// is closed.
type ear struct {
	w   *Wakes
	sub *redis.PubSub
}

// open implements [wake.Options]. The driver connects with the first channel, which on a Cluster decides
// where the connection leads.
func (w *Wakes) open(ctx context.Context, _ any) (wake.Conn, error) {
	e := ear{w, w.n.Client().Subscribe(ctx)}
	context.AfterFunc(ctx, e.Close) // the driver waits for a message whatever ctx does
	return e, nil
}

// Close implements [wake.Conn].
func (e ear) Close() { _ = e.sub.Close() }

// Listen implements [wake.Listener].
func (e ear) Listen(ctx context.Context, names []string) error {
	return e.send(ctx, names, e.sub.Subscribe, e.sub.SSubscribe)
}

// Forget implements [wake.Listener].
func (e ear) Forget(ctx context.Context, names []string) error {
	return e.send(ctx, names, e.sub.Unsubscribe, e.sub.SUnsubscribe)
}

func (e ear) send(ctx context.Context, names []string,
	all, one func(context.Context, ...string) error) error {
	var channels []string
	for _, name := range names {
		if channel := WakeChannel(name); e.w.me == "" {
			channels = append(channels, channel)
		} else { // its own first: it is there by the time that Next hears of the other
			channels = append(channels, channel+":"+e.w.me, channel)
		}
	}
	return Recovered(func() error {
		if !e.w.n.IsCluster() {
			return all(ctx, channels...)
		}
		for _, channel := range channels { // shard channels of one command must be of one slot
			if err := one(ctx, channel); err != nil {
				return err
			}
		}
		return nil
	})
}

var errSilent = errors.New("the subscription connection gives no sign of life")

// Next implements [wake.Conn].
func (e ear) Next(ctx context.Context) (event wake.Event, err error) {
	for asked := false; ; {
		var message any
		err := Recovered(func() (err error) {
			message, err = e.sub.ReceiveTimeout(ctx, silence)
			return err
		})
		var late net.Error
		switch {
		case err == nil:
		case !errors.As(err, &late) || !late.Timeout() || ctx.Err() != nil:
			return wake.Event{}, err
		case asked:
			return wake.Event{}, errSilent
		default:
			asked = true
			if err := e.sub.Ping(ctx); err != nil {
				return wake.Event{}, err
			}
			continue
		}
		asked = false
		switch m := message.(type) {
		case *redis.Message:
			if name, all := nameOf(m.Channel); !all || e.w.mine(name, m.Payload) {
				return wake.Event{Name: name}, nil
			}
		case *redis.Subscription:
			name, all := nameOf(m.Channel)
			switch {
			case !all:
			case m.Kind == "subscribe", m.Kind == "ssubscribe":
				return wake.Event{Name: name, Kind: wake.Hears}, nil
			case m.Kind == "sunsubscribe": // by us, or by the server, since the slot has moved to another shard
				return wake.Event{Name: name, Kind: wake.Deaf}, nil
			}
		}
	}
}

// nameOf is the name of a channel, and whether that is for all clients.
func nameOf(channel string) (name string, all bool) {
	end := strings.LastIndex(channel, "}")
	name, _ = NameOf(channel[:end+1])
	return name, channel[end+1:] == wakeSuffix
}

// quietTime is how long a client asks for nothing after a release that is another client's: see pass.lua of
// package single. If the other has not come for the lock by then, the answer says for how long it is kept.
const quietTime = 10 * time.Millisecond

// mine reports whether a message to all is for everybody. If it is for another client, the name's waiters are woken a
// little later, in case that the other does not come for the lock. If it is for this one, they have been already.
func (w *Wakes) mine(name, whom string) bool {
	mine := whom == ""
	w.mu.Lock()
	defer w.mu.Unlock()
	timer := w.later[name]
	switch {
	case whom != "" && whom == w.me:
	case timer != nil && mine:
		timer.Stop()
		delete(w.later, name)
	case timer != nil:
		timer.Reset(quietTime)
	case !mine:
		w.later[name] = time.AfterFunc(quietTime, func() {
			w.mu.Lock()
			delete(w.later, name)
			w.mu.Unlock()
			w.wakes.Wake(name)
		})
	}
	return mine
}
