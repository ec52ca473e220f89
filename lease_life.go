package locker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/clock"
)

// begin checks the grant and starts the lease in ln.
func (l *Lease) begin(ln *line) error {
	g := l.grant
	if err := g.Check(); err != nil {
		return fmt.Errorf("%w: backend %s: %w", ErrRefused, l.client.guarantees.Backend, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil { // reported gone before it was given out
		return fmt.Errorf("granted, but gone at once: %w", ErrUnavailable)
	}
	now := time.Now()
	l.start = now
	if g.Validity.TTL == 0 {
		l.grant.Validity.Since = now // a backend without deadlines need not set it
	}
	if l.overdue(now) {
		l.start, l.err = time.Time{}, ErrLost
		return fmt.Errorf("granted, but its lease of %v ended %v ago: the answer took too long: %w",
			g.Validity.TTL, now.Sub(g.Validity.Until()), ErrUnavailable)
	}
	if g.Token != 0 {
		l.grant.Token += l.client.opts.TokenBase // cannot overflow: each is at most MaxToken
	}
	l.line = ln
	l.planRenewal(g.Validity, now)
	return nil
}

// limit is the time when MaxHold ends the lease; without MaxHold, it is later than any other end.
func (l *Lease) limit() time.Time {
	if l.settings.MaxHold == 0 {
		return l.start.Add(2 * clock.Century)
	}
	return l.start.Add(l.settings.MaxHold - driver.Drift(l.settings.MaxHold))
}

// until is the time until which the holder may act. The caller holds l.mu.
func (l *Lease) until() time.Time { return sooner(l.grant.Validity.Until(), l.limit()) }

// overdue reports whether the deadline has passed. The caller holds l.mu.
func (l *Lease) overdue(now time.Time) bool { return clock.Passed(l.until(), now) }

// planRenewal sets the time of the next renewal after the service has promised v: a third of the
// validity from now, or half of the remaining validity if that is less. Under MaxHold, the last renewal
// extends the lease exactly to the limit, and no renewal follows it (R19). The caller holds l.mu.
func (l *Lease) planRenewal(v driver.Validity, now time.Time) {
	defer l.plan()
	l.renewAt = time.Time{}
	limit, span := l.limit(), l.settings.TTL
	wait := span / 3
	if v.TTL != 0 {
		left := l.until().Sub(now)
		if !l.until().Before(limit) {
			return
		}
		span = v.Until().Sub(v.Since)
		// Less is left if the answer was slow, or concerns a session that was renewed some time ago.
		wait = min(span/3, max(left/2, minRenewal))
	}
	if l.settings.NoRenew {
		return
	}
	// Jitter keeps leases that were granted together from being renewed all at once. The time is never
	// in the past, or a session that keeps giving the same answer would be asked in a loop.
	l.renewAt = later(l.client.onGrid(now.Add(wait-clock.UpTo(wait/10)), span/300), now.Add(min(wait, minRenewal)))
	if v.TTL != 0 {
		// A shared session is renewed at its own pace, and answers the same until then: do not ask
		// again at once.
		l.renewAt = sooner(l.renewAt, later(limit.Add(-span), now.Add(span/30)))
	}
}

// minRenewal is the shortest time between two renewals.
const minRenewal = 5 * time.Millisecond

func sooner(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// plan schedules the next event: the end of the lease or, before it, a renewal. The caller holds l.mu,
// so that an older plan never replaces a newer one.
func (l *Lease) plan() {
	at := l.until()
	if !l.renewing && !l.renewAt.IsZero() && l.renewAt.Before(at) {
		at = l.renewAt
	}
	if l.err == nil {
		l.client.schedule.set(l, at)
	}
}

// due is called by the schedule, in a goroutine of its own: at the end of the lease, for a renewal
// (while the schedule holds the end), or for a take-back.
func (l *Lease) due() {
	if l.mayUndo() {
		l.client.busy.run(l.undo)
		return
	}
	if l.Err() != nil {
		return
	}
	now := time.Now()
	l.mu.Lock()
	renew := l.err == nil && !l.renewing && !l.renewAt.IsZero() && !now.Before(l.renewAt)
	remains := min(l.until().Sub(now), 2*cmp.Or(l.grant.Validity.TTL, l.settings.TTL))
	if renew {
		l.renewing = true
		l.client.busy.add()
	}
	l.plan()
	l.mu.Unlock()
	if !renew {
		return
	}
	defer l.client.busy.done()
	err := errEnded
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.renewing = false
		if err != nil && l.err == nil {
			pause := min(max(time.Until(l.until())/8, minRenewal), l.settings.TTL/10)
			l.renewAt = time.Now().Add(clock.Jitter(pause))
		}
		l.plan()
	}()
	// An attempt that hangs must leave time for others, but not so little that none can succeed. A failure
	// does not end the lease, only the deadline does (R3).
	ctx, cancel := context.WithTimeout(l.client.life, min(remains, max(remains/2, l.settings.TTL/10)))
	defer cancel()
	err = l.renewOnce(ctx, l.client.life)
}

// renewOnce sends one renewal and applies the answer. If ctx has ended but the caller's context has
// not, the service was too slow.
func (l *Lease) renewOnce(ctx, caller context.Context) (err error) {
	began := time.Now()
	v, err := l.grant.Hold.Renew(ctx)
	if err == nil {
		err = v.Check()
	}
	err = fromBackend(caller, err)
	if over := l.Err(); errors.Is(over, ErrUnlocked) || errors.Is(over, ErrClosed) {
		return over // the release may have overtaken the renewal, which then did not fail
	}
	if err != nil && !errors.Is(err, ErrLost) && l.client.isClosed() {
		return ErrClosed // Close has ended the request and is about to end the lease
	}
	now := time.Now()
	if err == nil {
		l.renewed(v, now) // before Trace is called: its function may read Until
	}
	defer func() { // even if a Trace function panics
		switch {
		case errors.Is(err, ErrLost):
			l.lose(fmt.Errorf("the service no longer has it: %w", err), here)
			err = l.Err()
		case err == nil:
			err = l.Err()
		}
	}()
	c := l.client
	l.fails(err)
	c.happened(l.values, c.trace.Renewed, l.told("renew", now, now.Sub(began), err), &c.stats.Renewed,
		&c.stats.RenewFailed, "")
	return err
}

// fails logs when renewals of the lease begin to fail, and when they succeed again. An outage affects
// many leases: its cause is logged with the first one only.
func (l *Lease) fails(err error) {
	c, change := l.client, int64(1)
	if err == nil {
		change = -1
	}
	l.mu.Lock()
	if l.err != nil || l.failing == (err != nil) || errors.Is(err, ErrLost) {
		l.mu.Unlock()
		return
	}
	l.failing = err != nil
	failing := c.failing.Add(change) // under l.mu, so that finish does not miss a failing lease
	l.mu.Unlock()
	switch {
	case err == nil:
		c.log(slog.LevelInfo, "renewed again", l.name)
	case failing == 1:
		c.log(slog.LevelWarn, "renewal failed", l.name, "error", err)
	default:
		c.log(slog.LevelWarn, "renewal failed, as for other leases", l.name)
	}
}

// renewed applies what the service promised in an answer that arrived at now.
func (l *Lease) renewed(v driver.Validity, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil && !l.overdue(now) {
		// If the answers of two renewals overtook each other, both promises hold, and the later end
		// counts.
		if l.grant.Validity.Until().Before(v.Until()) {
			l.grant.Validity = v
		}
		l.planRenewal(v, now)
	}
}

// goneByService is the Lost function of this lease's request. It does not make the backend wait for a
// Trace function.
func (l *Lease) goneByService() {
	l.lose(fmt.Errorf("the service reported that it is gone: %w", ErrLost), func(tell func()) { go tell() })
}

func here(tell func()) { tell() }

// expire ends a lease whose deadline has passed.
func (l *Lease) expire() {
	l.mu.Lock()
	until := l.until()
	l.mu.Unlock()
	cause := fmt.Errorf("it was not renewed before %v: %w", until.Format(time.RFC3339Nano), ErrLost)
	if !until.Before(l.limit()) {
		cause = fmt.Errorf("MaxHold of %v is reached: %w", l.settings.MaxHold, ErrLost)
	}
	l.lose(cause, here)
}

// lose ends the lease with a cause that matches ErrLost, and reports it through run.
func (l *Lease) lose(cause error, run func(tell func())) {
	err, c := l.fail("lease", cause), l.client
	if l.finish(lost, err) {
		run(func() {
			defer c.busy.done()
			defer c.lines.release(l) // even if a Trace function panics
			c.happened(l.values, c.trace.Lost, l.told("lease", time.Now(), 0, err), nil, &c.stats.Lost, "lease lost")
		})
	}
}

// finish ends the lease; its Err is err from now on. It returns false if the lease had already ended,
// or was not given out yet and now never will be.
func (l *Lease) finish(why ending, err error) bool {
	l.mu.Lock()
	if l.err != nil || l.start.IsZero() {
		l.err = cmp.Or(l.err, err)
		l.mu.Unlock()
		return false
	}
	if why == lost { // Close waits until Trace has been called
		l.client.busy.add()
	}
	if l.failing {
		l.failing = false
		l.client.failing.Add(-1)
	}
	l.err = err
	for end := range l.ends { // before l.mu is free: after it, the next holder may be let in
		(*end)(err)
	}
	l.ends = nil
	l.done.give()
	l.client.schedule.remove(l)
	l.mu.Unlock()
	if why == lost {
		l.takeBack(lost)
	}
	return true
}

// close ends the lease because its client is closed, and releases it.
func (l *Lease) close() {
	if l.finish(unlocked, ErrClosed) {
		outcome := errEnded
		l.client.busy.run(func() { l.release(l.client.rest, &outcome) })
	}
}
