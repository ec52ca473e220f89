// Package queue is what the queues of readers and writers that lock services keep have in common: who holds, who
// waits, and the wait itself. Places are in the order in which they came. It does no I/O.
package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/clock"
	"github.com/golockers/locker/internal/session"
)

// Split divides the places of a queue into those that hold and those that wait: the first holds alone, or with all
// sharers up to the first that is none.
func Split[T any](places []T, shared func(T) bool) (hold, wait []T) {
	n := min(1, len(places))
	for n > 0 && n < len(places) && shared(places[0]) && shared(places[n]) {
		n++
	}
	return places[:n], places[n:]
}

// Place is one that waits.
type Place[T any] interface {
	// Ahead asks what is in its way. nil: nothing, so that it holds. No place can come before another later.
	Ahead(ctx context.Context) (*T, error)
	// Await returns nil when it is time to ask again: what was in the way is gone, also if it had gone before Await
	// was called, or may be.
	Await(ctx context.Context, ahead *T) error
	// Lost reports whether an error of these says that the place is gone, or that asking again does not help.
	Lost(err error) bool
}

// The pauses after a request that has failed.
const (
	firstPause = 20 * time.Millisecond
	lastPause  = time.Second
)

// Wait returns nil when nothing is in the way of p any more. ahead is what was when its place was made; nil: that is
// not known. queued is called when the service has said that something is.
//
// A failed request loses no place: p waits for as long as its session lives. The error is the session's if that is
// over, or that of the request with which p was Lost. If ctx ends, it matches ctx.Err(), and ErrHeld only if the
// service has said so and is not silent since: an outage is not "held" (R17).
func Wait[T any](ctx context.Context, s *session.Session, p Place[T], ahead *T, queued func()) error {
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(s.Context(), stop)()
	held := false
	for failures := 0; ; {
		var err error
		if ahead == nil {
			if ahead, err = p.Ahead(waiting); err == nil && ahead == nil {
				return nil
			}
		}
		if err == nil {
			held = true
			queued()
			err = p.Await(waiting, ahead)
		}
		ahead = nil
		over := s.Err()
		switch {
		case over != nil:
			return over
		case err == nil && ctx.Err() == nil:
			failures = 0
			continue
		case ctx.Err() != nil:
			return leave(ctx, s, held, err)
		case p.Lost(err):
			return err
		}
		_ = clock.Sleep(waiting, clock.Jitter(clock.BackOff(failures, firstPause, lastPause)))
		failures++
	}
}

// leave is the error of a wait that its context has ended.
func leave(ctx context.Context, s *session.Session, held bool, err error) error {
	_, behind := s.Validity()
	switch {
	case held && behind == nil:
		err = driver.ErrHeld
	case held:
		err = fmt.Errorf("%w: %w", driver.ErrUnavailable, behind)
	case errors.Is(err, ctx.Err()):
		return err
	}
	return fmt.Errorf("%w while waiting in the queue: %w", ctx.Err(), err)
}
