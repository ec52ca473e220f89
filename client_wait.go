package locker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/golockers/locker/driver"
)

// follow returns nil when it is time for another attempt after a failed one. Its error ends the call.
func (cl *call) follow(ctx context.Context, refused *driver.Refusal, err error) error {
	c, held := cl.client, errors.Is(err, ErrHeld)
	if ctx.Err() != nil {
		return cl.gaveUp(ctx, err)
	}
	tries := cl.poll.Answered(refused)
	cl.state = err
	switch outage := errors.Is(err, ErrUnavailable); {
	case cl.wait && !held && outage && cl.left <= 0 && tries > 1:
		return fmt.Errorf("gave up after %v and %d attempts, the last one: %w", cl.lasted.Round(time.Millisecond),
			tries, err)
	case !cl.wait, !held && (!outage || cl.left <= 0):
		return err
	case cl.place == beside: // it has not waited in the service
		return c.lines.again(ctx, cl)
	}
	if !held || tries == 1 {
		left := cl.left
		if !cl.until.IsZero() {
			left = max(0, min(left, time.Until(cl.until)))
		}
		cl.waiting(err, left)
	}
	_, others := c.lines.count()
	cl.poll.Go = c.busy.run
	if err := cl.poll.Wait(ctx, c.backend, cl.line.name, others, cl.left); err != nil {
		return cl.gaveUp(ctx, err)
	}
	return nil
}

// waitingLog is the interval between log records about one Lock that waits for an outage to end.
const waitingLog = 30 * time.Second

// waiting reports what the caller waits for and, in an outage, how much longer.
func (cl *call) waiting(err error, left time.Duration) {
	now := time.Now()
	if c := cl.client; left > 0 && (cl.logged.IsZero() || now.Sub(cl.logged) >= waitingLog) {
		cl.logged = now
		c.log(slog.LevelWarn, "waiting for the lock service", cl.name, "for", left, "error", err)
	}
	cl.client.tell(cl.values, cl.client.trace.Waiting,
		Event{Op: cl.op, Name: cl.name, Took: now.Sub(cl.began), Left: left, Err: err})
}

// queued returns [driver.Request.Queued] for the next attempt of cl. After that attempt it has no
// effect, because the backend may keep it.
func (cl *call) queued() func() {
	attempt := cl.attempts
	return func() {
		ls := &cl.client.lines
		ls.mu.Lock()
		now := cl.attempts == attempt && cl.place != gone
		first := now && !cl.told
		if now {
			cl.line.answered(true)
			ls.tell(cl.line)
			cl.told = true
			if cl.late {
				cl.cancel(maxWaitError{cl})
			}
		}
		ls.mu.Unlock()
		if first && cl.client.trace.Waiting != nil { // which may end its own goroutine, but not the backend's
			told := make(chan struct{})
			go func() {
				defer close(told)
				cl.waiting(ErrHeld, 0)
			}()
			<-told
		}
	}
}

// gaveUp is the error of a wait that its context or MaxWait has ended.
func (cl *call) gaveUp(ctx context.Context, last error) error {
	state := cl.state // of the last attempt that had an answer or met an outage
	cl.client.lines.mu.Lock()
	if cl.told || state == nil && cl.line.wasHeld() {
		state = ErrHeld
	}
	cl.client.lines.mu.Unlock()
	switch {
	case errors.Is(last, ErrHeld), errors.Is(last, ctx.Err()) && errors.Is(state, ErrHeld):
		state = ErrHeld
	case cl.reached(ctx) && errors.Is(last, ctx.Err()): // nothing new was learned
	case errors.Is(last, ErrUnavailable), !errors.Is(last, ctx.Err()):
		state = last
	case state == nil && errors.Is(last, context.DeadlineExceeded):
		state = fmt.Errorf("no answer yet (%w): %w", last, ErrUnavailable)
	}
	return cl.ended(ctx, state)
}

// ended is the error of a wait that ctx has ended; state is the last known state of the lock.
func (cl *call) ended(ctx context.Context, state error) error {
	switch {
	case isClosing(ctx):
		return ErrClosed
	case cl.reached(ctx) && state != nil:
		return state
	}
	return waited(ctxError(ctx), state)
}

// maxWaitError is the cause with which MaxWait ends the context of a call that has an answer. It
// identifies the call: a backend built on another Client makes calls within this context.
type maxWaitError struct{ *call }

func (maxWaitError) Error() string { return "MaxWait is reached" }

func (cl *call) reached(ctx context.Context) bool {
	return context.Cause(ctx) == error(maxWaitError{cl}) //nolint:errorlint // exactly this call's
}

// atMaxWait adds to err, the reason why the call has no lock, that MaxWait was reached.
func (cl *call) atMaxWait(err error) error {
	is := func(target error) bool { return errors.Is(err, target) }
	if cl.until.IsZero() || time.Now().Before(cl.until) || !is(ErrHeld) && !is(ErrUnavailable) ||
		slices.ContainsFunc(timeouts, is) {
		return err
	}
	return fmt.Errorf("MaxWait is reached: %w", err)
}

// leave ends the wait of the call. If it has no lock, it also removes the call from its line, and the
// backend's note for it from the service.
func (cl *call) leave() {
	cl.poll.End()
	if cl.lease != nil {
		return
	}
	c := cl.client
	c.lines.mu.Lock()
	defer c.lines.mu.Unlock()
	c.lines.remove(cl)
	c.removeNote(cl.note) // none comes after this
}

// removeNote removes a note, if there is one, in the background.
func (c *Client) removeNote(note *driver.Refusal) {
	if note == nil {
		return
	}
	c.busy.run(func() {
		ctx, cancel := context.WithTimeout(c.rest, unlockTimeout)
		defer cancel()
		_ = note.Leave(ctx) // the note expires by itself
	})
}
