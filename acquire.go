package locker

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// acquire is Lock and TryLock.
func (c *Client) acquire(ctx context.Context, op, name string, wait bool, opts []Option) (*Lease, error) {
	began := time.Now()
	l, err := c.acquireLease(ctx, name, wait, opts)
	if err != nil {
		return nil, &Error{Op: op, Name: name, Err: err}
	}
	c.acquired(l, time.Since(began))
	return l, nil
}

func (c *Client) acquireLease(ctx context.Context, name string, wait bool, opts []Option) (*Lease, error) {
	if c.optErr != nil {
		return nil, c.optErr
	}
	if err := checkName(name); err != nil {
		return nil, err
	}
	s, err := c.settingsFor(c.backend.Guarantees(), opts)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, ctxError(ctx)
	}
	if wait {
		c.counters.waiting.Add(1)
		defer c.counters.waiting.Add(-1)
	}
	ln, err := c.lines.enter(ctx, c.closing, c.opts.Prefix+name, wait)
	if err != nil {
		return nil, err
	}
	h := head{client: c, line: ln, name: name, settings: s, wait: wait}
	l, err := h.contend(ctx)
	if err != nil {
		c.lines.leave(ln)
		return nil, err
	}
	return l, nil
}

// head is the caller at the head of a line: the only one of this client that
// asks the service for the name.
type head struct {
	client   *Client
	line     *line
	name     string
	settings settings
	wait     bool

	told  bool          // the service has said "held" to this caller
	state error         // what the last attempt said: ErrHeld, an outage, or nil
	until time.Time     // how long an outage is sat out
	wake  chan struct{} // told by the backend's Notify
	stop  func()        // ends it
}

// contend makes attempts until one succeeds or it makes no sense to go on.
func (h *head) contend(ctx context.Context) (*Lease, error) {
	defer func() {
		if h.stop != nil {
			h.stop()
		}
	}()
	for n := 0; ; n++ {
		l, err := h.attempt(ctx)
		if err == nil {
			return l, nil
		}
		if errors.Is(err, ErrClosed) {
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, h.gaveUp(ctx, err)
		}
		delay, again := h.next(n, err)
		if !again {
			return nil, err
		}
		if h.told && h.subscribe(ctx) {
			continue // what was released before the subscription told nobody (R14)
		}
		if err := h.pause(ctx, delay); err != nil {
			return nil, err
		}
	}
}

// gaveUp is the error of a wait that its context ended.
func (h *head) gaveUp(ctx context.Context, last error) error {
	state := h.state
	switch {
	case errors.Is(last, ErrHeld):
		state = ErrHeld
	case errors.Is(last, ErrUnavailable):
		state = last
	case !errors.Is(last, ctx.Err()):
		return last
	case state == nil && errors.Is(last, context.DeadlineExceeded):
		state = fmt.Errorf("no answer yet (%w): %w", last, ErrUnavailable)
	}
	return &waitError{ctx: ctxError(ctx), state: state}
}

// next decides, after an attempt that failed, whether there is to be another
// one, and after how long.
func (h *head) next(n int, err error) (delay time.Duration, again bool) {
	switch {
	case errors.Is(err, ErrHeld):
		h.told, h.state, h.until = true, ErrHeld, time.Time{}
		h.client.lines.report(h.line, nil)
		var held *HeldError
		errors.As(err, &held)
		return h.pollDelay(n, held), h.wait
	case errors.Is(err, ErrUnavailable):
		h.state = err
		h.client.lines.report(h.line, err)
		if h.until.IsZero() {
			h.until = time.Now().Add(h.settings.ttl)
		}
		return jitter(backOff(n, firstRetry, lastRetry)), h.wait && h.told && time.Now().Before(h.until)
	}
	return 0, false
}

// The pauses between attempts.
const (
	firstPoll  = 5 * time.Millisecond // nothing tells when the lock is free
	lastPoll   = 500 * time.Millisecond
	backupPoll = 5 * time.Second // Notify tells; the poll is for what it misses
	firstRetry = 20 * time.Millisecond
	lastRetry  = time.Second
	expirySlop = 10 * time.Millisecond // spreads those who wait for the same expiry
)

// pollDelay is how long to wait for a wake-up before asking all the same:
// never longer than the holder's lease lasts (R14).
func (h *head) pollDelay(n int, held *HeldError) time.Duration {
	d := jitter(backupPoll)
	if h.stop == nil {
		d = jitter(backOff(n, firstPoll, lastPoll))
	}
	if held != nil && held.Remaining > 0 {
		d = min(d, held.Remaining+time.Millisecond+randomUpTo(expirySlop))
	}
	return d
}

