package locker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Lease is a lock held for a time. It is renewed in the background until it
// is unlocked or lost, unless it was made with [NoRenew]. Its methods may be
// called from any goroutine.
type Lease struct {
	event    // its place in the client's schedule
	client   *Client
	name     string
	hold     Hold
	token    uint64
	settings settings
	start    time.Time // Since of the grant

	mu        sync.Mutex
	granted   bool      // false until the engine gives it to the caller
	line      *line     // where it stands at the head; nil once it has left
	until     time.Time // the holder may act up to here; zero: no deadline
	expiry    time.Time // the service keeps the hold up to here; zero: no deadline
	renewAt   time.Time // when to renew next; zero: not again
	renewing  bool
	err       error         // why it is over; nil while it is held
	done      chan struct{} // made by the first Done; closed when err is set
	ends      map[*context.CancelCauseFunc]struct{}
	unlocked  chan struct{} // made by the first Unlock; closed when unlockErr is set
	unlockErr error
}

// Name returns the lock's name as it was asked for, without prefix.
func (l *Lease) Name() string { return l.name }

// Token returns the fencing token: a number greater than that of every earlier
// holder of this name, under the conditions in [Guarantees]. It is false if
// the backend has no tokens.
func (l *Lease) Token() (token uint64, ok bool) { return l.token, l.token != 0 }

// Until returns the time up to which the holder may act as the holder, as known
// now: renewals move it on. It is the zero time if the hold has no deadline.
// The promise is that nobody else holds the lock before it, under the
// conditions in [Guarantees]; it counts from before the request that granted
// or renewed the lease was sent, less the clock drift (R1).
func (l *Lease) Until() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until
}

// Done returns a channel that is closed when the lease is over, whatever the
// cause, at the latest at Until (R2). After a machine has slept, it may be
// closed up to a second after it woke; Err tells the truth at once.
func (l *Lease) Done() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done == nil {
		l.done = make(chan struct{})
		if l.err != nil {
			close(l.done)
		}
	}
	return l.done
}

// Err returns nil while the lease is held, and then why it is over: an error
// that matches ErrLost, ErrUnlocked or ErrClosed. It looks at both clocks, and
// costs no request.
func (l *Lease) Err() error {
	l.mu.Lock()
	err, late := l.err, l.err == nil && l.overdue(time.Now())
	l.mu.Unlock()
	if late {
		l.expire()
		return l.Err()
	}
	return err
}

// Context returns a context that ends when parent does, when the lease is
// over, or when cancel is called, whichever is first. If the lease ended it,
// [context.Cause] is what Err returns (R6). Call cancel when the context is
// not needed any more; it does not unlock.
func (l *Lease) Context(parent context.Context) (ctx context.Context, cancel context.CancelFunc) {
	ctx, end := context.WithCancelCause(parent)
	l.mu.Lock()
	over := l.err
	if over == nil {
		if l.ends == nil {
			l.ends = make(map[*context.CancelCauseFunc]struct{})
		}
		l.ends[&end] = struct{}{}
	}
	l.mu.Unlock()
	if over != nil {
		end(over)
	}
	return ctx, func() {
		l.mu.Lock()
		delete(l.ends, &end)
		l.mu.Unlock()
		end(context.Canceled)
	}
}

// Renew renews the lease now, for holders with [NoRenew] and for those who
// want a full TTL ahead of them. It waits for the service at most until ctx
// or the lease is over. The error matches ErrLost if the lease is over;
// otherwise the lease goes on as before, and Renew may be called again.
func (l *Lease) Renew(ctx context.Context) error {
	if err := l.Err(); err != nil {
		return l.fail("renew", err)
	}
	if limit := l.limit(); !limit.IsZero() && !l.Until().Before(limit) {
		return l.fail("renew", fmt.Errorf("MaxHold of %v is reached, the lease ends at %v", l.settings.maxHold, limit.Format(time.RFC3339Nano)))
	}
	ctx, cancel := l.Context(ctx)
	defer cancel()
	answer := make(chan error, 1)
	l.client.work.do(func() { answer <- l.renewOnce(ctx) })
	select {
	case err := <-answer:
		return l.fail("renew", err)
	case <-ctx.Done():
	}
	if err := l.Err(); err != nil {
		return l.fail("renew", err)
	}
	return l.fail("renew", ctxError(ctx))
}

