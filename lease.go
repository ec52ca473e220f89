package locker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/golockers/locker/internal/clock"
)

// Lease is a lock that is held for a limited time. The Client renews it in the
// background until it is unlocked or lost, unless it was made with [NoRenew]. Its
// methods may be called from any goroutine.
type Lease struct {
	event    // its place in the client's schedule
	client   *Client
	name     string
	hold     Hold
	token    uint64
	settings settings
	session  bool      // a session of the backend keeps the lock, see Grant
	start    time.Time // when the grant was known here: MaxHold counts from it; zero: not yet

	values context.Context // those of the context given to Lock, for Trace; nil if there is none

	mu        sync.Mutex
	line      *line     // where it stands, at the head or shared; nil once it has left
	until     time.Time // the holder may act up to here; zero: no deadline
	expiry    time.Time // the service keeps the hold up to here; zero: no deadline
	renewAt   time.Time // when to renew next; zero: not again
	renewing  bool
	err       error         // why it is over; nil while it is held
	done      chan struct{} // made by the first Done; closed when err is set
	ends      map[*context.CancelCauseFunc]struct{}
	leftover  *takeBack // what takes it back, or did; client.mu guards it
	unlocking unlockState
	unlocked  chan struct{} // made by an Unlock that waits; closed when unlockErr is set
	unlockErr error
}

// Name returns the lock's name as the caller gave it, without prefix.
func (l *Lease) Name() string { return l.name }

// Token returns the fencing token: a number that is greater than the token of every
// earlier holder of this name, under the conditions in [Guarantees]. Those that hold the
// name together have the same token, or none where shared leases have none. It returns
// false if the lease has no token.
func (l *Lease) Token() (token uint64, ok bool) { return l.token, l.token != 0 }

// Shared reports whether others that asked for the name shared may hold it, too.
func (l *Lease) Shared() bool { return l.settings.shared }

// Until returns the time until which the holder may act. Renewals move it forward.
// Nobody else holds the lock before Until, but those that share it with a shared lease,
// under the conditions in [Guarantees]. It
// counts from before the request that granted or renewed the lease was sent, less the
// clock drift. If the hold has no deadline, Until is a hundred years after the grant, so
// that [context.WithDeadline] with it means the same on every service.
func (l *Lease) Until() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.until.IsZero() {
		return l.start.Add(clock.Century)
	}
	return l.until
}

