package redisconn

import (
	"errors"
	"slices"
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
	grace       = 100 * time.Millisecond // at least: more for an answer that was on its way at the same time
	maxSlowest  = 500 * time.Millisecond // a batch that takes longer is slow by any measure
	probeEvery  = 50 * time.Millisecond
	probeTime   = 250 * time.Millisecond
	maxProbes   = 4
)

// trip is a batch that the driver has.
type trip struct {
	since      time.Time
	silentFrom time.Time // see heard; zero: nothing is known against its connection
	timer      *time.Timer
	due        time.Time // when the timer fires
}

// sent notes that the driver has calls from now on.
func (l *lane) sent(calls []*Call) *trip {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := &trip{since: time.Now()}
	wait := l.silence()
	for _, c := range calls {
		c.trip = t
		if c.Limit > 0 {
			wait = min(wait, c.Limit)
		}
	}
	t.due = t.since.Add(wait)
	t.timer = time.AfterFunc(wait, func() { l.look(t) })
	l.trips = append(l.trips, t)
	return t
}

// landed notes that the driver is done with a batch.
func (l *lane) landed(t *trip, answered bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t.timer.Stop()
	l.trips = slices.DeleteFunc(l.trips, func(other *trip) bool { return other == t })
	l.timed(time.Since(t.since), answered)
	if answered {
		l.heard(t.since)
	}
}

// silence is how long a batch may go without an answer before its connection is
// doubted. The caller holds mu.
func (l *lane) silence() time.Duration { return max(silentAfter, 2*l.slowest) }

// heard notes that what was sent at a time was answered: who was sent before and
// is not answered soon never will be. The caller holds mu.
func (l *lane) heard(sent time.Time) {
	for _, t := range l.trips {
		if t.silentFrom.IsZero() && t.since.Before(sent) {
			t.silentFrom = time.Now().Add(max(grace, l.slowest))
		}
	}
}

// look ends what has taken too long in a batch, and looks whether its connection is silent.
func (l *lane) look(t *trip) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	late := now.Sub(t.due) // where this very process was late, answers may be there and unread
	silentAt := t.since.Add(l.silence() + late)
	doubted := !now.Before(silentAt)
	silent := doubted && !t.silentFrom.IsZero() && !now.Before(t.silentFrom.Add(late))
	open, next := false, now.Add(l.n.timeout)
	l.Sweep(func(c *Call) error {
		if c.trip != t {
			return nil
		}
		limit := l.n.timeout
		if c.Limit > 0 {
			// Where there is much to do all answers take long, and none is missing (R21).
			limit = min(limit, max(c.Limit, 4*l.slowest))
		}
		end := t.since.Add(limit + late)
		switch {
		case !now.Before(end):
			return ErrTimeout
		case silent:
			return ErrSilent
		}
		open, next = true, earliest(next, end)
		return nil
	})
	switch {
	case !open:
		return
	case !doubted:
		next = earliest(next, silentAt)
	case t.silentFrom.IsZero():
		l.probe(now)
		next = earliest(next, l.probeAt)
	default:
		next = earliest(next, t.silentFrom)
	}
	t.due = next
	t.timer.Reset(max(time.Millisecond, next.Sub(now)))
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// probe asks the server for a sign of life, on whatever connection the driver
// takes. The caller holds mu.
func (l *lane) probe(now time.Time) {
	if now.Before(l.probeAt) {
		return
	}
	l.probeAt = now.Add(probeEvery)
	if l.probes >= maxProbes {
		return
	}
	l.probes++
	l.n.Go(func() {
		ping := command{redis.NewCmd(l.n.ctx, "ping")} // once: where a copy is lost, the next probe says more
		err := Recovered(func() error { return l.server.WithTimeout(probeTime).Process(l.n.ctx, ping) })
		var reply redis.Error
		l.mu.Lock()
		defer l.mu.Unlock()
		l.probes--
		if err == nil || errors.As(err, &reply) {
			l.heard(now)
		}
	})
}
