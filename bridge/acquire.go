package bridge

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
)

// Acquire takes the lock on the first service and then on the second, each with an owner of its own:
// two URLs of one service then exclude each other, as two programs do.
//
// With req.Wait it waits for one after the other, and keeps the first lock while it waits for the
// second. The holder of the second lock does not wait for the first, unless no service is shared by the
// whole fleet. If Acquire released the first lock at each refusal, it would never get the second lock
// while other programs are in that service's queue, and seldom while others poll faster.
//
// With req.MinHold it does not wait for the second lock but is refused, so that the engine asks again:
// a program that died during the wait would leave the first lock in place for the whole MinHold,
// although nobody held the pair.
func (b *Backend) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	a := attempt{b: b, req: req, h: &hold{b: b}}
	a.req.Label = b.label(req.Label)
	a.ctx, a.end = context.WithCancelCause(ctx)
	defer a.end(nil)
	if !b.begin() {
		return driver.Grant{}, locker.ErrClosed
	}
	defer b.asking.Done()
	defer context.AfterFunc(b.life, func() { a.end(locker.ErrClosed) })()

	g, err := a.run()
	if cause := context.Cause(a.ctx); err != nil && ctx.Err() == nil && cause != nil {
		err = cause // the reason why the second one was given up
	}
	switch {
	case err == nil && b.life.Err() == nil:
		return g, nil
	case err == nil:
		err = locker.ErrClosed
	}
	left := driver.Grant{Hold: a.h}
	if a.giveBack(ctx) {
		left.Hold = nil
	}
	if !errors.Is(err, locker.ErrHeld) {
		return left, err
	}
	left.Refused = &driver.Refusal{Remaining: a.remaining}
	switch {
	case ctx.Err() != nil:
		return left, ctx.Err()
	case left.Hold != nil:
		left.Refused.Undo, left.Hold = a.h.Undo, nil
	}
	return left, nil
}

// attempt is one Acquire.
type attempt struct {
	b   *Backend
	req driver.Request
	ctx context.Context // also ends when waiting for the second lock has become useless
	end context.CancelCauseFunc
	h   *hold

	remaining time.Duration // until the lock that refused it is free; 0: unknown

	heard atomic.Bool // the second service has answered: another holder has the lock there
}

func (a *attempt) run() (driver.Grant, error) {
	apart := min(a.req.TTL, apartAtMost)
	if a.req.MinHold > 0 {
		a.req.MinHold += apart // the services count from before the pair's grant
	}
	first, err := a.ask(0, a.req.Wait)
	if err != nil {
		return driver.Grant{}, err
	}
	stop := a.keep(first)
	second, err := a.ask(1, a.req.Wait && a.req.MinHold == 0)
	v := stop()
	if err == nil && a.ctx.Err() != nil {
		err = context.Cause(a.ctx) // the first lock was lost or the caller left, and the second answered late
	}
	if err != nil {
		return driver.Grant{}, err
	}
	if time.Since(v.Since) > a.req.TTL/10 {
		// Renew, so that the lease begins with a full TTL, as others do.
		if renewed, err := a.h.on[0].Renew(a.ctx); err == nil {
			v = renewed
		} else if errors.Is(err, locker.ErrLost) {
			return driver.Grant{}, a.firstLost(err)
		}
	}
	token, err := a.token(first.Token, second.Token)
	if err != nil {
		return driver.Grant{}, err
	}
	if took := time.Since(first.Validity.Since); a.req.MinHold > 0 && took > apart {
		return driver.Grant{}, fmt.Errorf("granted on both, but %v apart, too late for MinHold: %w", took,
			locker.ErrUnavailable)
	}
	return driver.Grant{Hold: a.h, Validity: ofBoth(v, second.Validity), Token: token}, nil
}

// ask asks one service; with wait, until it grants the lock. If both are the same service, the first
// lock causes the second's first refusal, so it checks for that before it waits. A grant proves that
// they are two.
func (a *attempt) ask(i int, wait bool) (driver.Grant, error) {
	s := &a.b.sides[i]
	req := a.req
	req.Name = s.prefix + req.Name
	if i == 1 {
		half := len(req.Owner) / 2
		req.Owner = req.Owner[half:] + req.Owner[:half] // its own owner, and the same if the request is repeated (R11)
	}
	req.Queued = func() {
		if i == 1 {
			a.heard.Store(true)
		}
		a.req.Queued()
	}
	var poll driver.Poll
	defer poll.End()
	for {
		apart := i == 0 || a.b.apart.Load()
		req.Wait = wait && apart
		var refused atomic.Bool
		req.Lost = func() {
			if refused.Load() {
				return // concerns a refused poll
			}
			a.end(fmt.Errorf("%s: gone while it was being acquired: %w", s.name, locker.ErrUnavailable))
			a.req.Lost()
		}
		g, err := s.Acquire(a.ctx, req)
		err = a.h.on[i].answered(g, err)
		if g.Refused != nil {
			a.remaining = g.Refused.Remaining
		}
		refused.Store(a.h.on[i].Hold == nil && errors.Is(err, locker.ErrHeld) && a.ctx.Err() == nil)
		if !apart && (err == nil || refused.Load()) {
			a.heard.Store(true)
			if refused.Load() {
				if err := a.b.checkApart(a.ctx); err != nil {
					return g, err
				}
			}
			a.b.apart.Store(true)
		}
		if !wait || !refused.Load() {
			return g, s.fail(err)
		}
		if apart { // the service has no queue
			req.Queued()
			poll.Answered(g.Refused)
			if err := poll.Wait(a.ctx, s.Backend, req.Name, 0, 0); err != nil {
				return driver.Grant{}, s.fail(fmt.Errorf("%w (%w)", locker.ErrHeld, err))
			}
		}
		req.Owner = newOwner() // R10
	}
}

// token returns the lease's token, the higher of the two, and raises the other service to it.
func (a *attempt) token(tokens ...uint64) (uint64, error) {
	for i := range tokens {
		if tokens[i] == 0 {
			return 0, nil
		}
		tokens[i] += a.b.sides[i].base
	}
	highest := max(tokens[0], tokens[1])
	for i := range tokens {
		if tokens[i] == highest {
			continue
		}
		if err := a.h.raise(a.ctx, i, highest); err != nil {
			if errors.Is(err, locker.ErrLost) {
				// It was never given out.
				err = fmt.Errorf("granted, but gone at once (%s): %w", err.Error(), locker.ErrUnavailable)
			}
			return 0, a.b.sides[i].fail(err)
		}
	}
	return highest, nil
}

// givingBack bounds how long Acquire waits for the release of the locks that it has. After that, the
// engine continues in the background.
const givingBack = time.Second

// giveBack releases the granted locks, so that they are free when Acquire returns its error. It reports
// whether nothing is left of them.
func (a *attempt) giveBack(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, givingBack)
	defer cancel()
	nothing := true
	for i := range a.h.on {
		p := &a.h.on[i]
		if p.granted && ctx.Err() == nil && p.Release(ctx, 0) == nil {
			p.Hold, p.granted = nil, false
		}
		nothing = nothing && p.Hold == nil && p.leave == nil
	}
	return nothing
}

// newOwner returns 20 random bytes in hexadecimal digits.
func newOwner() string {
	var b [20]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