// Unlock gives the lock back and returns when the service has confirmed it,
// or when ctx is done; the release goes on in the background then, and also
// when ctx was done before. It may be called more than once and always
// returns the first answer.
//
// The error matches ErrLost if the lease was over before, or if the service
// did not have it any more: somebody else may have held the lock meanwhile.
// It matches ErrUnavailable if the service could not be asked: the release is
// tried again in the background, and the TTL ends the lock at the latest. It
// never removes somebody else's lock (R9).
func (l *Lease) Unlock(ctx context.Context) error {
	now := time.Now()
	l.mu.Lock()
	if l.err == nil && l.overdue(now) {
		l.mu.Unlock()
		l.expire()
		l.mu.Lock()
	}
	first := l.unlocked == nil
	if first {
		l.unlocked = make(chan struct{})
	}
	l.mu.Unlock()
	if first {
		switch {
		case !l.end(ErrUnlocked):
			err := l.Err()
			if errors.Is(err, ErrLost) {
				// The holder says that it has stopped: what is left can go now.
				l.client.takeBackAt(now, l.name, l.hold, l.settings.ttl, false)
			}
			l.finishUnlock(err)
		case ctx.Done() == nil:
			l.finishUnlock(l.release())
		default:
			l.client.asking.add()
			go func() {
				defer l.client.asking.done()
				l.finishUnlock(l.release())
			}()
		}
	}
	select {
	case <-l.unlocked:
		return l.unlockErr
	default:
	}
	select {
	case <-l.unlocked:
		return l.unlockErr
	case <-ctx.Done():
		return l.fail("unlock", fmt.Errorf("not confirmed yet, the release goes on in the background: %w", ctxError(ctx)))
	}
}

// As asks the hold for something that only its service has, such as the key of
// an etcd lock or the file of a file lock. target is a non-nil pointer to a
// type that the backend documents; As sets it and returns true if the backend
// knows that type.
func (l *Lease) As(target any) bool {
	a, ok := l.hold.(interface{ As(target any) bool })
	return ok && a.As(target)
}

func (l *Lease) fail(op string, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := err.(*Error); ok {
		err = e.Err
	}
	return &Error{Op: op, Name: l.name, Err: err}
}

// limit is when MaxHold ends the lease; zero: never.
func (l *Lease) limit() time.Time {
	if l.settings.maxHold == 0 {
		return time.Time{}
	}
	return l.start.Add(l.settings.maxHold - drift(l.settings.maxHold))
}

// overdue reports whether the deadline has passed. l.mu is held.
func (l *Lease) overdue(now time.Time) bool {
	return !l.until.IsZero() && passed(l.until, now)
}

// drift is the default allowance for the difference in speed of two clocks
// over d: 1 % + 2 ms, as in the Redlock description.
func drift(d time.Duration) time.Duration { return d/100 + 2*time.Millisecond }