// subscribe asks the backend, once, to tell when the name may be free. It
// reports whether it now does and did not before.
func (h *head) subscribe(ctx context.Context) bool {
	notifier, ok := h.client.backend.(Notifier)
	if !ok || h.stop != nil {
		return false
	}
	wake := make(chan struct{}, 1)
	stop, err := notifier.Notify(ctx, h.line.name, func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return false // polling does it; the next attempt tries again
	}
	h.wake, h.stop = wake, stop
	return true
}

// pause waits for a wake-up or for the delay.
func (h *head) pause(ctx context.Context, delay time.Duration) error {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-h.wake:
	case <-timer.C:
	case <-ctx.Done():
		return &waitError{ctx: ctxError(ctx), state: h.state}
	case <-h.client.closing:
		return ErrClosed
	}
	return nil
}

// attempt asks the service once, with an owner of its own (R10), and makes a
// lease of the answer.
func (h *head) attempt(ctx context.Context) (*Lease, error) {
	c := h.client
	l := &Lease{client: c, name: h.name, settings: h.settings}
	began := time.Now()
	grant, err := c.ask(ctx, l, Request{
		Name:  h.line.name,
		Owner: newOwner(),
		Label: c.opts.Label,
		TTL:   h.settings.ttl,
		Wait:  h.wait,
		Lost:  l.goneByService,
	})
	if err == nil {
		err = h.grant(l, grant)
	}
	c.attempted(h.name, time.Since(began), err)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// grant makes l a lease that is held, or says why it cannot be used; what was
// granted is taken back then.
func (h *head) grant(l *Lease, g Grant) error {
	c := h.client
	l.hold, l.token, l.start = g.Hold, g.Token, g.Validity.Since
	now := time.Now()
	if l.start.IsZero() {
		l.start = now
	}
	err := ErrClosed
	if c.lines.hold(h.line, l) {
		if err = h.begin(l, g, now); err == nil {
			return nil
		}
		c.lines.drop(h.line)
	}
	c.schedule.remove(l)
	c.takeBackAt(now, l.name, g.Hold, l.settings.ttl, false)
	return err
}

// begin checks what was granted and starts the lease.
func (h *head) begin(l *Lease, g Grant, now time.Time) error {
	if g.Token != 0 {
		l.token += h.client.opts.TokenBase
		if l.token < g.Token {
			return fmt.Errorf("token %d + TokenBase %d overflows: give a lower TokenBase", g.Token, h.client.opts.TokenBase)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case errors.Is(l.err, ErrClosed):
		return ErrClosed
	case l.err != nil:
		return fmt.Errorf("granted and at once gone again: %w", ErrUnavailable)
	}
	l.extend(g.Validity, now)
	if l.overdue(now) {
		l.err = ErrLost
		return fmt.Errorf("granted, but the answer took %v of a lease of %v: %w", now.Sub(l.start), g.Validity.TTL, ErrUnavailable)
	}
	l.granted, l.line = true, h.line
	return nil
}

// answer is what Acquire returned.
type answer struct {
	grant Grant
	err   error
}

// The states of a question to the backend.
const (
	asked int32 = iota
	answered
	abandoned
)

// lastWord is how long a backend may take to say, after its context ended,
// what it knows of the lock. The caller waits no longer than that (R8).
const lastWord = 100 * time.Millisecond

// ask calls Acquire, and leaves it alone when ctx or the client ends before it
// returns. What it then brings is taken back.
func (c *Client) ask(ctx context.Context, l *Lease, req Request) (Grant, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var state atomic.Int32
	reply := make(chan answer, 1)
	c.asking.add()
	go func() {
		defer c.asking.done()
		grant, err := c.backend.Acquire(ctx, req)
		if err == nil && grant.Hold == nil {
			err = errors.New("the backend granted nothing: its Grant has no Hold")
		}
		if err != nil && grant.Hold != nil {
			c.takeBackAt(time.Now(), l.name, grant.Hold, req.TTL, true)
			grant = Grant{}
		}
		if state.CompareAndSwap(asked, answered) {
			reply <- answer{grant, err}
		} else if err == nil {
			c.takeBackAt(time.Now(), l.name, grant.Hold, req.TTL, false)
		}
	}()
	select {
	case a := <-reply:
		return a.grant, a.err
	case <-c.closing:
		cancel(ErrClosed)
	case <-ctx.Done():
	}
	timer := time.NewTimer(lastWord)
	defer timer.Stop()
	var a answer
	select {
	case a = <-reply:
	case <-timer.C:
		if state.CompareAndSwap(asked, abandoned) {
			a.err = ctxError(ctx)
		} else {
			a = <-reply
		}
	}
	if c.isClosed() {
		if a.err == nil {
			c.takeBackAt(time.Now(), l.name, a.grant.Hold, req.TTL, false)
		}
		return Grant{}, ErrClosed
	}
	return a.grant, a.err
}

// newOwner returns 20 random bytes in hexadecimal digits.
func newOwner() string {
	var b [20]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// ctxError is why ctx is over, with its cause if it was given one.
func ctxError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w (%w)", err, cause)
}
