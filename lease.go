package locker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/clock"
)

// Lease is a lock that is held for a limited time. The Client renews it in the background until it is
// unlocked or lost, unless it was made with [NoRenew]. Its methods may be called from any goroutine.
type Lease struct {
	at       time.Time // when the schedule calls due; schedule.mu guards it, and
	index    int       // its place in the heap, plus 1; 0: it is not there
	client   *Client
	name     string
	grant    driver.Grant // mu guards its Validity, which is the latest
	settings settings
	start    time.Time // when the grant was known here: MaxHold counts from it; zero: it was not given out

	values context.Context // of the context given to Lock, for Trace; nil if there is none
	line   *line           // where it holds the name; nil once it has left; lines.mu guards it

	undoAt    time.Time     // when it is taken back; zero: never; client.mu guards it, and
	undoPause time.Duration // the last pause after a failed take-back
	refused   bool          // the service refused the attempt or its take-back: it takes no sharer's place

	mu        sync.Mutex
	renewAt   time.Time // when to renew next; zero: not again
	renewing  bool
	failing   bool  // the last renewal has failed
	err       error // why it ended; nil while it is held
	done      signal
	ends      map[*context.CancelCauseFunc]struct{}
	unlocking bool   // the first Unlock or GiveBack has begun
	returned  bool   // by GiveBack, or it was never given out: MinHold does not keep the lock
	unlocked  signal // unlockErr is set and final
	unlockErr error
}

// signal is a channel that is closed once, and created when first waited for. A mutex guards it.
type signal struct{ c chan struct{} }

// given is the channel of every signal that was given before anyone waited.
var given = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

func (s *signal) wait() <-chan struct{} {
	if s.c == nil {
		s.c = make(chan struct{})
	}
	return s.c
}

func (s *signal) give() {
	if s.c == nil {
		s.c = given
		return
	}
	close(s.c)
}

// Name returns the lock's name as the caller gave it, without prefix.
func (l *Lease) Name() string { return l.name }

// Token returns the fencing token: a number greater than the token of every earlier holder of this
// name, under the conditions in [Guarantees]. Readers that hold the name together have the same token.
// It returns false if the lease has no token.
func (l *Lease) Token() (token uint64, ok bool) { return l.grant.Token, l.grant.Token != 0 }

// Shared reports whether the lease was locked with [Shared], so that other readers may hold the name
// too.
func (l *Lease) Shared() bool { return l.settings.Shared }

// Until returns the time until which the holder may act. Renewals move it forward. Nobody else holds
// the lock before Until, except readers that share it, under the conditions in [Guarantees]. If the
// hold has no deadline, Until is a hundred years after the grant, so that [context.WithDeadline] with
// it means the same on every service.
func (l *Lease) Until() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until()
}

// Done returns a channel that is closed when the lease ends, for whatever reason, at Until at the
// latest. After a machine has slept, the channel may be closed up to a second after the machine wakes;
// Err is correct at once.
func (l *Lease) Done() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.done.wait()
}

// Err returns nil while the lease is held, and afterwards the reason why it ended: an error that
// matches ErrLost, ErrUnlocked or ErrClosed. It checks the monotonic and the wall clock, and sends no
// request.
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

// Renew renews the lease now. It is for leases with [NoRenew], and for holders that want a full TTL
// left. It waits for the service at most until ctx or the lease ends. If the lease has ended, the error
// is the same as that of Err. After any other error the lease continues as before, and Renew may be
// called again.
func (l *Lease) Renew(ctx context.Context) error {
	if err := l.Err(); err != nil {
		return l.fail("renew", err)
	}
	if limit := l.limit(); !l.Until().Before(limit) {
		return l.fail("renew", invalid("MaxHold of %v is reached, the lease ends at %v", l.settings.MaxHold,
			limit.Format(time.RFC3339Nano)))
	}
	ctx, cancel := l.Context(ctx)
	defer cancel()
	_, err := inTime(ctx, l.client.busy.run, func() (struct{}, error) { return struct{}{}, l.renewOnce(ctx, ctx) },
		func(struct{}, error) {})
	if over := l.Err(); over != nil {
		err = over
	}
	return l.fail("renew", err)
}

// Unlock releases the lock. It returns when the service has confirmed the release, or when ctx is done;
// then the release continues in the background, even if ctx was done before the call. Unlock may be
// called more than once: every call returns the outcome of the first call's request.
//
// The error matches ErrLost if the lease had already ended or the lock was gone from the service:
// another holder may have had it in the meantime. It matches ErrUnavailable if the service could not be
// asked. The release is then retried in the background, and the lock ends at the latest with its TTL
// or, if a session keeps it (etcd, ZooKeeper), with the session. Unlock never removes another holder's
// lock.
func (l *Lease) Unlock(ctx context.Context) error { return l.end(ctx, false) }

// GiveBack ends a lease whose work was never begun. It is Unlock, except that [MinHold] does not keep
// the lock: others can have it at once. Call it only if the lease was not used; otherwise the work that
// MinHold protects from being repeated can be done twice.
//
// Of all calls of Unlock and GiveBack, the first decides, and all others return its outcome. So after
// an Unlock, GiveBack changes nothing, and MinHold keeps the lock. A failed release is retried in the
// background until it succeeds, also under MinHold.
func (l *Lease) GiveBack(ctx context.Context) error { return l.end(ctx, true) }

