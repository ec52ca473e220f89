package locker

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/golockers/locker/driver"
)

// Lock waits until it holds name. See [Locker].
func (c *Client) Lock(ctx context.Context, name string, opts ...Option) (*Lease, error) {
	return c.lock(ctx, "lock", name, true, opts)
}

// TryLock locks name if nobody holds it. See [Locker].
func (c *Client) TryLock(ctx context.Context, name string, opts ...Option) (*Lease, error) {
	return c.lock(ctx, "trylock", name, false, opts)
}

func (c *Client) lock(ctx context.Context, op, name string, wait bool, opts []Option) (*Lease, error) {
	cl := &call{client: c, op: op, name: name, wait: wait, began: time.Now()}
	returns := false
	defer func() {
		// The backend or a function of Trace has panicked: the caller may recover, and go on with the Client.
		if l := cl.lease; !returns && l != nil && l.finish(unlocked, ErrUnlocked) {
			l.takeBack(unused)
			c.lines.release(l)
		}
	}()
	err := c.contend(ctx, cl, opts)
	if err != nil {
		err = &Error{Op: op, Name: name, Err: err}
	}
	cl.done(ctx, time.Since(cl.began), err)
	returns = true
	return cl.lease, err
}

// contend waits in the line for the name of cl, and at its head makes attempts until
// one succeeds or further ones make no sense.
func (c *Client) contend(ctx context.Context, cl *call, opts []Option) error {
	err := cmp.Or(c.optErr, checkName(cl.name))
	if err == nil {
		cl.settings, err = c.settingsFor(opts)
	}
	if err == nil && ctx.Err() != nil {
		err = ctxError(ctx)
	}
	if err == nil {
		err = cl.notNested(ctx)
	}
	if err != nil {
		return err
	}
	ctx, cl.cancel = c.untilClose(ctx)
	defer cl.cancel(nil)
	if c.opts.Trace != nil {
		cl.values = ctx
	}
	c.busy.add() // Close waits for its end: what was granted is then held, or being taken back
	defer c.busy.done()
	if err = c.lines.enter(ctx, c.opts.Prefix+cl.name, cl); err != nil {
		return err
	}
	defer cl.leave()
	for cl.lease == nil {
		var refused *driver.Refusal
		if refused, err = cl.attempt(ctx); err != nil {
			err = cl.follow(ctx, refused, err)
		}
		if err != nil {
			return err
		}
	}
	if cl.took > 0 { // it was passed to the call
		c.attempted(cl, cl.took, nil)
	}
	return nil
}

// call is one Lock or TryLock, from its beginning until it returns.
type call struct {
	client   *Client
	op, name string
	wait     bool
	began    time.Time
	settings settings
	values   context.Context         // for Trace
	cancel   context.CancelCauseFunc // ends its context; Close calls it

	// Where it stands; lines.mu guards these fields. Once ready is closed, they are
	// the call's own.
	line          *line
	place         place
	attempts      uint32 // that were refused, or met an outage
	told          bool   // that the next one waits in the service
	before, after *call
	ready         chan struct{} // closed when it may ask, or is sent away
	away          error         // why it was sent away
	lease         *Lease        // what it has got
	took          time.Duration // the request that has passed it on

	// What it knows of the service.
	logged time.Time // when Options.Logger was told last
	poll   driver.Poll
	state  error           // the last answer after which it waited
	lasted time.Duration   // the outage that it has met last
	left   time.Duration   // how much longer it waits for that to end
	note   *driver.Refusal // the last answer that had a note of the call's own; nil: there is none
}

// attempt asks the service once, with an owner of its own (R10), and makes a lease of what was granted.
func (cl *call) attempt(ctx context.Context) (*driver.Refusal, error) {
	c, began := cl.client, time.Now()
	l, refused, err := cl.try(ctx)
	if err == nil {
		if err = c.lines.grant(cl, l); err != nil {
			l.takeBack(unused)
		}
	}
	if err != nil {
		if l.crowded(began, err) {
			refused = &driver.Refusal{AskWithin: roomPoll}
			err = fmt.Errorf("%w, maybe by what this client takes back: %w", ErrHeld, unlikeError{err, sentinels})
		}
		c.lines.noted(cl, refused)
		if ctx.Err() == nil || errors.Is(err, ErrHeld) { // else there may be no answer
			cl.lasted, cl.left = c.lines.refused(cl, err) // before Trace is told: it may try the same name
		}
	}
	c.attempted(cl, time.Since(began), err)
	return refused, err
}

// roomPoll is how long a sharer waits for room that no wake-up tells of.
const roomPoll = 500 * time.Millisecond

// crowded reports whether err, the answer to a request that began then, refuses a sharer since the service may have
// counted others of the client that have left, but are still being taken back.
func (l *Lease) crowded(began time.Time, err error) bool {
	if !l.settings.Shared || !errors.Is(err, ErrRefused) {
		return false
	}
	c := l.client
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := !c.undoneAt.Before(began)
	for other := range c.pending {
		counts = counts || !other.refused && other.settings.Shared && other.name == l.name
	}
	return counts
}

