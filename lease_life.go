package locker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/golockers/locker/internal/clock"
)

// begin makes l of what was granted to cl. If the grant cannot be used, it is taken back, and the
// error says why.
func (l *Lease) begin(cl *call, g Grant, passed bool) error {
	err := l.client.lines.grant(cl, l, g, passed)
	if err != nil {
		l.takeBack(unused)
		return err
	}
	cl.lease = l
	return nil
}

// take checks the grant and starts the lease, which stands in ln.
func (l *Lease) take(ln *line, g Grant) error {
	if err := g.Validity.check(); err != nil {
		return &refusedError{err}
	}
	if g.Token > MaxToken {
		return fmt.Errorf("%w: backend %s gave token %d, and the highest is %d", ErrRefused,
			l.client.guarantees.Backend, g.Token, uint64(MaxToken))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil { // told before it was given out
		return fmt.Errorf("granted and at once gone again: %w", ErrUnavailable)
	}
	now := time.Now()
	l.token, l.session, l.start = g.Token, g.Session, now
	if g.Token != 0 {
		l.token += l.client.opts.TokenBase // cannot overflow: each is at most MaxToken
	}
	if l.extend(g.Validity, now); l.overdue(now) {
		l.err = ErrLost
		l.client.schedule.remove(l)
		return fmt.Errorf("granted, but its lease of %v is over since %v: the answer took too long: %w",
			g.Validity.TTL, now.Sub(l.until), ErrUnavailable)
	}
	l.line = ln
	return nil
}

// limit is the time when MaxHold ends the lease; zero: never.
func (l *Lease) limit() time.Time {
	if l.settings.maxHold == 0 {
		return time.Time{}
	}
	return l.start.Add(l.settings.maxHold - drift(l.settings.maxHold))
}

// overdue reports whether the deadline has passed. The caller holds l.mu.
func (l *Lease) overdue(now time.Time) bool {
	return !l.until.IsZero() && clock.Passed(l.until, now)
}

// drift is the default allowance for two clocks that run at different speeds over d:
// 1 % + 2 ms, as in the Redlock description.
func drift(d time.Duration) time.Duration { return d/100 + 2*time.Millisecond }

// extend takes over the validity that the service has granted. The caller holds l.mu.
func (l *Lease) extend(v Validity, now time.Time) {
	limit := l.limit()
	until, expiry := limit, time.Time{}
	if v.TTL != 0 {
		expiry, until = v.Since.Add(v.TTL), v.Until()
		if !limit.IsZero() && limit.Before(until) {
			until = limit
		}
	}
	// If the answers of two renewals overtook each other, both promises hold, so the
	// later end counts.
	if l.until.Before(until) {
		l.until, l.expiry = until, expiry
	}
	l.planRenewal(v, now)
	l.plan()
}

// planRenewal sets the time of the next renewal: a third of the validity from now, or
// half of the remaining validity if that is less. Under MaxHold, a last renewal makes
// the lease last just up to the limit, and no renewal follows it (R19). The caller
// holds l.mu.
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
		// Less is left if the answer was slow, or is about a session that was renewed
		// some time ago.
		wait = min(span/3, max(left/2, minRenewal))
	}
	if l.settings.noRenew {
		return
	}
	// Jitter keeps leases that were granted together from being renewed all at once;
	// the grid lets renewals that are close to each other share requests.
	// It is never in the past: a session that gives the same answer would be asked in a loop.
	l.renewAt = later(l.client.onGrid(now.Add(wait-clock.UpTo(wait/10)), span/300), now.Add(min(wait, minRenewal)))
	if v.TTL != 0 && !limit.IsZero() {
		// A shared session is renewed at its own pace, and every answer is the same
		// until then: so do not ask again at once.
		last := later(limit.Add(-span), now.Add(span/30))
		if last.Before(l.renewAt) {
			l.renewAt = last
		}
	}
}

// minRenewal is the shortest time between two renewals.
const minRenewal = 5 * time.Millisecond

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// plan sets the next event in the schedule: the end of the lease or, before it, a
// renewal. The caller holds l.mu, so that an older plan never replaces a newer one.
func (l *Lease) plan() {
	at := l.until
	if !l.renewing && !l.renewAt.IsZero() && (at.IsZero() || l.renewAt.Before(at)) {
		at = l.renewAt
	}
	if l.err == nil && !at.IsZero() {
		l.client.schedule.set(l, at)
	}
}

