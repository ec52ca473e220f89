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
		sent := make(map[*script]bool, 2)
		for _, c := range unread {
			if c.script.bundle != nil && sent[c.script] {
				c.cmd = c.script.again(c.cmd, nil) // the server knows it by then
				continue
			}
			sent[c.script] = true
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
	parcels := pack(batch)
	sendParcels(ctx, d, parcels, batch[0])
	var alone []parcel
	for _, p := range parcels {
		alone = p.deliver(alone)
	}
	if alone != nil {
		sendParcels(ctx, d, alone, batch[0])
	}
}

// sendParcels sends parcels whose calls all wait for as many replicas as like does.
func sendParcels(ctx context.Context, d driver, parcels []parcel, like *call) {
	// Alone, a Cluster's client would first ask for the list of all commands, which a user may not be allowed to; in a pipeline it takes
	// our word for where the keys are.
	_, cluster := d.(*redis.ClusterClient)
	if len(parcels) == 1 && like.replicas == 0 && !cluster {
		_ = d.Process(ctx, parcels[0].cmd)
		return
	}
	pipe := d.Pipeline()
	for _, p := range parcels {
		_ = pipe.Process(ctx, p.cmd)
	}
	var wait *redis.IntCmd
	if like.replicas > 0 {
		// WAIT speaks for all that its own connection has written, and a pipeline is one connection.
		wait = redis.NewIntCmd(ctx, "wait", like.replicas, like.waitFor.Milliseconds())
		_ = pipe.Process(ctx, wait)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		// Where there was no connection to send them on, the driver does not tell the commands.
		for _, p := range parcels {
			if p.cmd.Err() == nil && p.cmd.Val() == nil {
				p.cmd.SetErr(err)
			}
		}
	}
	if wait == nil {
		return
	}
	for _, p := range parcels {
		for _, c := range p.calls {
			c.acked, c.waitErr = int(wait.Val()), wait.Err()
		}
	}
}

// milliseconds rounds up: a lock that the server keeps a little longer than its holder believes is safe, the opposite is not.
func milliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