// try asks the service.
func (cl *call) try(ctx context.Context) (l *Lease, refused *driver.Refusal, err error) {
	c := cl.client
	var req driver.Request
	if l, req = cl.request(); cl.place == beside {
		req.Wait = false // it waits in the line
	} else if _, notifies := c.backend.(driver.Notifier); cl.wait && !notifies { // a Notifier has no queue
		req.Queued = cl.queued()
	}
	switch {
	case c.isClosed():
		return l, nil, ErrClosed // Close may have given up waiting, and closed the backend
	case c.prompt:
		refused, err = l.ask(ctx, req)
	default:
		// The backend may not return in time. A lock that is granted late is taken back (R8).
		ask := func() (*driver.Refusal, error) { return l.ask(ctx, req) }
		refused, err = inTime(ctx, c.busy.run, ask, func(refused *driver.Refusal, err error) {
			if err == nil {
				l.takeBack(unused)
			}
			c.lines.late(cl, refused)
		})
	}
	return l, refused, err
}

// request is a new attempt, and the lease that it may become.
func (cl *call) request() (*Lease, driver.Request) {
	l := &Lease{client: cl.client, name: cl.name, settings: cl.settings, values: cl.values}
	req := driver.Request{
		Name:    cl.line.name,
		Owner:   newOwner(),
		Label:   cl.settings.Label,
		TTL:     cl.settings.TTL,
		MinHold: cl.settings.MinHold,
		Wait:    cl.wait,
		Shared:  cl.settings.Shared,
		Lost:    l.goneByService,
	}
	if cl.wait {
		req.Queued = ignore
	}
	return l, req
}

func ignore() {}

// ask calls Acquire. If something may be left of it that is no lease, it arranges for a take-back.
func (l *Lease) ask(ctx context.Context, req driver.Request) (*driver.Refusal, error) {
	g, err := l.client.backend.Acquire(ctx, req)
	refused := g.Refused != nil
	if refused && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrUnavailable) {
		err = nil // ctx ends in a moment, and it is known who has the lock
	}
	switch err = fromBackend(ctx, err); {
	case errors.Is(err, ErrHeld):
		err = faulty(fmt.Errorf("it gave an error in place of a Refusal: %w", unlikeError{err, sentinels}))
	case err == nil && refused && g.Hold != nil:
		err = errBoth
	case err == nil && refused:
		err = ErrHeld
	case err == nil && g.Hold == nil:
		err = faulty(errors.New("it neither granted the lock nor refused it"))
	case refused && ctx.Err() != nil && errors.Is(err, ctx.Err()):
		err = waited(err, ErrHeld)
	}
	if !errors.Is(err, ErrHeld) {
		refused = false // an outage is none (R17)
	}
	if l.grant = g; err != nil && (g.Hold != nil || g.Refused != nil && g.Refused.Undo != nil) {
		l.refused = errors.Is(err, ErrRefused)
		l.takeBack(unused)
	}
	if !refused {
		return nil, err
	}
	return g.Refused, err
}

var errBoth = faulty(errors.New("it both granted the lock and refused it"))

// faulty is the error of an answer that no backend may give.
func faulty(err error) error { return fmt.Errorf("%w: a fault of the backend: %w", ErrRefused, err) }

// lastWord is how long a backend may take to return after its context ended. The
// caller waits no longer than that (R8).
const lastWord = 100 * time.Millisecond

// errEnded is that of a request whose code has panicked, or has ended its goroutine (runtime.Goexit), as
// FailNow of a test does in a function of Trace.
var errEnded = fmt.Errorf("its code has not returned: %w", ErrUnavailable)

// inTime lets run call f in a goroutine of its own, and returns what f returns, or the
// error of ctx if f has not returned shortly after ctx ended (R8). Then late gets what
// f returns.
func inTime[T any](ctx context.Context, run func(func()), f func() (T, error), late func(T, error)) (none T, _ error) {
	type answer struct {
		value T
		err   error
	}
	reply, left := make(chan answer), make(chan struct{})
	run(func() {
		a := answer{err: errEnded}
		defer func() {
			select {
			case reply <- a:
			case <-left:
				late(a.value, a.err)
			}
		}()
		a.value, a.err = f()
	})
	select {
	case a := <-reply:
		return a.value, a.err
	case <-ctx.Done():
	}
	timer := time.NewTimer(lastWord)
	defer timer.Stop()
	select {
	case a := <-reply:
		return a.value, a.err
	case <-timer.C:
	}
	close(left)
	return none, ctxError(ctx)
}

// newOwner returns 20 random bytes in hexadecimal digits.
func newOwner() string {
	var b [20]byte
	_, _ = rand.Read(b[:]) // never fails
	var digits [2 * len(b)]byte
	hex.Encode(digits[:], b[:])
	return string(digits[:])
}

// isClosing reports whether Close of this call's own client has ended ctx.
func isClosing(ctx context.Context) bool {
	return context.Cause(ctx) == errClosing //nolint:errorlint // another client's is another
}

// ctxError is the error of ctx, with its cause if it has one.
func ctxError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if isClosing(ctx) {
		return ErrClosed
	}
	if cause == nil || errors.Is(err, cause) {
		return err
	}
	// What became of another lock says nothing of this one.
	return fmt.Errorf("%w (%w)", err, unlikeError{cause, sentinels})
}
