package rediswake

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// inbox reads what one subscription connection brings.
type inbox struct {
	feed   *feed
	sub    *redis.PubSub
	broken chan error // capacity 1: why reading ended

	started time.Time // zero: not yet
	reader  sync.WaitGroup
	heard   atomic.Int64 // when something came last, as a time.Duration after started: no step of the wall clock matters
}

// start begins to read. It is called when the connection has its first channel, for on a Cluster that decides where it leads.
func (in *inbox) start(ctx context.Context) {
	if !in.started.IsZero() {
		return
	}
	in.started = time.Now()
	in.reader.Go(func() { in.broken <- in.read(ctx) })
}

// wait returns when the reader has ended, which closing the connection makes it do.
func (in *inbox) wait() { in.reader.Wait() }

// lastHeard is when something came last.
func (in *inbox) lastHeard() time.Time { return in.started.Add(time.Duration(in.heard.Load())) }

// read ends with an error. The driver panics at pushes that no Redis sends, such
// as an empty one: that is a broken connection like any other.
func (in *inbox) read(ctx context.Context) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("a message that is none: %v", p)
		}
	}()
	w := in.feed.w
	for {
		message, err := in.sub.Receive(ctx)
		if err != nil {
			return err
		}
		in.heard.Store(int64(time.Since(in.started)))
		switch m := message.(type) {
		case *redis.Message:
			w.wake(m.Channel)
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
