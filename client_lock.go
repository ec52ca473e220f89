package locker

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/golockers/locker/internal/clock"
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
	l, err := c.contend(ctx, op, name, began, wait, opts)
	if err != nil {
		err = &Error{Op: op, Name: name, Err: err}
	}
	c.lockDone(ctx, op, name, time.Since(began), l, err)
	return l, err
}

// contend waits in the line for name, and at its head makes attempts until one
// succeeds or further ones make no sense.
func (c *Client) contend(ctx context.Context, op, name string, began time.Time, wait bool, opts []Option) (*Lease, error) {
	if c.optErr != nil {
		return nil, c.optErr
	}
	if err := checkName(name); err != nil {
		return nil, err
	}
	s, err := c.settingsFor(opts)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, ctxError(ctx)
	}
	ctx, cancel := c.untilClose(ctx)
	defer cancel(nil)
	m := limits{wait: wait, began: began, patience: s.patience}
	h := head{client: c, op: op, name: name, limits: m, settings: s}
	if c.tracing {
		h.values = context.WithoutCancel(ctx)
	}
	ln, err := c.lines.enter(ctx, cancel, c.opts.Prefix+name, &h)
	if err != nil {
		return nil, err
	}
	h.line = ln
	defer h.notice.end()
	left, away, state := c.lines.patience(ln, m, nil)
	if wait && left <= 0 && h.passed == nil {
		err = h.outOfPatience(away, state) // with those before it in line
	}
	var l *Lease
	for l == nil && err == nil {
		if l, err = h.attempt(ctx); err != nil {
			err = h.pause(ctx, err)
		}
	}
	if err != nil {
		c.lines.leave(ln)
		return nil, err
	}
	return l, nil
}

// head is the caller at the head of a line: the only caller of this client that asks
// the service for the name (R13).
type head struct {
	client   *Client
	line     *line
	op, name string
	limits
	settings settings
	values   context.Context // for Trace

	state  error     // what is in the way: ErrHeld, why the service cannot be asked, or nil
	tries  int       // attempts that have found that in the way, one after the other
	logged time.Time // when Options.Logger was told last
	notice notice    // by which the backend tells when to ask again

	passed *attempt // which who was at the head before has made; nil once it is used
}

// attempt is one request for the lock, and its answer.
type attempt struct {
	lease *Lease
	grant Grant
	took  time.Duration
}

