package locker

import (
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
	if c == nil {
		return nil, &Error{Op: op, Name: name, Err: invalid("the Locker is nil")}
	}
	cl := &call{client: c, op: op, name: name, wait: wait, began: time.Now()}
	returns := false
	defer func() {
		// The backend or a Trace function has panicked: the caller may recover, and continue to use the
		// Client.
		if l := cl.lease; !returns && l != nil && l.finish(unlocked, ErrUnlocked) {
			l.takeBack(unused)
			c.lines.release(l)
		}
	}()
	err := c.contend(ctx, cl, opts)
	if err != nil {
		err = &Error{Op: op, Name: name, Err: cl.atMaxWait(err)}
	}
	cl.done(ctx, time.Since(cl.began), err)
	returns = true
	return cl.lease, err
}

// contend waits in the line for cl's name. At its head, it makes attempts until one succeeds or trying
// on is useless.
func (c *Client) contend(ctx context.Context, cl *call, opts []Option) error {
	err := checkName(cl.name)
	if err == nil {
		cl.settings, err = c.settingsFor(opts)
	}
	maxWait := cl.settings.MaxWait
	switch {
	case err != nil:
	case maxWait != nil && !cl.wait:
		err = invalid("TryLock does not wait: leave MaxWait out")
	case ctx.Err() != nil:
		err = ctxError(ctx)
	}
	cl.wait = cl.wait && (maxWait == nil || *maxWait > 0)
	if err == nil {
		err = notNested(ctx, c, cl.name, cl.wait)
	}
	if err != nil {
		return err
	}
	bounded := cl.wait && maxWait != nil
	ctx, cl.cancel = c.untilClose(ctx, bounded)
	defer cl.cancel(nil)
	if c.opts.Trace != nil {
		cl.values = ctx
	}
	c.busy.add() // Close waits for it: what was granted is then held, or being taken back
	defer c.busy.done()
	if bounded {
		cl.until = cl.began.Add(*maxWait)
		defer time.AfterFunc(time.Until(cl.until), func() { c.lines.timeUp(cl) }).Stop()
	}
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
	if cl.took > 0 { // the lock was passed to the call
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
	until    time.Time // when MaxWait has passed; zero: never
	settings settings
	values   context.Context         // for Trace
	cancel   context.CancelCauseFunc // ends its context; Close calls it too

	// Where it stands; lines.mu guards these fields. Once ready is closed, they belong to the call.
	line          *line
	place         place
	attempts      uint32 // refused, or ended by an outage
	told          bool   // that the next attempt waits in the service
	late          bool   // MaxWait has passed
	before, after *call
	ready         chan struct{}   // closed when it may ask, or is sent away
	away          error           // why it was sent away
	lease         *Lease          // its lease
	took          time.Duration   // of the request that passed the lock to it
	note          *driver.Refusal // the last answer with a note for this call; nil: none

	// What it knows of the service.
	logged time.Time // when Options.Logger was last called
	poll   driver.Poll
	state  error         // the last answer after which it waited
	lasted time.Duration // how long the last outage has lasted
	left   time.Duration // how much longer it waits for that to end
}

// attempt asks the service once, with a fresh owner (R10), and makes a lease of a grant.
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
			err = fmt.Errorf("%w, maybe by locks that this client is taking back: %w", ErrHeld, unlikeError{err, sentinels})
		}
		c.lines.noted(cl, refused)
		if ctx.Err() == nil || errors.Is(err, ErrHeld) { // else there may be no answer
			cl.lasted, cl.left = c.lines.refused(cl, err) // before Trace is called: it may try the same name
		}
	}
	c.attempted(cl, time.Since(began), err)
	return refused, err
}

// roomPoll is how long a sharer waits for room, which no wake-up reports.
const roomPoll = 500 * time.Millisecond

// crowded reports whether err, the answer to a request sent at began, may refuse a sharer only because
// the service still counts sharers of this client that are being taken back.
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
		req.Wait = false // it waits in line
	} else if _, notifies := c.backend.(driver.Notifier); cl.wait && !notifies { // a Notifier has no queue
		req.Queued = cl.queued()
	}
	switch {
	case c.isClosed():
		return l, nil, ErrClosed // Close may have given up waiting and closed the backend
	case c.prompt:
		refused, err = l.ask(ctx, req)
	default:
		// The backend may not return in time. A late grant is taken back (R8).
		ask := func() (*driver.Refusal, error) { return l.ask(ctx, req) }
		refused, err = inTime(ctx, c.busy.run, ask, func(refused *driver.Refusal, err error) {
			if err == nil {
				l.takeBack(unused)
			}
			c.lines.noted(cl, refused)
		})
	}
	return l, refused, err
}

// request makes a new attempt, and the lease that it may become.
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
		req.Queued = func() {}
	}
	return l, req
}

// ask calls Acquire. If that may have left something other than a lease, it arranges for a take-back.
func (l *Lease) ask(ctx context.Context, req driver.Request) (*driver.Refusal, error) {
	g, err := l.client.backend.Acquire(ctx, req)
	refused := g.Refused != nil
	if refused && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrUnavailable) {
		err = nil // ctx is about to end, and another is known to have the lock
	}
	switch err = fromBackend(ctx, err); {
	case errors.Is(err, ErrHeld):
		err = faulty(fmt.Errorf("it returned an error instead of a Refusal: %w", unlikeError{err, sentinels}))
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
		refused = false // an outage is no refusal (R17)
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

// faulty is the error for an answer that no backend may give.
func faulty(err error) error { return fmt.Errorf("%w: a fault of the backend: %w", ErrRefused, err) }

// lastWord is how long a caller waits for the backend to return after the context has ended (R8).
const lastWord = 100 * time.Millisecond

// errEnded is the error of a request whose code has panicked or ended its goroutine (runtime.Goexit),
// as a test's FailNow does in a Trace function.
var errEnded = fmt.Errorf("its code has not returned: %w", ErrUnavailable)

// inTime lets run call f in a goroutine, and returns its result, or the error of ctx if f has not
// returned shortly after ctx ended (R8). In that case late gets the result of f.
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
	return context.Cause(ctx) == errClosing //nolint:errorlint // not that of another client
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
	// The fate of another lock says nothing about this one.
	return fmt.Errorf("%w (%w)", err, unlikeError{cause, sentinels})
}