// end is Unlock or GiveBack.
func (l *Lease) end(ctx context.Context, returned bool) error {
	_ = l.Err() // looks at both clocks
	l.mu.Lock()
	first := !l.unlocking
	l.unlocking = true
	l.returned = l.returned || first && returned
	l.mu.Unlock()
	if first {
		// Counted before the end: Close either ends the lease itself, or waits for
		// this release.
		l.client.busy.add()
		over := !l.finish(unlocked, ErrUnlocked)
		if over || ctx.Done() == nil || l.client.prompt && ctx.Err() == nil {
			l.letGo(ctx)
		} else {
			go l.letGo(context.WithoutCancel(ctx))
		}
	}
	l.mu.Lock()
	answered := l.unlocked.wait()
	l.mu.Unlock()
	select {
	case <-answered:
	case <-ctx.Done():
		select {
		case <-answered:
		default:
			return l.fail("unlock", fmt.Errorf("not confirmed yet, the release continues in the background: %w",
				ctxError(ctx)))
		}
	}
	return matching(ctx, l.unlockErr) // its timeout may be the first caller's
}

// As gets a value that only this service has, such as the key of an etcd lock or the file of a file
// lock. target is a non-nil pointer to a type that the backend documents. If the backend knows the
// type, its hold is a [driver.Aser], and As sets the value and returns true.
func (l *Lease) As(target any) bool {
	a, ok := l.grant.Hold.(driver.Aser)
	return ok && a.As(target)
}

// RaiseToken gives every later holder of this name a token greater than token, for example when locks
// move here from a service that has granted token. The error matches [errors.ErrUnsupported] if the
// service cannot do this, ErrLost if the lease has ended, and ErrInvalid if no token can be greater.
func (l *Lease) RaiseToken(ctx context.Context, token uint64) error {
	if err := l.Err(); err != nil {
		return l.fail("raise token", err)
	}
	r, ok := l.grant.Hold.(driver.TokenRaiser)
	base, err := l.client.opts.TokenBase, error(nil)
	switch {
	case l.settings.Shared:
		err = fmt.Errorf("sharers have one token: raise it under an exclusive lease: %w",
			errors.ErrUnsupported)
	case !ok:
		err = fmt.Errorf("backend %s cannot raise its tokens: %w", l.client.guarantees.Backend, errors.ErrUnsupported)
	case token > base && token-base >= MaxToken:
		err = fmt.Errorf("%w: the token %d leaves none above it: at most %d", ErrInvalid, token,
			base+MaxToken-1)
	case token > base: // base is added to every token
		_, err = aside(ctx, func() (struct{}, error) { return struct{}{}, r.RaiseToken(ctx, token-base) })
	}
	return l.fail("raise token", err)
}

func (l *Lease) fail(op string, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := err.(*Error); ok { //nolint:errorlint // only the outermost: what it wraps stays as it is
		err = e.Err
	}
	return &Error{Op: op, Name: l.name, Err: err}
}

// letGo releases the lock, unless the lease had already ended, and records the outcome.
func (l *Lease) letGo(ctx context.Context) {
	defer l.client.busy.done()
	err := errEnded
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.unlockErr = l.fail("unlock", err)
		l.unlocked.give()
	}()
	over := l.Err()
	switch {
	case errors.Is(over, ErrUnlocked):
		l.release(ctx, &err)
		return
	case errors.Is(over, ErrLost):
		l.takeBack(unlocked) // instead of the later one of a lost lease
	}
	err = over
}

// release asks the service once to release the lock, now or when MinHold ends, and leaves the rest to a
// take-back, even if the backend or a Trace function panics. outcome is errEnded at first, and is set
// before Trace is called.
func (l *Lease) release(ctx context.Context, outcome *error) {
	defer l.client.lines.release(l)
	brief := clock.Within(ctx, unlockTimeout)
	defer brief.Cancel()
	if l.client.queue && !l.settings.Shared {
		// The next caller in line may ask while the release is in flight: the service's queue gets its
		// request after the release and does not refuse it. A sharer counts until its release is done.
		l.client.lines.release(l)
	}
	defer func() {
		if *outcome == errEnded { //nolint:errorlint // as it is
			l.takeBack(unreleased)
		}
	}()
	l.pass(ctx, brief, outcome)
}

// confirmed is what Unlock returns when err is the service's answer to the release.
func confirmed(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrLost):
		return fmt.Errorf("it was gone before the release: %w", err)
	}
	return fmt.Errorf("the release is not confirmed and is tried again in the background: %w", err)
}

// pass asks the service to release the lock and, if it can, to give it to the next call in line at
// once.
func (l *Lease) pass(ctx, brief context.Context, outcome *error) {
	c, began := l.client, time.Now()
	keep := l.keeps(began)
	passer, can := l.grant.Hold.(driver.Passer)
	var next *call
	var yield bool
	if can && keep == 0 {
		next, yield = c.lines.behind(l)
	}
	if next == nil {
		err := fromBackend(ctx, l.grant.Hold.Release(brief, keep))
		*outcome = confirmed(err)
		l.released(ctx, began, time.Since(began), err)
		return
	}
	to, req := next.request()
	grant, err := passer.Pass(brief, req, yield)
	refused := grant.Refused
	if err = fromBackend(ctx, err); err == nil && refused != nil && grant.Hold != nil {
		err = errBoth
	}
	*outcome = confirmed(err)
	took := time.Since(began)
	to.grant = grant
	switch {
	case grant.Hold != nil:
		passed := err
		if passed == nil {
			passed = c.lines.passOn(l, next, to)
		}
		if passed == nil {
			next.took = max(took, 1)
			close(next.ready) // next reports its own attempt
		} else {
			to.takeBack(unused)
			defer c.attempted(next, took, passed)
		}
	case refused != nil && refused.Undo != nil:
		to.takeBack(unused)
	}
	l.released(ctx, began, took, err)
}
