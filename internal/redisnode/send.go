package redisnode

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// driver is the part of a go-redis client that flights need.
type driver interface {
	Process(ctx context.Context, cmd redis.Cmder) error
	Pipeline() redis.Pipeliner
}

// sending returns the send function of a lane.
func sending(d driver) func(l *lane, batch []*call) {
	return func(l *lane, batch []*call) {
		transmit(l.ctx, d, batch)
		var unread []*call
		for _, c := range batch {
			if !c.script.strict && isNoScript(c.cmd.Err()) {
				unread = append(unread, c)
			}
		}
		if unread == nil {
			return
		}
		// The server has forgotten its scripts (a restart, SCRIPT FLUSH). It did nothing, so the texts go after, but not for callers who
		// have left: they were told that the outcome is unknown, and may be taking back already.
		unread = l.wanted(unread)
		for _, c := range unread {
			c.cmd = c.script.inFull(c.cmd)
		}
		transmit(l.ctx, d, unread)
	}
}

// transmit has the driver send a batch and read the answers. The errors are in the commands.
func transmit(ctx context.Context, d driver, batch []*call) {
	if len(batch) == 0 {
		return
	}
	replicas, waitFor := batch[0].replicas, batch[0].waitFor
	if len(batch) == 1 && replicas == 0 {
		_ = d.Process(ctx, batch[0].cmd)
		return
	}
	pipe := d.Pipeline()
	for _, c := range batch {
		_ = pipe.Process(ctx, c.cmd)
	}
	var wait *redis.IntCmd
	if replicas > 0 {
		// WAIT speaks for all that its own connection has written, and a pipeline is one connection.
		wait = redis.NewIntCmd(ctx, "wait", replicas, waitFor.Milliseconds())
		_ = pipe.Process(ctx, wait)
	}
	_, _ = pipe.Exec(ctx)
	if wait != nil {
		for _, c := range batch {
			c.acked, c.waitErr = int(wait.Val()), wait.Err()
		}
	}
}

// milliseconds rounds up: a lock that the server keeps a little longer than its holder believes is safe, the opposite is not.
func milliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
