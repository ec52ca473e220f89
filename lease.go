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

// Lease is a lock that is held for a limited time. The Client renews it in the
// background until it is unlocked or lost, unless it was made with [NoRenew]. Its
// methods may be called from any goroutine.
type Lease struct {
	at       time.Time // when the schedule calls due; schedule.mu guards it, and
	index    int       // its place in the heap, plus 1; 0: it is not there
	client   *Client
	name     string
	grant    driver.Grant // mu guards its Validity, which is the latest
	settings settings
	start    time.Time // when the grant was known here: MaxHold counts from it; zero: nobody was told of it

	values context.Context // those of the context given to Lock, for Trace; nil if there is none
	line   *line           // where it holds the name; nil once it has left; lines.mu guards it

	undoAt    time.Time     // when it is taken back; zero: it is not; client.mu guards it, and
	undoPause time.Duration // how long the last pause was after a take-back that has failed
	refused   bool          // the service has refused the attempt, or its take-back: it crowds out no sharer

	mu        sync.Mutex
	renewAt   time.Time // when to renew next; zero: not again
	renewing  bool
	failing   bool  // the last renewal has failed
	err       error // why it is over; nil while it is held
	done      signal
	ends      map[*context.CancelCauseFunc]struct{}
	unlocking bool   // the first Unlock or GiveBack has begun
	returned  bool   // that is GiveBack: MinHold does not keep the lock
	unlocked  signal // unlockErr is set, and does not change any more
	unlockErr error
}

// signal is a channel that is closed once, and made when somebody waits for it. A mutex guards it.
type signal struct{ c chan struct{} }

// given is the channel of a signal that nobody waited for.
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

// Token returns the fencing token: a number that is greater than the token of every
// earlier holder of this name, under the conditions in [Guarantees]; those that hold the
// name together have the same. It returns false if the lease has no token.
func (l *Lease) Token() (token uint64, ok bool) { return l.grant.Token, l.grant.Token != 0 }

// Shared reports whether others that asked for the name shared may hold it, too.
func (l *Lease) Shared() bool { return l.settings.Shared }

// Until returns the time until which the holder may act. Renewals move it forward.
// Nobody else holds the lock before Until, but those that share it with a shared lease,
// under the conditions in [Guarantees]. If the hold has no deadline, Until is a hundred years
// after the grant, so that [context.WithDeadline] with it means the same on every service.
func (l *Lease) Until() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until()
}

// Done returns a channel that is closed when the lease is over, whatever the cause,
// at Until at the latest. After a machine has slept, the channel may be closed
// up to a second after the machine woke; Err is right at once.
func (l *Lease) Done() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.done.wait()
}

// Err returns nil while the lease is held, and afterwards the reason why it is over:
// an error that matches ErrLost, ErrUnlocked or ErrClosed. It looks at both clocks
// and sends no request.
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

// Context returns a context that ends when parent ends, when the lease is over, or
// when cancel is called, whichever is first. If the lease ended it, [context.Cause]
// returns the same error as Err. Call cancel when the context is not needed any
// more; cancel does not unlock. A timer ends the context: when a process goes on that was stopped, the
// context can be seen alive for some microseconds after the lease, while Err is exact. A call for the same name with this context, or one that is made of it,
// is refused with ErrInvalid while the lease is held, since it would wait for itself.
func (l *Lease) Context(parent context.Context) (ctx context.Context, cancel context.CancelFunc) {
	outer, _ := parent.Value(insideKey{}).(*inside)
	ctx, end := context.WithCancelCause(&inside{parent, l, outer})
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

// inside is the context of a lease.
type inside struct {
	context.Context
	lease *Lease
	outer *inside // the one around it; nil: there is none
}

type insideKey struct{}

// Value makes the context known to calls with it, and with what is made of it.
func (in *inside) Value(key any) any {
	if key == (insideKey{}) {
		return in
	}
	return in.Context.Value(key)
}

// nested is the error of a call of which the context is inside a lease on the same name; package slots
// looks for its method.
type nested struct {
	error
	try bool // the call does not wait: that the lock is held is true, too
}

func (nested) Nested() {}

func (e nested) Unwrap() error        { return e.error }
func (e nested) Is(target error) bool { return e.try && target == ErrHeld }

// notNested returns an error if ctx is inside a lease on the name of cl that is held.
func (cl *call) notNested(ctx context.Context) error {
	for in, _ := ctx.Value(insideKey{}).(*inside); in != nil; in = in.outer {
		if in.lease.client == cl.client && in.lease.name == cl.name && in.lease.Err() == nil {
			return nested{invalid("the context is that of a lease on this name: the call would wait for itself. " +
				"Nothing is reentrant, and a shared lease cannot become one that is held alone: unlock it first"), !cl.wait}
		}
	}
	return nil
}

// Renew renews the lease now. It is for holders with [NoRenew], and for a holder that
// wants to have a full TTL left. It waits for the service at most until ctx or the
// lease is over. If the lease is over, the error is the same as that of Err. After
// any other error the lease goes on as before, and Renew may be called again.
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

// Unlock releases the lock. It returns when the service has confirmed the release, or
// when ctx is done; then the release goes on in the background, also if ctx was done
// before the call. Unlock may be called more than once: every call returns the
// outcome of the first one's request.
//
// The error matches ErrLost if the lease was over before, or if the lock was gone
// from the service: somebody else may have held the lock meanwhile. It matches
// ErrUnavailable if the service could not be asked: the release is tried again in the
// background, and the lock ends with its TTL at the latest, or where a session keeps it
// (etcd, ZooKeeper) with that. Unlock never removes somebody else's lock.
func (l *Lease) Unlock(ctx context.Context) error { return l.end(ctx, false) }

// GiveBack ends a lease whose work was never begun. It is Unlock, except that a [MinHold] does not
// keep the lock, which is free for others at once. The lease must not have been used: the work that
// MinHold keeps others from repeating can then be done twice.
//
// Of all calls of Unlock and GiveBack, the first decides, and every other one returns its outcome. So
// after an Unlock, GiveBack changes nothing, and MinHold keeps the lock. If the release fails, it is
// tried again in the background until it succeeds, also under MinHold.
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
			return l.fail("unlock", fmt.Errorf("not confirmed yet, the release goes on in the background: %w",
				ctxError(ctx)))
		}
	}
	return matching(ctx, l.unlockErr) // its time-out may be the first caller's
}