// due is called by the schedule, in a goroutine of its own. A renewal runs in that
// goroutine; meanwhile the schedule has the end of the lease.
func (l *Lease) due() {
	now := time.Now()
	l.mu.Lock()
	if l.err == nil && l.overdue(now) {
		l.mu.Unlock()
		l.expire()
		return
	}
	renew := l.err == nil && !l.renewing && !l.renewAt.IsZero() && !now.Before(l.renewAt)
	if renew {
		l.renewing = true
		l.client.renewing.add()
	}
	l.plan()
	until := l.until
	l.mu.Unlock()
	if renew {
		defer l.client.renewing.done()
		l.renewInTime(until)
	}
}

// renewInTime makes one attempt to renew and plans the next: a failure does not end
// the lease, only the deadline does (R3).
func (l *Lease) renewInTime(until time.Time) {
	// An attempt that hangs must leave time for another.
	ctx, cancel := context.WithTimeout(l.client.life, attemptTime(until, l.settings.ttl))
	err := l.renewOnce(ctx, l.client.life)
	cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewing = false
	if err != nil && l.err == nil {
		l.renewAt = time.Now().Add(clock.Jitter(retryDelay(l.until, l.settings.ttl)))
	}
	l.plan()
}

// attemptTime bounds one renewal: half of the remaining time, so that a renewal that
// hangs leaves time for others, but not so little that none can succeed.
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

// renewOnce asks the service once and takes over its answer. The error is nil, or
// matches ErrLost if the lease is over, or is that of an unknown outcome. If ctx has
// ended but the caller's context has not, the service was too slow.
func (l *Lease) renewOnce(ctx, caller context.Context) error {
	began := time.Now()
	v, err := l.hold.Renew(ctx)
	if err == nil {
		err = v.check()
	}
	err = fromBackend(caller, err)
	if over := l.ended(); errors.Is(over, ErrUnlocked) || errors.Is(over, ErrClosed) {
		return over // the release may have overtaken the renewal, which has not failed then
	}
	now := time.Now()
	l.renewed(now.Sub(began), err)
	if errors.Is(err, ErrLost) {
		l.lose(fmt.Errorf("the service does not have it any more: %w", err))
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

// goneByService is the function Lost of this lease's request.
func (l *Lease) goneByService() {
	l.lose(fmt.Errorf("the service told that it is gone: %w", ErrLost))
}

// expire ends a lease whose deadline has passed.
func (l *Lease) expire() {
	l.mu.Lock()
	until := l.until
	l.mu.Unlock()
	cause := fmt.Errorf("it could not be renewed before %v: %w", until.Format(time.RFC3339Nano), ErrLost)
	switch limit := l.limit(); {
	case !limit.IsZero() && !until.Before(limit):
		cause = fmt.Errorf("MaxHold of %v is reached: %w", l.settings.maxHold, ErrLost)
	case l.settings.noRenew:
		cause = fmt.Errorf("it was not renewed before %v: %w", until.Format(time.RFC3339Nano), ErrLost)
	}
	l.lose(cause)
}

// lose ends the lease with a cause that matches ErrLost.
func (l *Lease) lose(cause error) { l.finish(lost, l.fail("lease", cause)) }

// ended is why the lease is over, as far as it was noticed.
func (l *Lease) ended() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// finish ends the lease, whose Err is err from now on. It returns false if it was over
// before, or was not given out yet: it never will be then.
func (l *Lease) finish(why ending, err error) bool {
	l.mu.Lock()
	if l.err != nil || l.start.IsZero() {
		l.err = cmp.Or(l.err, err)
		l.mu.Unlock()
		return false
	}
	if why == lost { // Close waits until its take-back is arranged
		l.client.renewing.add()
		defer l.client.renewing.done()
	}
	l.err = err
	if l.done != nil {
		close(l.done)
	}
	ends := l.ends
	l.ends = nil
	l.client.schedule.remove(l)
	l.mu.Unlock()
	for end := range ends {
		(*end)(err)
	}
	if why == lost {
		defer l.leaveLine() // also if a function of Trace panics
		defer l.takeBack(lost)
		l.lost(err)
	}
	return true
}

// close ends the lease because its client is closed, and releases it.
func (l *Lease) close() {
	if l.finish(closed, ErrClosed) {
		l.client.renewing.run(func() { _ = l.release(context.Background()) })
	}
}
