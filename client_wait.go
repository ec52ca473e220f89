package locker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// sequel is what follows an attempt that was not granted.
type sequel uint8

const (
	ends   sequel = iota // the call ends
	stands               // it waits in its line until it may ask again: at once, if it is the first
	polls                // it asks again after a pause, or when it is woken
)

// sequelOf is what follows err, the answer to an attempt of a call that waits, or does not;
// that has asked beside the first of its line, and is now the first, or is not; and that has
// so much left of its patience with an outage.
func sequelOf(err error, wait, beside, first bool, left time.Duration) sequel {
	held := errors.Is(err, ErrHeld)
	switch {
	case !wait, !held && (left <= 0 || !errors.Is(err, ErrUnavailable)):
		return ends
	case beside && (held || !first): // it has not waited in the service
		return stands
	}
	return polls
}

// follow returns nil when it is time for another attempt after one that has failed. Its
// error ends the call.
func (cl *call) follow(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return cl.gaveUp(ctx, err)
	}
	c := cl.client
	var first bool
	var lasted, left time.Duration
	held, outage := errors.Is(err, ErrHeld), errors.Is(err, ErrUnavailable)
	if held || outage {
		first, lasted, left = c.lines.refused(cl, err, !held)
		cl.poll.count(err)
		cl.state = err
	}
	switch sequelOf(err, cl.wait, cl.beside, first, left) {
	case ends:
		if tries := cl.poll.tries; cl.wait && outage && !held && tries > 1 {
			err = fmt.Errorf("gave up after %v and %d attempts, the last one: %w", lasted.Round(time.Millisecond), tries, err)
		}
		return err
	case stands:
		return c.lines.again(ctx, cl)
	}
	cl.beside = false
	if !held || cl.poll.tries == 1 {
		cl.waiting(err, left)
	}
	_, others := c.lines.count()
	delay := cl.poll.delay(err, others)
	if held {
		cl.poll.listen(ctx, c.backend, cl.line.name, c.asking.run)
	} else {
		delay = min(delay, left)
	}
	if err := cl.poll.sleep(ctx, delay); err != nil {
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
		c.opts.Logger.Warn("locker: waiting for the lock service", "name", cl.name, "backend",
			c.guarantees.Backend, "for", left, "error", err)
	}
	if told := cl.client.trace.Waiting; told != nil {
		if left == 0 {
			err = ErrHeld
		}
		told(cl.values, Event{Op: cl.op, Name: cl.name, Took: now.Sub(cl.began), Left: left, Err: err})
	}
}

// queued is [Request.Queued] of an attempt of this call.
func (cl *call) queued(a *asked) func() {
	c, told := cl.client, cl.client.trace.Waiting
	if told == nil {
		return func() { c.lines.toldHeld(a) }
	}
	began, values, e := cl.began, cl.values, Event{Op: cl.op, Name: cl.name, Err: ErrHeld}
	var once sync.Once
	return func() {
		if c.lines.toldHeld(a) {
			once.Do(func() {
				e.Took = time.Since(began)
				told(values, e)
			})
		}
	}
}

// gaveUp is the error of a wait that was ended by its context.
func (cl *call) gaveUp(ctx context.Context, last error) error {
	state := cl.state
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
	return &waitError{ctx: ctxError(ctx), state: state}
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

// leave takes the call out of its line, and what the backend has noted for it out of the service.
func (cl *call) leave() {
	c, note, place := cl.client, cl.note, cl.note
	cl.note = nil // once, also if a function of Trace panics afterwards
	if note == nil || note.AskWithin > 0 {
		place = nil // it is the call's own
		c.removeNote(note)
	}
	c.removeNote(c.lines.leave(cl, place))
	if note != nil {
		c.asking.done()
	}
}

// removeNote removes a note, if there is one, in the background.
func (c *Client) removeNote(note *HeldError) {
	if note == nil {
		return
	}
	c.asking.run(func() {
		ctx, cancel := context.WithTimeout(c.rest, unlockTimeout)
		defer cancel()
		_ = note.Leave(ctx) // the note ends by itself
	})
}
