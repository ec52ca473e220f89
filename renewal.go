package locker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/golockers/locker/internal/clock"
)

// limit is when MaxHold ends the lease; zero: never.
func (l *Lease) limit() time.Time {
	if l.settings.maxHold == 0 {
		return time.Time{}
	}
	return l.start.Add(l.settings.maxHold - drift(l.settings.maxHold))
}

// overdue reports whether the deadline has passed. l.mu is held.
func (l *Lease) overdue(now time.Time) bool {
	return !l.until.IsZero() && clock.Passed(l.until, now)
}

// drift is the default allowance for the difference in speed of two clocks
// over d: 1 % + 2 ms, as in the Redlock description.
func drift(d time.Duration) time.Duration { return d/100 + 2*time.Millisecond }

// extend takes over what the service has granted. l.mu is held.
func (l *Lease) extend(v Validity, now time.Time) {
	limit := l.limit()
	until, expiry := limit, time.Time{}
	if v.TTL != 0 {
		expiry, until = v.Since.Add(v.TTL), v.Until()
		if !limit.IsZero() && limit.Before(until) {
			until = limit
		}
	}
	// Of two renewals whose answers overtook each other, both promises hold.
	if l.until.Before(until) {
		l.until, l.expiry = until, expiry
	}
	l.planRenewal(v, now)
	l.plan()
}

// planRenewal sets when to renew: a third of the validity from now, or half of
// what is left of it, if that is less; and under MaxHold never later than makes
// the lease last just up to the limit, nor again once it does (R19). l.mu is
// held.
func (l *Lease) planRenewal(v Validity, now time.Time) {
	l.renewAt = time.Time{}
	limit, span := l.limit(), l.settings.ttl
	wait := span / 3
	if v.TTL != 0 {
		left := l.until.Sub(now)
		if left <= 0 || !limit.IsZero() && !l.until.Before(limit) {
			return
		}
		span = v.Until().Sub(v.Since)
		if l.settings.minHold != 0 {
			// The grant's validity may count MinHold. Who breaks the lock is noticed
			// as soon as without it.
			span = min(span, l.settings.ttl)
		}
		// Less than that is left where the answer took its time, or was about a
		// session that was renewed some time ago.
		wait = min(span/3, max(left/2, minRenewal))
	}
	if l.settings.noRenew {
		return
	}
	// Jitter keeps leases that were taken together from being renewed in one
	// crowd; the grid makes those that are near each other share round trips.
	l.renewAt = l.client.schedule.onGrid(now.Add(wait-clock.UpTo(wait/10)), span/300)
	if v.TTL != 0 && !limit.IsZero() {
		// Not at once again and again, where a session that is shared moves on at
		// a pace of its own, and every answer is the same until it does.
		last := later(limit.Add(-span), now.Add(span/30))
		if last.Before(l.renewAt) {
			l.renewAt = last
		}
	}
}

// minRenewal is the shortest time from one renewal to the next.
const minRenewal = 5 * time.Millisecond

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// plan tells the schedule when this lease wants to be looked at next. It is
// called with l.mu held, so that an older plan never replaces a newer one.
func (l *Lease) plan() {
	if l.err != nil {
		return
	}
	at := l.until
	if !l.renewing && !l.renewAt.IsZero() && (at.IsZero() || l.renewAt.Before(at)) {
		at = l.renewAt
	}
	if !at.IsZero() {
		l.client.schedule.set(l, at)
	}
}

// due is called by the schedule.
func (l *Lease) due(now time.Time) (then func()) {
	l.mu.Lock()
	if l.err == nil && l.overdue(now) {
		l.mu.Unlock()
		return l.expire()
	}
	defer l.mu.Unlock()
	if l.err == nil && !l.renewing && !l.renewAt.IsZero() && !now.Before(l.renewAt) {
		l.renewing = true
		l.client.work.do(l.renewInBackground)
	}
	l.plan()
	return nil
}

// wallMoved is called by the schedule when the wall clock was stepped forward.
func (l *Lease) wallMoved(now time.Time) (then func()) {
	l.mu.Lock()
	late := l.err == nil && l.overdue(now)
	l.mu.Unlock()
	if late {
		return l.expire()
	}
	return nil
}

// renewInBackground makes one attempt and plans the next: a failure is not a
// loss, only the deadline is (R3).
func (l *Lease) renewInBackground() {
	l.mu.Lock()
	until, over := l.until, l.err != nil
	l.mu.Unlock()
	var err error
	if !over {
		// An attempt that hangs leaves time for another.
		ctx, cancel := context.WithTimeout(l.client.life, attemptTime(until, l.settings.ttl))
		err = l.renewOnce(ctx)
		cancel()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewing = false
	if err != nil && l.err == nil {
		l.renewAt = time.Now().Add(clock.Jitter(retryDelay(l.until, l.settings.ttl)))
	}
	l.plan()
}

// attemptTime is how long one renewal may take: half of what remains, so that
// one that hangs leaves time for others, and not so little that none succeeds.
func attemptTime(until time.Time, ttl time.Duration) time.Duration {
	if until.IsZero() {
		return ttl
	}
	remains := time.Until(until)
	return min(remains, max(remains/2, ttl/10))
}

// retryDelay is the pause after a renewal that failed.
func retryDelay(until time.Time, ttl time.Duration) time.Duration {
	if until.IsZero() {
		return ttl / 10
	}
	return min(max(time.Until(until)/8, minRenewal), ttl/10)
}

// renewOnce asks the service once and takes over its answer. The error is nil,
// or matches ErrLost if the lease is over, or is that of an unknown outcome.
func (l *Lease) renewOnce(ctx context.Context) error {
	began := time.Now()
	v, err := l.hold.Renew(ctx)
	if err == nil {
		err = v.check()
	}
	now := time.Now()
	l.renewed(now.Sub(began), err)
	if errors.Is(err, ErrLost) {
		l.lose(fmt.Errorf("the service does not have it any more: %w", err))()
		return l.Err()
	}
	if err != nil {
		return err
	}
	l.mu.Lock()
	if l.err == nil && !l.overdue(now) {
		l.extend(v, now)
	}
	l.mu.Unlock()
	return l.Err()
}
