package redisconn

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// A caller alone goes to the driver in its own goroutine. Handing its request to
// another and being woken by it costs 10 to 20 µs, where the round trip itself
// takes 15 to 60.
//
// The driver cannot be interrupted there, and does not look at a context once it
// has written. So that the caller returns in time all the same (R8), this goes
// through a copy of the client, on the same connections, whose timeouts are
// short; only where answers have lately come much faster than that; and not if
// the context's deadline or the call's limit is nearer. A request that is not
// answered in that time ends with ErrSilent.
const (
	// shortTime is how long a caller may be kept from noticing that its context has ended.
	shortTime = 50 * time.Millisecond
	// quickTime is what an answer may take to count as quick.
	quickTime = shortTime / 10
	// quickEnough is how many quick answers in a row it takes to go alone.
	quickEnough = 3
	// slowPenalty is how many more it takes after an answer that did not come in time.
	slowPenalty = 100
)

// verdict is what came of a call that went alone.
type verdict int

const (
	answered  verdict = iota // there is a reply, or an error that is the caller's to see
	tooSlow                  // no answer yet: the request may have been carried out, or may yet be
	elsewhere                // ask again through the queue, whose driver knows better where
)

// mayGoAlone reports whether c can be sent by its caller itself. The caller
// holds mu.
func (b *batcher) mayGoAlone(ctx context.Context, c *Call) bool {
	if b.direct == nil || c.again || b.closed || b.timeout <= shortTime || b.busy > 0 ||
		b.quick < quickEnough || c.Limit != 0 && c.Limit <= shortTime {
		return false
	}
	c.sent = time.Now()
	deadline, ok := ctx.Deadline()
	return !ok || deadline.Sub(c.sent) > shortTime
}

// goAlone has the calling goroutine itself take c to the server, and reports
// whether that was all. The caller holds mu, goAlone lets go of it.
func (b *batcher) goAlone(ctx context.Context, c *Call) bool {
	b.busy++
	b.alone++
	b.mu.Unlock()
	v := b.direct(ctx, c)
	c.repeated = v == elsewhere && HungUp(c.cause)

	b.mu.Lock()
	defer b.mu.Unlock()
	b.busy--
	b.alone--
	b.timed(time.Since(c.sent), v == answered)
	switch {
	case v == tooSlow:
		b.quick = -slowPenalty
		c.err = &Error{Err: ErrSilent, Unknown: true}
	case c.cause != nil && ctx.Err() != nil:
		c.err = &Error{Err: ctx.Err(), Unknown: classify(c.cause).unknown}
		return true
	}
	b.startSoon(time.Now())
	return v != elsewhere
}

// timed keeps account of how fast answers come. The caller holds mu.
func (b *batcher) timed(took time.Duration, answered bool) {
	if answered {
		b.usual += (min(took, maxUsual) - b.usual) / 8
	}
	if took < quickTime {
		b.quick++
	} else {
		b.quick = min(b.quick, 0)
	}
}

// directly returns the direct function of a batcher to the server of client. On a
// Cluster that is the server of one shard, which cannot follow redirections; the
// queue's driver can.
func directly(client *redis.Client, shard bool) func(ctx context.Context, c *Call) verdict {
	short := client.WithTimeout(shortTime)
	return func(ctx context.Context, c *Call) verdict {
		cmd := together(c)
		err := Recovered(func() error { return short.Process(ctx, cmd) })
		c.reply, c.cause = cmd.Val(), err
		switch {
		case err == nil:
			return answered
		case timedOut(err):
			return tooSlow
		case !c.script.Strict && IsNoScript(err):
			c.inFull = true
			return elsewhere
		case shard && !classify(err).unknown, ofConnection(err):
			return elsewhere
		}
		return answered
	}
}

// timedOut reports a timeout that left the outcome open: not one of dialling or
// of waiting for a connection.
func timedOut(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout() && classify(err).unknown
}