// extend takes over what the service has granted. l.mu is held.
func (l *Lease) extend(v Validity, now time.Time) {
	limit := l.limit()
	until, expiry := limit, limit
	if v.TTL != 0 {
		d := v.Drift
		if d == 0 {
			d = drift(v.TTL)
		}
		expiry = v.Since.Add(v.TTL)
		until = expiry.Add(-d)
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

// planRenewal sets when to renew: a third of the TTL from now, and under
// MaxHold never later than makes the lease last just up to the limit, nor
// again once it does (R19). l.mu is held.
func (l *Lease) planRenewal(v Validity, now time.Time) {
	l.renewAt = time.Time{}
	limit := l.limit()
	if l.settings.noRenew || v.TTL != 0 && !limit.IsZero() && !l.until.Before(limit) {
		return
	}
	ttl := v.TTL
	if ttl == 0 {
		ttl = l.settings.ttl
	}
	// Jitter keeps leases that were taken together from being renewed so.
	l.renewAt = now.Add(ttl/3 - randomUpTo(ttl/30))
	if v.TTL != 0 && !limit.IsZero() {
		if last := limit.Add(l.until.Sub(v.Since) * -1); last.Before(l.renewAt) {
			l.renewAt = last
		}
	}
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
func (l *Lease) due(now time.Time) {
	l.mu.Lock()
	if l.err == nil && l.overdue(now) {
		l.mu.Unlock()
		l.expire()
		return
	}
	defer l.mu.Unlock()
	if l.err == nil && !l.renewing && !l.renewAt.IsZero() && !now.Before(l.renewAt) {
		l.renewing = true
		l.client.work.do(l.renewInBackground)
	}
	l.plan()
}

// wallMoved is called by the schedule when the wall clock was stepped forward.
func (l *Lease) wallMoved(now time.Time) {
	l.mu.Lock()
	late := l.err == nil && l.overdue(now)
	l.mu.Unlock()
	if late {
		l.expire()
	}
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
		ctx, cancel := context.WithTimeout(context.Background(), attemptTime(until, l.settings.ttl))
		err = l.renewOnce(ctx)
		cancel()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewing = false
	if err != nil && l.err == nil {
		l.renewAt = time.Now().Add(jitter(retryDelay(l.until, l.settings.ttl)))
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
	return min(max(time.Until(until)/8, 5*time.Millisecond), ttl/10)
}

// renewOnce asks the service once and takes over its answer. The error is nil,
// or matches ErrLost if the lease is over, or is that of an unknown outcome.
func (l *Lease) renewOnce(ctx context.Context) error {
	began := time.Now()
	v, err := l.hold.Renew(ctx)
	now := time.Now()
	l.client.renewed(l.name, now.Sub(began), err)
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

// goneByService is the Lost function of this lease's request.
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

// lose ends the lease with a cause that matches ErrLost, and clears up.
func (l *Lease) lose(cause error) {
	cause = l.fail("lease", cause)
	l.mu.Lock()
	granted := l.granted
	if !granted && l.err == nil {
		l.err = cause // told before it was given out: it never will be
	}
	l.mu.Unlock()
	if !granted || !l.end(cause) {
		return
	}
	l.client.lost(l.name, cause)
	l.clear()
}

// end makes the lease over, once; it returns false if it was before.
func (l *Lease) end(cause error) bool {
	l.mu.Lock()
	if l.err != nil {
		l.mu.Unlock()
		return false
	}
	l.err = cause
	if l.done != nil {
		close(l.done)
	}
	ends := l.ends
	l.ends = nil
	l.client.schedule.remove(l)
	l.mu.Unlock()
	for end := range ends {
		(*end)(cause)
	}
	return true
}

// clear takes what is left of a lost lease back, once the service would have
// let it go too: until then it does no harm, and gives a holder that has just
// been told some grace. Whoever comes next in line may ask from now on.
func (l *Lease) clear() {
	l.mu.Lock()
	ln, expiry := l.line, l.expiry
	l.line = nil
	l.mu.Unlock()
	if ln == nil {
		return
	}
	l.client.takeBackAt(expiry, l.name, l.hold, l.settings.ttl, false)
	l.client.lines.leave(ln)
}

// release asks the service to let go, once, and hands what remains to do to
// a take-back.
func (l *Lease) release() error {
	ctx, cancel := context.WithTimeout(context.Background(), unlockTimeout)
	defer cancel()
	began := time.Now()
	err := l.hold.Release(ctx)
	l.client.released(l.name, time.Since(began), err)
	switch {
	case err == nil:
	case errors.Is(err, ErrLost):
		err = fmt.Errorf("it was gone before the release: %w", err)
	default:
		l.client.takeBackAt(time.Now().Add(firstTakeBackDelay), l.name, l.hold, l.settings.ttl, false)
		err = fmt.Errorf("the release is not confirmed and is tried again in the background; the lock is free after %v at the latest: %w", l.settings.ttl, err)
	}
	l.mu.Lock()
	ln := l.line
	l.line = nil
	l.mu.Unlock()
	if ln != nil {
		l.client.lines.leave(ln)
	}
	return err
}

func (l *Lease) finishUnlock(err error) {
	l.unlockErr = l.fail("unlock", err)
	close(l.unlocked)
}

// close ends the lease because its client is closed, and releases it.
func (l *Lease) close() {
	if !l.end(ErrClosed) {
		return
	}
	l.client.work.do(func() { _ = l.release() })
}
