package locker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/golockers/locker/driver"
)

// sequel is what follows an attempt that was not granted.
type sequel uint8

const (
	ends   sequel = iota // the call ends
	stands               // it waits in its line until it may ask again: at once, if it is the first
	polls                // it asks again after a pause, or when it is woken
)

// sequelOf is what follows err, the answer to an attempt of a call that waits, or does not; that
// stands beside the first of its line, or is the first; and that has so much left of its patience
// with an outage.
func sequelOf(err error, wait bool, at place, left time.Duration) sequel {
	switch held := errors.Is(err, ErrHeld); {
	case !wait, !held && (left <= 0 || !errors.Is(err, ErrUnavailable)):
		return ends
	case at == beside: // it has not waited in the service
		return stands
	}
	return polls
}

// follow returns nil when it is time for another attempt after one that has failed. Its
// error ends the call.
func (cl *call) follow(ctx context.Context, refused *driver.Refusal, err error) error {
	c, held := cl.client, errors.Is(err, ErrHeld)
	if ctx.Err() != nil {
		return cl.gaveUp(ctx, err)
	}
	tries := cl.poll.Answered(refused)
	cl.state = err
	switch sequelOf(err, cl.wait, cl.place, cl.left) {
	case ends:
		if cl.wait && !held && tries > 1 && errors.Is(err, ErrUnavailable) {
			err = fmt.Errorf("gave up after %v and %d attempts, the last one: %w", cl.lasted.Round(time.Millisecond),
				tries, err)
		}
		return err
	case stands:
		return c.lines.again(ctx, cl)
	}
	if !held || tries == 1 {
		cl.waiting(err, cl.left)
	}
	atMost := time.Duration(0)
	if !held {
		atMost = cl.left
	}
	_, others := c.lines.count()
	cl.poll.Go = c.busy.run
	if err := cl.poll.Wait(ctx, c.backend, cl.line.name, others, atMost); err != nil {
		return cl.gaveUp(ctx, err)
	}
	return nil
}

// waitingLog is the time between two log records about one Lock that waits for an
// outage to end.
const waitingLog = 30 * time.Second

// waiting reports what the caller waits for and, in an outage, for how much longer.
func (cl *call) waiting(err error, left time.Duration) {
	now := time.Now()
	if c := cl.client; left > 0 && (cl.logged.IsZero() || now.Sub(cl.logged) >= waitingLog) {
		cl.logged = now
		c.log(slog.LevelWarn, "waiting for the lock service", cl.name, "for", left, "error", err)
	}
	cl.client.tell(cl.values, cl.client.trace.Waiting,
		Event{Op: cl.op, Name: cl.name, Took: now.Sub(cl.began), Left: left, Err: err})
}

// queued returns [driver.Request.Queued] of the next attempt of cl. It has no meaning when that is over: the backend
// may keep it.
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
		}
		ls.mu.Unlock()
		if first && cl.client.trace.Waiting != nil { // which may end its goroutine, but not the backend's
			told := make(chan struct{})
			go func() {
				defer close(told)
				cl.waiting(ErrHeld, 0)
			}()
			<-told
		}
	}
}

// gaveUp is the error of a wait that was ended by its context.
func (cl *call) gaveUp(ctx context.Context, last error) error {
	state := cl.state // of the last attempt that had an answer, or met an outage
	cl.client.lines.mu.Lock()
	if cl.told || state == nil && cl.line.wasHeld() {
		state = ErrHeld
	}
	cl.client.lines.mu.Unlock()
	switch {
	case isClosing(ctx):
		return ErrClosed
	case errors.Is(last, ErrHeld), errors.Is(last, ctx.Err()) && errors.Is(state, ErrHeld):
		state = ErrHeld
	case errors.Is(last, ErrUnavailable), !errors.Is(last, ctx.Err()):
		state = last
	case state == nil && errors.Is(last, context.DeadlineExceeded):
		state = fmt.Errorf("no answer yet (%w): %w", last, ErrUnavailable)
	}
	return waited(ctxError(ctx), state)
}

// leave ends the wait of the call. If it has no lock, it takes the call out of its line, and what the
// backend has noted for it out of the service.
func (cl *call) leave() {
	cl.poll.End()
	if cl.lease != nil {
		return
	}
	c := cl.client
	c.removeNote(cl.note)
	c.lines.mu.Lock()
	defer c.lines.mu.Unlock()
	c.lines.remove(cl)
}

// removeNote removes a note, if there is one, in the background.
func (c *Client) removeNote(note *driver.Refusal) {
	if note == nil {
		return
	}
	c.busy.run(func() {
		ctx, cancel := context.WithTimeout(c.rest, unlockTimeout)
		defer cancel()
		_ = note.Leave(ctx) // the note ends by itself
	})
}
