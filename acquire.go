package locker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/golockers/locker/internal/clock"
)

// acquire is Lock and TryLock.
func (c *Client) acquire(ctx context.Context, op, name string, wait bool, opts []Option) (*Lease, error) {
	began := time.Now()
	l, err := c.acquireLease(ctx, name, wait, opts)
	if err != nil {
		err = &Error{Op: op, Name: name, Err: err}
	}
	c.lockDone(ctx, op, name, time.Since(began), l, err)
	return l, err
}

func (c *Client) acquireLease(ctx context.Context, name string, wait bool, opts []Option) (*Lease, error) {
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
	ln, err := c.lines.enter(ctx, c.life.Done(), c.opts.Prefix+name, wait)
	if err != nil {
		return nil, err
	}
	if wait {
		defer c.lines.waited()
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

	state  error  // what the last attempt said: ErrHeld, an outage, or nil
	notice notice // by which the backend tells when to ask again
}

// contend makes attempts until one succeeds or it makes no sense to go on.
func (h *head) contend(ctx context.Context) (*Lease, error) {
	defer h.notice.end()
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
		if errors.Is(err, ErrHeld) {
			h.notice.begin(ctx, h.client, h.line.name)
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
		h.state = ErrHeld
		h.client.lines.toldHeld(h.line)
		var held *HeldError
		errors.As(err, &held)
		return h.pollDelay(n, held), h.wait
	case errors.Is(err, ErrUnavailable):
		h.state = err
		sitOut := h.client.lines.outage(h.line, err, h.settings.ttl)
		return clock.Jitter(clock.BackOff(n, firstRetry, lastRetry)), h.wait && sitOut
	}
	return 0, false
}

// The pauses between attempts.
const (
	firstPoll  = 5 * time.Millisecond // nothing tells when the lock is free
	lastPoll   = 500 * time.Millisecond
	backupPoll = 10 * time.Second // Notify tells; the poll is for what it misses
	firstRetry = 20 * time.Millisecond
	lastRetry  = time.Second
	expirySlop = 10 * time.Millisecond // spreads those who wait for the same expiry
)

// pollDelay is how long to wait for a wake-up before asking all the same:
// never longer than the holder's lease lasts (R14).
func (h *head) pollDelay(n int, held *HeldError) time.Duration {
	d := clock.Jitter(backupPoll)
	if h.notice.stop == nil {
		d = clock.Jitter(clock.BackOff(n, firstPoll, lastPoll))
	}
	if held != nil && held.Remaining > 0 && held.Remaining < d {
		d = min(d, held.Remaining+time.Millisecond+clock.UpTo(expirySlop))
	}
	return d
}

// pause waits for a wake-up or for the delay.
func (h *head) pause(ctx context.Context, delay time.Duration) error {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	for {
		select {
		case stop := <-h.notice.answer():
			if !h.notice.begun(stop) {
				continue // the poll does it, and tries again
			}
			// What was released before that told nobody (R14).
		case <-h.notice.wake:
		case <-timer.C:
		case <-ctx.Done():
			return &waitError{ctx: ctxError(ctx), state: h.state}
		case <-h.client.life.Done():
			return ErrClosed
		}
		return nil
	}
}

// ctxError is why ctx is over, with its cause if it was given one.
func ctxError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w (%w)", err, cause)
}
