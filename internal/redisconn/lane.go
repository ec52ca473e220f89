package redisconn

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/golockers/locker/internal/batch"
	"github.com/golockers/locker/internal/clock"
)

// bounds are those of what is under way to one server. On a short link a batch is back before it counts as
// slow; on a long one, or where a connection hangs, one more starts then.
var bounds = batch.Options{Max: 512, Flights: 4, Most: 8, Slow: 2 * time.Millisecond, Patient: true}

// lane takes the calls to one server and back. Those of one moment share a batch: one pipeline, one round
// trip. It is not go-redis's AutoPipeline, which does not look at a command's context once that is queued
// (R8).
type lane struct {
	*batch.Batcher[*Call, result]
	n      *Conn
	driver sender
	server *redis.Client // the same server, without the way of a Cluster's client
	short  *redis.Client // for callers that are alone

	mu      sync.Mutex
	trips   []*trip       // all that the driver has
	quick   int           // how many came back quickly since the last that did not
	slowest time.Duration // the longest that a batch lately took to be answered
	probes  int
	probeAt time.Time // no probe before
}

// sender is the part of a go-redis client that batches need.
type sender interface {
	Process(ctx context.Context, cmd redis.Cmder) error
	Pipeline() redis.Pipeliner
}

// result is what became of a call.
type result struct {
	call     *Call
	value    any
	cause    error // the server's error, or the driver's
	repeated bool  // it was sent more than once: a copy may still be under way
	inFull   bool  // send the script's text: the server does not know it
	apart    bool  // it is not to share a script call: see deliver
}

func (n *Conn) newLane(d sender, server *redis.Client) *lane {
	l := &lane{n: n, driver: d, server: server, short: shortly(server)}
	l.Batcher = batch.New(n.ctx, bounds, nil, l.send)
	l.Alone = l.alone
	return l
}

// send implements the round trip of a [batch.Batcher]. The driver does not look at ctx, and is not to: it
// would give up connections that it is about to make.
func (l *lane) send(ctx context.Context, calls []*Call) ([]result, error) {
	defer func() {
		for _, c := range calls {
			c.through()
		}
	}()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx) // and not results without answers
	}
	t := l.sent(calls)
	results := make([]result, len(calls))
	open := make([]*result, len(calls))
	for i, c := range calls {
		results[i] = result{call: c, inFull: c.inFull}
		open[i] = &results[i]
	}
	retry := NewRetry(l.server)
	for refused := 0; ; {
		again, broken := transmit(l.n.ctx, l.driver, pack(open))
		if len(again) > 0 {
			refused++
		}
		if len(broken) > 0 && retry.Worth(broken[0].cause) {
			again = append(again, broken...)
		}
		for _, r := range again {
			r.repeated = r.repeated || HungUp(r.cause)
		}
		if open = again; len(open) == 0 || refused >= maxRefused || ctx.Err() != nil {
			break
		}
	}
	answered := false
	for i := range results {
		answered = answered || results[i].cause == nil
	}
	l.landed(t, answered)
	return results, nil
}

// maxRefused is how often calls are sent that the server refuses unseen: see deliver.
const maxRefused = 3

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

// shortly is c for callers that are alone. It obeys the context that they give it: a new connection takes
// several answers, and the command one more, each within the timeout.
func shortly(c *redis.Client) *redis.Client {
	c = c.WithTimeout(shortTime)
	c.Options().ContextTimeoutEnabled = true // WithTimeout has made the options its own
	return c
}

// alone is [batch.Batcher.Alone]. What the server refuses unseen goes by send, whose driver knows better
// where to send it: a Cluster's follows redirections.
func (l *lane) alone(ctx context.Context, c *Call) (result, bool) {
	began := time.Now()
	if !l.mayGoAlone(ctx, c, began) {
		return result{}, false
	}
	life := clock.Within(l.n.ctx, shortTime) // also for a place in the pool, a new connection, a question to Sentinels
	defer life.Cancel()
	var room struct { // one allocation for all
		result  result
		calls   [1]*result
		parcels [1]parcel
	}
	r := &room.result
	*r, room.calls[0] = result{call: c, inFull: c.inFull}, r
	room.parcels[0] = parcel{together(r), room.calls[:]}
	again, broken := transmit(life, l.short, room.parcels[:])
	unsent := r.cause == context.DeadlineExceeded //nolint:errorlint // the pool's own; what comes of the network is wrapped
	tooSlow := !unsent && r.cause != nil && timedOut(r.cause)
	l.mu.Lock()
	l.timed(time.Since(began), r.cause == nil)
	if tooSlow || unsent {
		l.quick = -slowPenalty
	}
	l.mu.Unlock()
	_, cluster := l.driver.(*redis.ClusterClient)
	switch {
	case unsent: // there was no connection in time: send waits for one, in another goroutine
		return result{}, false
	case tooSlow:
		r.cause = ErrSilent // the request may have been carried out, or may yet be
	case ctx.Err() != nil:
	case len(again) > 0, len(broken) > 0, r.cause != nil && cluster && !classify(r.cause).unknown:
		c.inFull, c.repeated = r.inFull, HungUp(r.cause)
		return result{}, false
	}
	c.through()
	return *r, true
}

// mayGoAlone reports whether c can be sent by its caller itself.
func (l *lane) mayGoAlone(ctx context.Context, c *Call, now time.Time) bool {
	if c.again || l.n.timeout <= shortTime || c.Limit != 0 && c.Limit <= shortTime {
		return false
	}
	if deadline, ok := ctx.Deadline(); ok && deadline.Sub(now) <= shortTime {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.quick >= quickEnough
}

// timed keeps account of how fast answers come. The slowest counts and not the mean: where this process
// has too little of a processor, a large batch takes many times as long as a small one. The caller holds mu.
func (l *lane) timed(took time.Duration, answered bool) {
	if answered {
		l.slowest = max(min(took, maxSlowest), l.slowest-l.slowest/16)
	}
	if took < quickTime {
		l.quick++
	} else {
		l.quick = min(l.quick, 0)
	}
}

// timedOut reports a timeout that left the outcome open: not one of dialling or
// of waiting for a connection.
func timedOut(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout() && classify(err).unknown
}
