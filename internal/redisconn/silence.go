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

// silence is how long f may go without an answer before its connection is
// doubted. The caller holds mu.
func (l *batcher) silence(f *batch) time.Duration { return max(silentAfter, 2*l.usual) + f.wait }

// heard notes that what was sent at a time was answered: who was sent before and
// is not answered soon never will be. The caller holds mu.
func (l *batcher) heard(sent time.Time) {
	now := time.Now()
	for _, f := range l.batches {
		if f.silentFrom.IsZero() && f.since.Before(sent) {
			f.silentFrom = now.Add(max(grace, 2*l.usual))
			l.alarm.set(l.ticking, latest(f.silentFrom, f.since.Add(l.silence(f))))
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
func (l *batcher) tick() {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return
	}
	now := time.Now()
	// Where this very process was late, answers may be there and unread.
	late := l.alarm.rang(now)
	var ended []*Call
	for _, f := range l.batches {
		if f.given {
			continue
		}
		silentAt := f.since.Add(l.silence(f) + late)
		silent := !now.Before(silentAt)
		live := 0
		next := now.Add(l.timeout)
		for _, c := range f.calls {
			if c == nil || c.state != underWay {
				continue
			}
			limit := l.timeout
			if c.Limit > 0 {
				// Where there is much to do all answers take long, and none is missing (R21).
				limit = min(limit, max(c.Limit, 4*l.usual))
			}
			end := f.since.Add(limit + late)
			switch {
			case !now.Before(end):
				c.state, c.err = over, &Error{Err: ErrTimeout, Unknown: true}
			case silent && !f.silentFrom.IsZero() && !now.Before(f.silentFrom.Add(late)):
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
			f.given = true
			l.busy--
			continue
		case !silent:
			next = earliest(next, silentAt)
		case f.silentFrom.IsZero():
			l.probe(now)
			next = earliest(next, l.probeAt)
		default:
			next = earliest(next, latest(f.silentFrom, now.Add(time.Millisecond)))
		}
		l.alarm.set(l.ticking, next)
	}
	l.startSoon(now)
	l.mu.Unlock()
	for _, c := range ended {
		c.tell()
	}
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// probe asks the server for a sign of life, on whatever connection the driver
// takes. The caller holds mu.
func (l *batcher) probe(now time.Time) {
	if now.Before(l.probeAt) {
		return
	}
	l.probeAt = now.Add(probeEvery)
	if l.probes >= maxProbes || l.ping == nil {
		return
	}
	l.probes++
	l.workers.Go(func() {
		err := l.ping(l.ctx)
		var reply redis.Error
		l.mu.Lock()
		defer l.mu.Unlock()
		l.probes--
		if err == nil || errors.As(err, &reply) {
			l.heard(now)
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
func (l *batcher) close() {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return
	}
	l.closed = true
	l.alarm.stop()
	var ended []*Call
	for c := l.queue.head; c != nil; c = l.queue.head {
		l.queue.remove(c)
		c.state, c.err = over, &Error{Err: ErrClosed}
		ended = append(ended, c)
	}
	for _, f := range l.batches {
		for _, c := range f.calls {
			if c != nil && c.state == underWay {
				c.state, c.err = over, &Error{Err: ErrClosed, Unknown: true}
				ended = append(ended, c)
			}
		}
	}
	l.mu.Unlock()
	for _, c := range ended {
		c.tell()
	}
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