// attempt asks the service once, with an owner of its own (R10), and makes a
// lease of the answer.
func (h *head) attempt(ctx context.Context) (*Lease, error) {
	c := h.client
	if h.passed != nil {
		return h.take()
	}
	l, req := h.request(h.line.name)
	if _, none := c.backend.(Notifier); h.wait && !none { // a Notifier has no queue
		req.Queued = h.queued()
	}
	began := time.Now()
	// Close waits until this count is zero: a granted lock is then either held, or
	// being taken back.
	c.asking.add()
	var grant Grant
	var err error
	switch {
	case c.isClosed():
		err = ErrClosed // Close may not have seen the count, and have closed the backend
	case c.prompt:
		grant, err = l.ask(ctx, req)
	default:
		grant, err = l.askAside(ctx, req)
	}
	if err == nil {
		err = l.begin(h.line, grant)
	}
	c.asking.done()
	c.attempted(h, time.Since(began), err)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// request is a new attempt, and the lease that it may become.
func (h *head) request(name string) (*Lease, Request) {
	l := &Lease{client: h.client, name: h.name, settings: h.settings, values: h.values}
	req := Request{
		Name:    name,
		Owner:   newOwner(),
		Label:   h.client.opts.Label,
		TTL:     h.settings.ttl,
		MinHold: h.settings.minHold,
		Wait:    h.wait,
		Lost:    l.goneByService,
	}
	if h.wait {
		req.Queued = ignore
	}
	return l, req
}

// take makes a lease of what was granted to the head when the one before it was
// released.
func (h *head) take() (*Lease, error) {
	defer h.client.asking.done()
	p := h.passed
	h.passed = nil
	err := p.lease.begin(h.line, p.grant)
	h.client.attempted(h, p.took, err)
	if err != nil {
		return nil, err
	}
	return p.lease, nil
}

func ignore() {}

// ask calls Acquire. If the outcome is not known, it arranges for a take-back.
func (l *Lease) ask(ctx context.Context, req Request) (Grant, error) {
	g, err := l.client.backend.Acquire(ctx, req)
	switch {
	case err == nil && g.Hold == nil:
		err = errors.New("the backend granted nothing: its Grant has no Hold")
	case err != nil && g.Hold != nil:
		l.takeBackAt(time.Now(), g.Hold, true)
	}
	return g, fromBackend(ctx, err)
}

// lastWord is how long a backend may take to return after its context ended. The
// caller waits no longer than that (R8).
const lastWord = 100 * time.Millisecond

// askAside is ask in a goroutine of its own, for a backend that may not return in
// time. The caller does not wait for a goroutine that is late; a lock that is granted
// late is taken back.
func (l *Lease) askAside(ctx context.Context, req Request) (Grant, error) {
	type answer struct {
		grant Grant
		err   error
	}
	reply, left := make(chan answer), make(chan struct{})
	l.client.asking.run(func() {
		g, err := l.ask(ctx, req)
		select {
		case reply <- answer{g, err}:
		case <-left:
			if err == nil {
				l.takeBackAt(time.Now(), g.Hold, false)
			}
		}
	})
	select {
	case a := <-reply:
		return a.grant, a.err
	case <-ctx.Done():
	}
	timer := time.NewTimer(lastWord)
	defer timer.Stop()
	select {
	case a := <-reply:
		return a.grant, a.err
	case <-timer.C:
	}
	close(left)
	return Grant{}, ctxError(ctx)
}

// pause decides after a failed attempt whether to make another one, and waits until
// it is time for that. Its error ends the call.
func (h *head) pause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return h.gaveUp(ctx, err)
	}
	c := h.client
	var delay time.Duration
	switch {
	case errors.Is(err, ErrHeld):
		c.lines.toldHeld(h.line)
		if !h.wait {
			return err
		}
		if h.count(ErrHeld) == 1 {
			h.waiting(ErrHeld, 0)
		}
		h.notice.begin(ctx, c, h.line.name)
		var held *HeldError
		errors.As(err, &held)
		delay = h.pollDelay(held)
	case errors.Is(err, ErrUnavailable):
		left, away, _ := c.lines.patience(h.line, h.limits, err)
		if !h.wait {
			return err
		}
		h.count(err)
		if left <= 0 {
			return h.outOfPatience(away, err)
		}
		h.waiting(err, left)
		delay = min(clock.Jitter(clock.BackOff(h.tries-1, firstRetry, lastRetry)), left)
	default:
		return err
	}
	return h.sleep(ctx, delay)
}

// count returns how many attempts in a row have failed for this kind of reason.
func (h *head) count(state error) int {
	if errors.Is(h.state, ErrHeld) != errors.Is(state, ErrHeld) {
		h.tries = 0
	}
	h.state = state
	h.tries++
	return h.tries
}

// outOfPatience is the error of a Lock that gives up on an outage. away is how long
// the outage has lasted.
func (h *head) outOfPatience(away time.Duration, err error) error {
	if h.tries < 2 {
		return err
	}
	return fmt.Errorf("gave up after %v and %d attempts, the last one: %w", away.Round(time.Millisecond), h.tries, err)
}

// waitingLog is the time between two log records about one Lock that waits for an
// outage to end.
const waitingLog = 30 * time.Second

// waiting reports what the caller waits for and, in an outage, for how much longer.
func (h *head) waiting(err error, left time.Duration) {
	now := time.Now()
	if c := h.client; left > 0 && (h.logged.IsZero() || now.Sub(h.logged) >= waitingLog) {
		h.logged = now
		c.opts.Logger.Warn("locker: waiting for the lock service", "name", h.name, "backend", c.guarantees.Backend, "for", left, "error", err)
	}
	if told := h.client.trace.Waiting; told != nil {
		told(h.values, Event{Op: h.op, Name: h.name, Took: now.Sub(h.began), Left: left, Err: err})
	}
}

// queued is [Request.Queued] of an attempt of this head.
func (h *head) queued() func() {
	c, ln := h.client, h.line
	told := c.trace.Waiting
	if told == nil {
		return func() { c.lines.toldHeld(ln) }
	}
	began, values, e := h.began, h.values, Event{Op: h.op, Name: h.name, Err: ErrHeld}
	var once sync.Once
	return func() {
		c.lines.toldHeld(ln)
		once.Do(func() {
			e.Took = time.Since(began)
			told(values, e)
		})
	}
}

