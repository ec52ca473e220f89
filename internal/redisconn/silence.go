package redisconn

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// A connection can go silent while the server is well: a NAT or a load balancer
// has failed over, and what was in flight is never answered. A server can be
// busy for just as long, and then answers everybody a little later. The two are
// told apart by other connections: if what was sent later elsewhere is answered,
// the earlier connection is the silent one. Its requests end with ErrSilent, and
// its place is free for others (R22). Where nothing else is under way, a PING is
// sent, and again, until the server or the network is back.
const (
	silentAfter = 100 * time.Millisecond // nothing is done about a batch that is younger
	grace       = 100 * time.Millisecond // more for an answer that was on its way at the same time
	maxUsual    = 250 * time.Millisecond // a batch that takes longer is slow by any measure
	probeEvery  = 50 * time.Millisecond
	probeTime   = 250 * time.Millisecond
	maxProbes   = 4
)

// silence is how long a batch may go without an answer before its connection is
// doubted. The caller holds mu.
func (b *batcher) silence(batch *batch) time.Duration {
	return max(silentAfter, 2*b.usual) + batch.wait
}

// heard notes that what was sent at a time was answered: who was sent before and
// is not answered soon never will be. The caller holds mu.
func (b *batcher) heard(sent time.Time) {
	now := time.Now()
	for _, batch := range b.batches {
		if batch.silentFrom.IsZero() && batch.since.Before(sent) {
			batch.silentFrom = now.Add(max(grace, 2*b.usual))
			b.alarm.set(b.ticking, latest(batch.silentFrom, batch.since.Add(b.silence(batch))))
		}
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// tick ends what has taken too long, looks for silent connections, and starts a
// batch for requests that have waited too long for others.
func (b *batcher) tick() {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return
	}
	now := time.Now()
	// Where this very process was late, answers may be there and unread.
	late := b.alarm.rang(now)
	var ended []*Call
	for _, batch := range b.batches {
		if batch.given {
			continue
		}
		silentAt := batch.since.Add(b.silence(batch) + late)
		silent := !now.Before(silentAt)
		live := 0
		next := now.Add(b.timeout)
		for _, c := range batch.calls {
			if c == nil || c.state != underWay {
				continue
			}
			limit := b.timeout
			if c.Limit > 0 {
				// Where there is much to do all answers take long, and none is missing (R21).
				limit = min(limit, max(c.Limit, 4*b.usual))
			}
			end := batch.since.Add(limit + late)
			switch {
			case !now.Before(end):
				c.state, c.err = over, &Error{Err: ErrTimeout, Unknown: true}
			case silent && !batch.silentFrom.IsZero() && !now.Before(batch.silentFrom.Add(late)):
				c.state, c.err = over, &Error{Err: ErrSilent, Unknown: true}
			default:
				live++
				if end.Before(next) {
					next = end
				}
				continue
			}
			ended = append(ended, c)
		}
		switch {
		case live == 0 && (silent || len(ended) > 0):
			batch.given = true
			b.busy--
			continue
		case !silent:
			next = earliest(next, silentAt)
		case batch.silentFrom.IsZero():
			b.probe(now)
			next = earliest(next, b.probeAt)
		default:
			next = earliest(next, latest(batch.silentFrom, now.Add(time.Millisecond)))
		}
		b.alarm.set(b.ticking, next)
	}
	b.startSoon(now)
	b.mu.Unlock()
	tell(ended)
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// probe asks the server for a sign of life, on whatever connection the driver
// takes. The caller holds mu.
func (b *batcher) probe(now time.Time) {
	if now.Before(b.probeAt) {
		return
	}
	b.probeAt = now.Add(probeEvery)
	if b.probes >= maxProbes || b.ping == nil {
		return
	}
	b.probes++
	b.workers.Go(func() {
		err := Recovered(func() error { return b.ping(b.ctx) })
		var reply redis.Error
		b.mu.Lock()
		defer b.mu.Unlock()
		b.probes--
		if err == nil || errors.As(err, &reply) {
			b.heard(now)
		}
	})
}

// pinging returns the ping function of a batcher to the server of client.
func pinging(client redis.UniversalClient) func(context.Context) error {
	if c, ok := client.(*redis.Client); ok {
		client = c.WithTimeout(probeTime)
	}
	return func(ctx context.Context) error { return client.Ping(ctx).Err() }
}

// close ends all calls. It does not wait for the workers.
func (b *batcher) close() {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return
	}
	b.closed = true
	b.alarm.stop()
	var ended []*Call
	for c := b.queue.head; c != nil; c = b.queue.head {
		b.queue.remove(c)
		c.state, c.err = over, &Error{Err: ErrClosed}
		ended = append(ended, c)
	}
	for _, batch := range b.batches {
		for _, c := range batch.calls {
			if c != nil && c.state == underWay {
				c.state, c.err = over, &Error{Err: ErrClosed, Unknown: true}
				ended = append(ended, c)
			}
		}
	}
	b.mu.Unlock()
	tell(ended)
}

// alarm is a timer that is set to the earliest of many times, and rarely reset:
// one per batcher instead of one per request. It is guarded by the batcher's mutex.
type alarm struct {
	timer *time.Timer
	at    time.Time // zero: not set
}

// set has f called at t at the latest.
func (a *alarm) set(f func(), t time.Time) {
	if !a.at.IsZero() && !t.Before(a.at) {
		return
	}
	a.at = t
	if a.timer == nil {
		a.timer = time.AfterFunc(time.Until(t), f)
		return
	}
	a.timer.Reset(time.Until(t))
}

// rang notes that the timer has fired, and returns how late.
func (a *alarm) rang(now time.Time) (late time.Duration) {
	if !a.at.IsZero() {
		late = max(0, now.Sub(a.at))
	}
	a.at = time.Time{}
	return late
}

func (a *alarm) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}
