package redisnode

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// A caller alone goes to the driver in its own goroutine. Handing its request to another and being woken by it costs 10 to 20 µs, where the
// round trip itself takes 15 to 60.
//
// The driver cannot be interrupted there, and does not look at a context once it has written. So that the caller returns in time all the same (R8),
// this goes through a copy of the client, on the same connections, whose time-outs are short; only where answers have lately come much faster than that;
// and not if the context's deadline or the Node's own timeout is nearer. An answer that does not come in that time is asked for again through the queue, where callers can leave.
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
	answered  verdict = iota // cmd has a reply, or an error that is the caller's to see
	tooSlow                  // no answer yet: the request may have been carried out, or may yet be
	elsewhere                // certainly not carried out: ask again through the queue, whose driver knows better where
)

// mayGoAlone reports whether c can be sent by its caller itself. The caller holds mu.
func (l *lane) mayGoAlone(ctx context.Context, c *call) bool {
	if l.direct == nil || l.timeout <= shortTime || l.busy > 0 || l.quick < quickEnough {
		return false
	}
	deadline, ok := ctx.Deadline()
	return !ok || deadline.Sub(c.since) > shortTime
}

// goAlone has the calling goroutine itself take c to the server, and reports whether that was all. The caller holds mu, goAlone lets go of it.
func (l *lane) goAlone(ctx context.Context, c *call) bool {
	l.busy++
	l.mu.Unlock()
	v := l.direct(ctx, c)
	took := time.Since(c.since)

	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy--
	l.timed(took)
	if v == tooSlow {
		l.quick = -slowPenalty
		c.resent = true
	}
	if l.queue.head != nil && l.busy < eagerFlights && !l.closed {
		l.takeOff()
	}
	return v == answered
}

// timed keeps account of how fast answers come. The caller holds mu.
func (l *lane) timed(took time.Duration) {
	if took < quickTime {
		l.quick++
	} else {
		l.quick = min(l.quick, 0)
	}
}

// directly returns the direct function of a lane to the server of c. On a Cluster that is the server of one shard, which cannot follow
// redirections; the queue's driver can.
func directly(client *redis.Client, shard bool) func(ctx context.Context, c *call) verdict {
	short := client.WithTimeout(shortTime)
	return func(ctx context.Context, c *call) verdict {
		err := short.Process(ctx, c.cmd)
		switch {
		case err == nil:
			return answered
		case timedOut(err):
			c.cmd = c.script.again(c.cmd, c.final)
			return tooSlow
		case !c.script.strict && isNoScript(err):
			c.cmd = c.script.inFull(c.cmd)
			return elsewhere
		case shard && !classify(err).unknown:
			c.cmd = c.script.again(c.cmd, nil)
			return elsewhere
		}
		return answered
	}
}

// timedOut reports a time-out that left the outcome open: not one of dialling or of waiting for a connection.
func timedOut(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout() && classify(err).unknown
}
