package locker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/golockers/locker/internal/clock"
)

// pause decides after a failed attempt whether to make another one, and waits until
// it is time for that. Its error ends the call.
func (cl *call) pause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return cl.gaveUp(ctx, err)
	}
	c := cl.client
	var delay time.Duration
	switch {
	case errors.Is(err, ErrHeld):
		c.lines.toldHeld(cl.line)
		if !cl.wait {
			return err
		}
		if cl.place == joining {
			return c.lines.again(ctx, cl)
		}
		if cl.count(ErrHeld) == 1 {
			cl.waiting(ErrHeld, 0)
		}
		cl.notice.begin(ctx, c, cl.line.name)
		var held *HeldError
		errors.As(err, &held)
		delay = cl.pollDelay(held)
	case errors.Is(err, ErrUnavailable):
		lasted, left := c.lines.outage(cl, err)
		if !cl.wait {
			return err
		}
		cl.count(err)
		if left <= 0 {
			return cl.outOfPatience(lasted, err)
		}
		if cl.place == joining {
			return c.lines.again(ctx, cl)
		}
		cl.waiting(err, left)
		delay = min(clock.Jitter(clock.BackOff(cl.tries-1, firstRetry, lastRetry)), left)
	default:
		return err
	}
	return cl.sleep(ctx, delay)
}

// count returns how many attempts in a row have failed for this kind of reason.
func (cl *call) count(state error) int {
	if errors.Is(cl.state, ErrHeld) != errors.Is(state, ErrHeld) {
		cl.tries = 0
	}
	cl.state = state
	cl.tries++
	return cl.tries
}

// outOfPatience is the error of a Lock that gives up on an outage.
func (cl *call) outOfPatience(lasted time.Duration, err error) error {
	if cl.tries < 2 {
		return err
	}
	return fmt.Errorf("gave up after %v and %d attempts, the last one: %w", lasted.Round(time.Millisecond),
		cl.tries, err)
}

// waitingLog is the time between two log records about one Lock that waits for an
// outage to end.
const waitingLog = 30 * time.Second

// waiting reports what the caller waits for and, in an outage, for how much longer.
func (cl *call) waiting(err error, left time.Duration) {
	now := time.Now()
	if c := cl.client; left > 0 && (cl.logged.IsZero() || now.Sub(cl.logged) >= waitingLog) {
		cl.logged = now
		c.opts.Logger.Warn("locker: waiting for the lock service", "name", cl.name, "backend",
			c.guarantees.Backend, "for", left, "error", err)
	}
	if told := cl.client.trace.Waiting; told != nil {
		told(cl.values, Event{Op: cl.op, Name: cl.name, Took: now.Sub(cl.began), Left: left, Err: err})
	}
}

// queued is [Request.Queued] of an attempt of this call.
func (cl *call) queued() func() {
	c, ln := cl.client, cl.line
	told := c.trace.Waiting
	if told == nil {
		return func() { c.lines.toldHeld(ln) }
	}
	began, values, e := cl.began, cl.values, Event{Op: cl.op, Name: cl.name, Err: ErrHeld}
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
func (cl *call) gaveUp(ctx context.Context, last error) error {
	state := cl.state
	switch {
	case isClosing(ctx):
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
func (cl *call) pollDelay(held *HeldError) time.Duration {
	_, waiting := cl.client.lines.count()
	d := clock.Jitter(max(backupPoll, min(time.Duration(waiting)*time.Millisecond, lastBackup)))
	if cl.notice.stop == nil {
		d = clock.Jitter(clock.BackOff(cl.tries-1, firstPoll, lastPoll))
	}
	if held != nil && held.Remaining > 0 && held.Remaining < d {
		d = min(d, held.Remaining+time.Millisecond+clock.UpTo(expirySlop))
	}
	if held != nil && held.AskWithin > 0 {
		d = min(d, held.AskWithin)
	}
	return d
}

// answered keeps what removes the note that the answer to an attempt tells of. Close waits
// for the end of a call that has a note: for its grant, which removes the note, or for the
// removal.
func (cl *call) answered(err error) {
	c, noted := cl.client, cl.note != nil
	if err == nil {
		cl.note = nil
	} else if note := noteOf(err); note != nil {
		cl.note = note
	}
	switch has := cl.note != nil; {
	case has && !noted:
		c.asking.add()
	case noted && !has:
		c.asking.done()
	}
}

// noteOf returns the answer to a refused request that has left a note in the service; nil: there is none.
func noteOf(err error) *HeldError {
	var held *HeldError
	if errors.As(err, &held) && held.Leave != nil {
		return held
	}
	return nil
}

// leaveService removes, in the background, what the backend has noted for a call that does not wait any
// more. If others of the client do, the client's place is theirs: it stays.
func (cl *call) leaveService(others bool) {
	if cl.note == nil {
		return
	}
	if !others || cl.note.AskWithin > 0 {
		cl.client.removeNote(cl.note)
	}
	cl.note = nil // once, also if a function of Trace panics afterwards
	cl.client.asking.done()
}

func (c *Client) removeNote(note *HeldError) {
	c.asking.run(func() {
		ctx, cancel := context.WithTimeout(c.rest, unlockTimeout)
		defer cancel()
		_ = note.Leave(ctx) // the note ends by itself
	})
}

// sleep waits for a wake-up or for the delay.
func (cl *call) sleep(ctx context.Context, delay time.Duration) error {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	for {
		select {
		case stop := <-cl.notice.reply:
			if !cl.notice.begun(stop) {
				continue // the poll does it, and tries again
			}
			// A release before that sent no wake-up (R14).
		case <-cl.notice.wake:
		case <-timer.C:
		case <-ctx.Done():
			return cl.gaveUp(ctx, ctx.Err())
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
