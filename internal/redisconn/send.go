package redisconn

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// send gives a batch to the driver, and returns when every cmd in it has its
// reply or error.
func (l *lane) send(batch []*Call) {
	// What has to be sent once more did nothing, but is not for callers that have
	// left: they were told that the outcome is unknown, and may be taking back.
	if alone := l.wanted(transmit(l.ctx, l.driver, pack(batch))); len(alone) > 0 {
		transmit(l.ctx, l.driver, singly(alone))
	}
	var unread []*Call
	for _, c := range batch {
		if !c.script.Strict && IsNoScript(c.cmd.Err()) {
			unread = append(unread, c)
		}
	}
	if unread = l.wanted(unread); len(unread) > 0 {
		introduce(unread)
		transmit(l.ctx, l.driver, pack(unread))
	}
}

// introduce gives calls the texts of their scripts, which the server has
// forgotten (a restart, SCRIPT FLUSH): the first of each script where they all
// go to one server, which knows it by the second.
func introduce(unread []*Call) {
	sent := make(map[*Script]bool, 2)
	for _, c := range unread {
		if c.script.args > 0 && sent[c.script] {
			c.cmd = c.script.again(c.cmd)
			continue
		}
		sent[c.script] = true
		c.cmd = c.script.inFull(c.cmd)
	}
}

// transmit has the driver send parcels and read the answers, and hands these
// out. The errors are in the commands. It returns the calls of shared scripts
// that were refused.
func transmit(ctx context.Context, d driver, parcels []parcel) (alone []*Call) {
	sendParcels(ctx, d, parcels)
	for _, p := range parcels {
		if !p.deliver() {
			alone = append(alone, p.calls...)
		}
	}
	return alone
}

// sendParcels sends parcels whose calls all wait for as many replicas.
func sendParcels(ctx context.Context, d driver, parcels []parcel) {
	like := parcels[0].calls[0]
	// Alone, a Cluster's client would first ask for the list of all commands,
	// which a user may not be allowed to; in a pipeline it takes our word for
	// where the keys are.
	_, cluster := d.(*redis.ClusterClient)
	if len(parcels) == 1 && like.Replicas == 0 && !cluster {
		_ = d.Process(ctx, parcels[0].cmd)
		return
	}
	pipe := d.Pipeline()
	for _, p := range parcels {
		_ = pipe.Process(ctx, p.cmd)
	}
	var wait *redis.IntCmd
	if like.Replicas > 0 {
		// WAIT speaks for all that its own connection has written, and a pipeline is one connection.
		wait = redis.NewIntCmd(ctx, "wait", like.Replicas, like.ReplicaTimeout.Milliseconds())
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
			c.Acked, c.WaitErr = int(wait.Val()), wait.Err()
		}
	}
}

// Milliseconds rounds up: a lock that the server keeps a little longer than its
// holder believes is safe, the opposite is not.
func Milliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
