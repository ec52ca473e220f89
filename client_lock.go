package locker

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"
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
	began := time.Now()
	cl := &call{client: c, op: op, name: name, wait: wait, began: began}
	returns := false
	defer func() {
		if !returns {
			cl.abandon()
		}
	}()
	l, err := c.contend(ctx, cl, opts)
	if err != nil {
		err = &Error{Op: op, Name: name, Err: err}
	}
	c.lockDone(ctx, op, name, time.Since(began), l, err)
	returns = true
	return l, err
}

// abandon clears up after a call that does not return, since the backend or a function of
// Trace has panicked: its caller may recover, and go on with the Client.
func (cl *call) abandon() {
	switch {
	case cl.lease != nil:
		go func() { _ = cl.lease.Unlock(context.Background()) }()
	case cl.line != nil:
		cl.leave()
	}
}

// contend waits in the line for the name of cl, and at its head makes attempts until
// one succeeds or further ones make no sense.
func (c *Client) contend(ctx context.Context, cl *call, opts []Option) (*Lease, error) {
	if c.optErr != nil {
		return nil, c.optErr
	}
	err := checkName(cl.name)
	if err == nil {
		cl.settings, err = c.settingsFor(opts)
	}
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, ctxError(ctx)
	}
	ctx, cl.cancel = c.untilClose(ctx)
	defer cl.cancel(nil)
	if c.tracing {
		cl.values = context.WithoutCancel(ctx)
	}
	if err := c.lines.enter(ctx, c.opts.Prefix+cl.name, cl); err != nil {
		return nil, err
	}
	defer cl.poll.End()
	for {
		l, err := cl.attempt(ctx)
		if err == nil {
			return l, nil
		}
		if err = cl.follow(ctx, err); err != nil {
			cl.leave()
			return nil, err
		}
	}
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
	beside        bool   // it asks beside the first of its line, and does not wait in the service
	turn          uint64 // in the order of all calls
	before, after *call
	ready         chan struct{} // closed when it may ask, or is sent away
	away          error         // why it was sent away
	won           *passed       // by the holder before it; nil once it is used
	lease         *Lease        // what it has got

	// What it knows of the service.
	state  error     // what is in the way: ErrHeld, why the service cannot be asked, or nil
	logged time.Time // when Options.Logger was told last
	poll   Poll
	note   *HeldError // the last answer that had a Leave; nil: there is no note
}

// passed is a lock that the release before acquired for a call (see [Passer]).
type passed struct {
	lease *Lease
	grant Grant
	took  time.Duration
}

// attempt asks the service once, with an owner of its own (R10), and makes a
// lease of the answer.
func (cl *call) attempt(ctx context.Context) (*Lease, error) {
	c := cl.client
	if cl.won != nil {
		return cl.take()
	}
	l, req := cl.request()
	if cl.beside {
		req.Wait = false // it waits in the line
	} else if _, notifies := c.backend.(Notifier); cl.wait && !notifies { // a Notifier has no queue
		told := &asked{line: cl.line}
		req.Queued = cl.queued(told)
		defer c.lines.over(told)
	}
	began := time.Now()
	err := cl.try(ctx, l, req)
	c.attempted(cl, time.Since(began), err)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// try asks the service, and begins the lease. Close waits for its end: a granted lock is
// then either held, or being taken back.
func (cl *call) try(ctx context.Context, l *Lease, req Request) (err error) {
	c := cl.client
	c.asking.add()
	defer c.asking.done()
	var grant Grant
	switch {
	case c.isClosed():
		err = ErrClosed // Close may not have seen the count, and have closed the backend
	case c.prompt:
		grant, err = l.ask(ctx, req)
	default:
		grant, err = l.askAside(ctx, req)
	}
	if err == nil {
		err = l.begin(cl, grant, false)
	}
	cl.answered(err)
	return err
}

// request is a new attempt, and the lease that it may become.
func (cl *call) request() (*Lease, Request) {
	l := &Lease{client: cl.client, name: cl.name, settings: cl.settings, values: cl.values}
	req := Request{
		Name:    cl.line.name,
		Owner:   newOwner(),
		Label:   cl.settings.label,
		TTL:     cl.settings.ttl,
		MinHold: cl.settings.minHold,
		Wait:    cl.wait,
		Shared:  cl.settings.shared,
		Lost:    l.goneByService,
	}
	if cl.wait {
		req.Queued = ignore
	}
	return l, req
}

// take makes a lease of what was granted to the call when the lease before it was
// released.
func (cl *call) take() (*Lease, error) {
	defer cl.client.asking.done()
	won := cl.won
	cl.won = nil
	err := won.lease.begin(cl, won.grant, true)
	cl.client.attempted(cl, won.took, err)
	if err != nil {
		return nil, err
	}
	return won.lease, nil
}

func ignore() {}

// ask calls Acquire. If the outcome is not known, it arranges for a take-back.
func (l *Lease) ask(ctx context.Context, req Request) (Grant, error) {
	g, err := l.client.backend.Acquire(ctx, req)
	l.hold = g.Hold
	switch {
	case err == nil && g.Hold == nil:
		err = errors.New("the backend granted nothing: its Grant has no Hold")
	case err != nil && g.Hold != nil:
		l.takeBack(unused)
	}
	return g, fromBackend(ctx, err)
}

// lastWord is how long a backend may take to return after its context ended. The
// caller waits no longer than that (R8).
const lastWord = 100 * time.Millisecond

// askAside is ask for a backend that may not return in time. A lock that is granted
// late is taken back.
func (l *Lease) askAside(ctx context.Context, req Request) (Grant, error) {
	ask := func() (Grant, error) { return l.ask(ctx, req) }
	return inTime(ctx, l.client.asking.run, ask, func(_ Grant, err error) {
		if err == nil {
			l.takeBack(unused)
		} else if note := noteOf(err); note != nil {
			l.client.removeNote(note)
		}
	})
}

// inTime lets run call f in a goroutine of its own, and returns what f returns, or the
// error of ctx if f has not returned shortly after ctx ended (R8). Then late gets what
// f returns.
func inTime[T any](
	ctx context.Context, run func(func()), f func() (T, error), late func(T, error),
) (T, error) {
	type answer struct {
		v   T
		err error
	}
	reply, left := make(chan answer), make(chan struct{})
	run(func() {
		v, err := f()
		select {
		case reply <- answer{v, err}:
		case <-left:
			late(v, err)
		}
	})
	select {
	case a := <-reply:
		return a.v, a.err
	case <-ctx.Done():
	}
	timer := time.NewTimer(lastWord)
	defer timer.Stop()
	select {
	case a := <-reply:
		return a.v, a.err
	case <-timer.C:
	}
	close(left)
	var none T
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
	return fmt.Errorf("%w (%w)", err, causeError{cause})
}