// Done returns a channel that is closed when the lease is over, whatever the cause,
// at Until at the latest. After a machine has slept, the channel may be closed
// up to a second after the machine woke; Err is right at once.
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
// more; cancel does not unlock.
func (l *Lease) Context(parent context.Context) (ctx context.Context, cancel context.CancelFunc) {
	if l.settings.shared {
		parent = context.WithValue(parent, sharerKey{l.client, l.name}, l)
	}
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

// Renew renews the lease now. It is for holders with [NoRenew], and for a holder that
// wants to have a full TTL left. It waits for the service at most until ctx or the
// lease is over. If the lease is over, the error is the same as that of Err. After
// any other error the lease goes on as before, and Renew may be called again.
func (l *Lease) Renew(ctx context.Context) error {
	if err := l.Err(); err != nil {
		return l.fail("renew", err)
	}
	if limit := l.limit(); !limit.IsZero() && !l.Until().Before(limit) {
		return l.fail("renew", invalid("MaxHold of %v is reached, the lease ends at %v", l.settings.maxHold,
			limit.Format(time.RFC3339Nano)))
	}
	ctx, cancel := l.Context(ctx)
	defer cancel()
	answer := make(chan error, 1)
	l.client.renewing.run(func() { answer <- l.renewOnce(ctx, ctx) })
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

// Unlock releases the lock. It returns when the service has confirmed the release, or
// when ctx is done; then the release goes on in the background, also if ctx was done
// before the call. Unlock may be called more than once: every call returns the
// outcome of the first one's request.
//
// The error matches ErrLost if the lease was over before, or if the lock was gone
// from the service: somebody else may have held the lock meanwhile. It matches
// ErrUnavailable if the service could not be asked: the release is tried again in the
// background, and the lock ends with its TTL at the latest. Unlock never removes
// somebody else's lock.
func (l *Lease) Unlock(ctx context.Context) error {
	now := time.Now()
	l.mu.Lock()
	if l.err == nil && l.overdue(now) {
		l.mu.Unlock()
		l.expire()
		l.mu.Lock()
	}
	first := l.unlocking == notUnlocked
	if first {
		l.unlocking = unlockBegun
	}
	l.mu.Unlock()
	if first {
		// Counted before the end: Close either ends the lease itself, or waits for
		// this release.
		l.client.asking.add()
		switch {
		case !l.finish(unlocked, ErrUnlocked):
			err := l.Err()
			if errors.Is(err, ErrLost) {
				l.takeBack(unlocked) // in place of that of a lost one, which comes later
			}
			l.finishUnlock(err)
			l.client.asking.done()
		case ctx.Done() == nil || l.client.prompt && ctx.Err() == nil:
			l.letGo(ctx)
		default:
			go l.letGo(context.WithoutCancel(ctx))
		}
	}
	answered := l.unlockAnswered()
	if answered == nil {
		return fromBackend(ctx, l.unlockErr) // its time-out may be the first caller's
	}
	select {
	case <-answered:
		return fromBackend(ctx, l.unlockErr)
	case <-ctx.Done():
		return l.fail("unlock", fmt.Errorf("not confirmed yet, the release goes on in the background: %w",
			ctxError(ctx)))
	}
}

// unlockState is the progress of the first Unlock of a lease.
type unlockState uint8

const (
	notUnlocked unlockState = iota
	unlockBegun
	unlockDone // unlockErr is set, and does not change any more
)

// unlockAnswered returns nil if unlockErr is set, and otherwise a channel that is
// closed when unlockErr is set.
func (l *Lease) unlockAnswered() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unlocking == unlockDone {
		return nil
	}
	if l.unlocked == nil {
		l.unlocked = make(chan struct{})
	}
	return l.unlocked
}

// As asks the hold for a value that only its service has, such as the key of an etcd
// lock or the file of a file lock. target is a non-nil pointer to a type that the
// backend documents. If the backend knows that type, As sets the value and returns
// true; the backend's hold is then an [Aser].
func (l *Lease) As(target any) bool {
	a, ok := l.hold.(Aser)
	return ok && a.As(target)
}

// RaiseToken gives every later holder of this name a token greater than token, for
// example when locks move here from a service that has given out token. The error
// matches [errors.ErrUnsupported] if the service cannot do this, and ErrLost if the
// lease is over.
func (l *Lease) RaiseToken(ctx context.Context, token uint64) error {
	if err := l.Err(); err != nil {
		return l.fail("raise token", err)
	}
	if l.settings.shared {
		return l.fail("raise token", fmt.Errorf("sharers have one token, which rises with the next that holds alone: "+
			"raise it there: %w", errors.ErrUnsupported))
	}
	r, ok := l.hold.(TokenRaiser)
	if !ok {
		return l.fail("raise token", fmt.Errorf("backend %s cannot raise its tokens: %w",
			l.client.guarantees.Backend, errors.ErrUnsupported))
	}
	base := l.client.opts.TokenBase
	if token <= base {
		return nil // TokenBase is added to every token
	}
	_, err := operate(ctx, func() (struct{}, error) { return struct{}{}, r.RaiseToken(ctx, token-base) })
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

var errPanicked = fmt.Errorf("the release is not confirmed, it has panicked: %w", ErrUnavailable)

// letGo releases the lock, and keeps the outcome. If the backend or a function of Trace
// panics, the lock is taken back.
func (l *Lease) letGo(ctx context.Context) {
	defer l.client.asking.done()
	err, returns := errPanicked, false
	defer func() {
		if !returns {
			l.takeBack(unreleased)
		}
		l.finishUnlock(err)
	}()
	err = l.release(ctx)
	returns = true
}

// release asks the service once to release the lock, and leaves the rest to a
// take-back. While MinHold keeps the lock, it sends nothing.
func (l *Lease) release(ctx context.Context) error {
	defer l.leaveLine()
	now := time.Now()
	if l.freeAt(unlocked, now).After(now) {
		l.takeBack(unlocked)
		l.released(ctx, 0, nil)
		return nil
	}
	brief, cancel := l.client.briefly(ctx, now)
	defer cancel()
	if l.client.guarantees.Queue {
		// The next caller in line may ask while the release is in flight: its request
		// comes after the release in the service's queue, and is not refused.
		l.leaveLine()
	}
	err := l.pass(ctx, brief, now)
	switch {
	case err == nil:
	case errors.Is(err, ErrLost):
		err = fmt.Errorf("it was gone before the release: %w", err)
	default:
		l.takeBack(unreleased)
		free := ""
		// Not after a refusal, since the service may keep it for longer, nor without a deadline.
		if errors.Is(err, ErrUnavailable) && l.hasDeadline() {
			free = fmt.Sprintf("; the lock is free after %v at the latest", l.settings.ttl) // MinHold is over
		}
		err = fmt.Errorf("the release is not confirmed and is tried again in the background%s: %w", free, err)
	}
	return err
}

// pass asks the service to let go and, if it can, to give the lock to the next call
// in line at once.
func (l *Lease) pass(ctx, brief context.Context, began time.Time) error {
	c := l.client
	l.mu.Lock()
	ln := l.line
	l.mu.Unlock()
	passer, can := l.hold.(Passer)
	var next *call
	var yield bool
	if can && ln != nil && !l.settings.shared {
		next, yield = c.lines.behind(ln)
	}
	if next == nil {
		err := fromBackend(ctx, l.hold.Release(brief))
		l.released(ctx, time.Since(began), err)
		return err
	}
	to, req := next.request()
	grant, err := passer.Pass(brief, req, yield)
	err = fromBackend(ctx, err)
	took := time.Since(began)
	defer func() { l.released(ctx, took, err) }()
	if grant.Hold == nil {
		return err
	}
	to.hold = grant.Hold
	if err != nil {
		to.takeBack(unused)
		c.attempted(next, took, err)
		return err
	}
	l.mu.Lock()
	l.line = nil
	l.mu.Unlock()
	c.asking.add() // Close waits until it is a lease, or taken back
	if !c.lines.pass(ln, l, next, &passed{to, grant, took}) {
		to.takeBack(unused)
		c.asking.done()
		c.attempted(next, took, context.Canceled)
	}
	return nil
}

// briefly returns a context for a release, which ends with ctx, and after
// unlockTimeout or little more. Releases whose callers set no deadline share one
// context for a second: a timer for each would be four of the twenty allocations of a
// lock and unlock.
func (c *Client) briefly(ctx context.Context, now time.Time) (context.Context, context.CancelFunc) {
	if deadline, ok := ctx.Deadline(); ok && deadline.Sub(now) <= unlockTimeout {
		return ctx, func() {}
	}
	if ctx.Done() != nil {
		limited := clock.Within(ctx, unlockTimeout)
		return limited, limited.Cancel
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !now.Before(c.briefUntil) {
		brief, cancel := context.WithTimeout(c.rest, unlockTimeout+time.Second)
		context.AfterFunc(brief, cancel) // nobody knows when the last release with it is through
		c.brief, c.briefUntil = brief, now.Add(time.Second)
	}
	return carrying(c.brief, ctx), func() {}
}

// carrying returns ctx with the values of another context, too.
func carrying(ctx, values context.Context) context.Context {
	if values == context.Background() {
		return ctx
	}
	return withValues{ctx, values}
}

type withValues struct {
	context.Context
	values context.Context
}

func (c withValues) Value(key any) any {
	if v := c.Context.Value(key); v != nil { // first: the context package looks for its own there
		return v
	}
	return c.values.Value(key)
}

// leaveLine lets the next caller in line ask the service.
func (l *Lease) leaveLine() {
	l.mu.Lock()
	ln := l.line
	l.line = nil
	l.mu.Unlock()
	if ln != nil {
		l.client.lines.release(ln, l)
	}
}

func (l *Lease) finishUnlock(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unlocking, l.unlockErr = unlockDone, l.fail("unlock", err)
	if l.unlocked != nil {
		close(l.unlocked)
	}
}
