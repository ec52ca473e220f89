package redisnode

import (
	"context"
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

	started bool
	reader  sync.WaitGroup
	heard   atomic.Int64 // when something came last, in Unix nanoseconds
}

// start begins to read. It is called when the connection has its first channel, for on a Cluster that decides where it leads.
func (in *inbox) start(ctx context.Context) {
	if in.started {
		return
	}
	in.started = true
	in.heard.Store(time.Now().UnixNano())
	in.reader.Go(func() { in.broken <- in.read(ctx) })
}

// wait returns when the reader has ended, which closing the connection makes it do.
func (in *inbox) wait() { in.reader.Wait() }

// silence is for how long nothing has come.
func (in *inbox) silence() time.Duration {
	return time.Since(time.Unix(0, in.heard.Load()))
}

func (in *inbox) read(ctx context.Context) error {
	w := in.feed.w
	for {
		message, err := in.sub.Receive(ctx)
		if err != nil {
			return err
		}
		in.heard.Store(time.Now().UnixNano())
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