// gaveUp is the error of a wait that was ended by its context.
func (h *head) gaveUp(ctx context.Context, last error) error {
	state := h.state
	switch {
	case errors.Is(context.Cause(ctx), ErrClosed):
		return ErrClosed
	case errors.Is(last, ErrHeld):
		state = ErrHeld
	case errors.Is(last, ErrUnavailable), !errors.Is(last, ctx.Err()):
		state = last
	case state == nil && errors.Is(last, context.DeadlineExceeded):
		state = fmt.Errorf("no answer yet (%w): %w", last, ErrUnavailable)
	}
	return &waitError{ctx: ctxError(ctx), state: state}
}

// The pauses between attempts.
const (
	firstPoll  = 5 * time.Millisecond // nothing tells when the lock is free
	lastPoll   = 500 * time.Millisecond
	backupPoll = 10 * time.Second // Notify tells; the poll is for what it misses
	lastBackup = time.Minute      // where a hundred thousand wait, so that all together ask some thousand times a second
	firstRetry = 20 * time.Millisecond
	lastRetry  = time.Second
	expirySlop = 10 * time.Millisecond // spreads those who wait for the same expiry
)

// pollDelay is how long to wait for a wake-up before asking without one: never longer
// than the holder's lease lasts (R14).
func (h *head) pollDelay(held *HeldError) time.Duration {
	_, waiting := h.client.lines.count()
	d := clock.Jitter(max(backupPoll, min(time.Duration(waiting)*time.Millisecond, lastBackup)))
	if h.notice.stop == nil {
		d = clock.Jitter(clock.BackOff(h.tries-1, firstPoll, lastPoll))
	}
	if held != nil && held.Remaining > 0 && held.Remaining < d {
		d = min(d, held.Remaining+time.Millisecond+clock.UpTo(expirySlop))
	}
	return d
}

// sleep waits for a wake-up or for the delay.
func (h *head) sleep(ctx context.Context, delay time.Duration) error {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	for {
		select {
		case stop := <-h.notice.reply:
			if !h.notice.begun(stop) {
				continue // the poll does it, and tries again
			}
			// A release before that sent no wake-up (R14).
		case <-h.notice.wake:
		case <-timer.C:
		case <-ctx.Done():
			return h.gaveUp(ctx, ctx.Err())
		}
		return nil
	}
}

// notice passes the wake-ups of a [Notifier] to the head of a line. Polling goes on
// while Notify has not returned, however long that takes: progress never rests on it
// (R14).
type notice struct {
	wake   chan struct{} // told by the backend
	reply  chan func()   // brings what Notify returned, once, nil if it failed; nil: it is not under way
	cancel context.CancelFunc
	stop   func() // ends what Notify began; nil: it has not
}

// begin calls Notify in the background, once.
func (n *notice) begin(ctx context.Context, c *Client, name string) {
	notifier, ok := c.backend.(Notifier)
	if !ok || n.stop != nil || n.reply != nil {
		return
	}
	wake, reply := make(chan struct{}, 1), make(chan func())
	ctx, n.cancel = context.WithCancel(ctx)
	n.wake, n.reply = wake, reply
	c.asking.run(func() {
		stop, err := notifier.Notify(ctx, name, func() {
			select {
			case wake <- struct{}{}:
			default:
			}
		})
		if err != nil {
			stop = nil
		}
		select {
		case reply <- stop:
		case <-ctx.Done():
			if stop != nil {
				stop()
			}
		}
	})
}

// begun takes the result of Notify, and reports whether the backend sends wake-ups
// from now on.
func (n *notice) begun(stop func()) bool {
	n.cancel()
	n.reply, n.stop = nil, stop
	return stop != nil
}

func (n *notice) end() {
	if n.reply != nil {
		n.cancel()
	}
	if n.stop != nil {
		n.stop()
	}
}

// newOwner returns 20 random bytes in hexadecimal digits.
func newOwner() string {
	var b [20]byte
	_, _ = rand.Read(b[:]) // never fails
	var digits [2 * len(b)]byte
	hex.Encode(digits[:], b[:])
	return string(digits[:])
}

// ctxError is the error of ctx, with its cause if it has one.
func ctxError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, ErrClosed) {
		return ErrClosed
	}
	if cause == nil || errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w (%w)", err, cause)
}
