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

// patience is for how many TTLs, more or less, the first lock is kept while others
// hold the second one. Otherwise two programs, one with "A B" and one with "B A",
// would wait for each other for ever.
const patience = 10

// keep renews the first lock every third of the TTL, until stop is called, which returns
// how long it lasts. It ends the attempt if the lock is lost, if the second service does
// not answer for a TTL, and when the others have had it for too long.
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

// tooLong returns why the first lock, which lasts until then, is not kept any longer for
// the second one, which has been waited for; nil: it is. renewal is the error of its last
// renewal.
func (a *attempt) tooLong(renewal error, until time.Time, waited, most time.Duration) error {
	first, second := &a.b.sides[0], &a.b.sides[1]
	switch {
	case errors.Is(renewal, locker.ErrLost):
		return a.firstLost(renewal)
	case clock.Passed(until, time.Now()):
		return first.fail(fmt.Errorf("it could not be renewed while %s was waited for: %w: %w", second.name, renewal,
			locker.ErrUnavailable))
	case !a.heard.Load() && waited > a.req.TTL:
		return second.fail(fmt.Errorf("no answer for %v: %w", waited.Round(time.Millisecond), locker.ErrUnavailable))
	case waited > most:
		return second.fail(fmt.Errorf("%w for %v, %s is given back for others", locker.ErrHeld,
			waited.Round(time.Second), first.name))
	}
	return nil
}

func (a *attempt) firstLost(err error) error {
	// Nobody was told that it holds.
	return a.b.sides[0].fail(fmt.Errorf("gone while %s was waited for (%s): %w",
		a.b.sides[1].name, err.Error(), locker.ErrUnavailable))
}