// As asks the hold for a value that only its service has, such as the key of an etcd
// lock or the file of a file lock. target is a non-nil pointer to a type that the
// backend documents. If the backend knows that type, As sets the value and returns
// true; the backend's hold is then a [driver.Aser].
func (l *Lease) As(target any) bool {
	a, ok := l.grant.Hold.(driver.Aser)
	return ok && a.As(target)
}

// RaiseToken gives every later holder of this name a token greater than token, for
// example when locks move here from a service that has given out token. The error
// matches [errors.ErrUnsupported] if the service cannot do this, ErrLost if the
// lease is over, and ErrInvalid if no token is greater.
func (l *Lease) RaiseToken(ctx context.Context, token uint64) error {
	if err := l.Err(); err != nil {
		return l.fail("raise token", err)
	}
	r, ok := l.grant.Hold.(driver.TokenRaiser)
	base, err := l.client.opts.TokenBase, error(nil)
	switch {
	case l.settings.Shared:
		err = fmt.Errorf("sharers have one token, which rises with the next that holds alone: raise it there: %w",
			errors.ErrUnsupported)
	case !ok:
		err = fmt.Errorf("backend %s cannot raise its tokens: %w", l.client.guarantees.Backend, errors.ErrUnsupported)
	case token > base && token-base >= MaxToken:
		err = fmt.Errorf("%w: the token %d leaves none above it: at most %d", ErrInvalid, token,
			base+MaxToken-1)
	case token > base: // which is added to every token
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

// letGo releases the lock, unless the lease was over before, and keeps the outcome.
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
		l.takeBack(unlocked) // in place of that of a lost one, which comes later
	}
	err = over
}

// release asks the service once to release the lock, and leaves the rest to a
// take-back, also if the backend or a function of Trace panics. While MinHold keeps the lock, it
// sends nothing. outcome, which is errEnded before, is known before Trace is told.
func (l *Lease) release(ctx context.Context, outcome *error) {
	defer l.client.lines.release(l)
	now := time.Now()
	if l.freeAt(unlocked, now).After(now) {
		l.takeBack(unlocked)
		*outcome = nil
		l.released(ctx, now, 0, nil)
		return
	}
	brief := clock.Within(ctx, unlockTimeout)
	defer brief.Cancel()
	if l.client.queue && !l.settings.Shared {
		// The next caller in line may ask while the release is in flight: its request
		// comes after the release in the service's queue, and is not refused. A sharer is
		// counted until it has left.
		l.client.lines.release(l)
	}
	defer func() {
		if *outcome == errEnded { //nolint:errorlint // as it is
			l.takeBack(unreleased)
		}
	}()
	l.pass(ctx, brief, now, outcome)
}

// confirmed is what Unlock returns where err is the service's answer to the release.
func confirmed(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrLost):
		return fmt.Errorf("it was gone before the release: %w", err)
	}
	return fmt.Errorf("the release is not confirmed and is tried again in the background: %w", err)
}

// pass asks the service to let go and, if it can, to give the lock to the next call
// in line at once.
func (l *Lease) pass(ctx, brief context.Context, began time.Time, outcome *error) {
	c := l.client
	passer, can := l.grant.Hold.(driver.Passer)
	var next *call
	var yield bool
	if can {
		next, yield = c.lines.behind(l)
	}
	if next == nil {
		err := fromBackend(ctx, l.grant.Hold.Release(brief))
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
			close(next.ready) // it tells of it itself
		} else {
			to.takeBack(unused)
			defer c.attempted(next, took, passed)
		}
	case refused != nil && refused.Undo != nil:
		to.takeBack(unused)
	}
	l.released(ctx, began, took, err)
}
