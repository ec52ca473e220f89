package bridge

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/clock"
)

// patience is for how many TTLs, roughly, the first lock is kept while others hold the second. Without
// it, two programs, one with "A B" and one with "B A", would wait for each other forever.
const patience = 10

// keep renews the first lock every third of the TTL until stop is called, which returns the lock's
// validity. It ends the attempt if the lock is lost, if the second service does not answer for a TTL,
// and when others have held the second lock for too long.
func (a *attempt) keep(first driver.Grant) (stop func() driver.Validity) {
	ctx, cancel := context.WithCancel(a.ctx)
	var lasts atomic.Pointer[driver.Validity]
	lasts.Store(&first.Validity)
	go func() {
		began, most := time.Now(), clock.Jitter(patience*a.req.TTL)
		for pause := a.req.TTL / 3; clock.Sleep(ctx, pause) == nil; {
			limited, end := context.WithTimeout(ctx, a.req.TTL/3)
			v, err := first.Hold.Renew(limited)
			end()
			if ctx.Err() != nil {
				return
			}
			pause = a.req.TTL / 10
			if err == nil {
				lasts.Store(&v)
				pause = a.req.TTL / 3
			}
			if err = a.tooLong(err, lasts.Load().Until(), time.Since(began), most); err != nil {
				a.end(err)
				return
			}
		}
	}()
	return func() driver.Validity {
		cancel()
		return *lasts.Load()
	}
}

// tooLong returns why the first lock, which lasts until until, is no longer kept while waiting for the
// second; nil: it is kept. renewal is the error of its last renewal.
func (a *attempt) tooLong(renewal error, until time.Time, waited, most time.Duration) error {
	first, second := &a.b.sides[0], &a.b.sides[1]
	switch {
	case errors.Is(renewal, locker.ErrLost):
		return a.firstLost(renewal)
	case clock.Passed(until, time.Now()):
		return first.fail(fmt.Errorf("it could not be renewed while waiting for %s: %w: %w", second.name, renewal,
			locker.ErrUnavailable))
	case !a.heard.Load() && waited > a.req.TTL:
		return second.fail(fmt.Errorf("no answer for %v: %w", waited.Round(time.Millisecond), locker.ErrUnavailable))
	case waited > most:
		return second.fail(fmt.Errorf("%w for %v, so %s is released for others", locker.ErrHeld,
			waited.Round(time.Second), first.name))
	}
	return nil
}

func (a *attempt) firstLost(err error) error {
	// It was never given out.
	return a.b.sides[0].fail(fmt.Errorf("gone while waiting for %s (%s): %w",
		a.b.sides[1].name, err.Error(), locker.ErrUnavailable))
}
