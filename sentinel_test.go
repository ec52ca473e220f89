package locker_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/locktest"
)

func assertSentinel(t *testing.T, err error, what string, own bool) {
	t.Helper()
	if err == nil || err == locker.ErrUnlocked { //nolint:errorlint // Lease.Err, bare
		return
	}
	assert.ErrorAs(t, err, new(*locker.Error), what)
	if !own { // the caller's context is not over
		assert.NotErrorIs(t, err, context.DeadlineExceeded, what)
		assert.NotErrorIs(t, err, context.Canceled, what)
	}
	for _, sentinel := range sentinels {
		if errors.Is(err, sentinel) {
			return
		}
	}
	t.Errorf("%s: %v matches nothing", what, err)
}

// granting hands out what a test makes of a grant.
type granting struct {
	*scripted
	change func(*driver.Grant)
}

func (b granting) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	g, err := b.scripted.Acquire(ctx, req)
	if err == nil && b.change != nil {
		b.change(&g)
	}
	return g, err
}

// Every call, with every kind of failure, from every request on.
func TestEveryErrorMatchesASentinel(t *testing.T) {
	type kind struct {
		name  string
		err   error
		grant func(*driver.Grant)
	}
	kinds := []kind{
		{name: "unknown", err: errors.New("WRONGPASS")},
		{name: "time-out of its own", err: fmt.Errorf("dial: %w", context.DeadlineExceeded)},
		{name: "a server's time-out", err: fmt.Errorf("of three: %w: %w", locker.ErrUnavailable,
			context.DeadlineExceeded)},
		{name: "cancelled by itself", err: context.Canceled},
		{name: "unavailable", err: errDown},
		{name: "lost", err: locker.ErrLost},
		{name: "held", err: locker.ErrHeld},
		{name: "no hold", grant: func(g *driver.Grant) { g.Hold = nil }},
		{name: "granted and refused", grant: func(g *driver.Grant) { g.Refused = &driver.Refusal{} }},
		{name: "negative TTL", grant: func(g *driver.Grant) { g.Validity.TTL = -1 }},
		{name: "negative drift", grant: func(g *driver.Grant) { g.Validity.Drift = -time.Second }},
		{name: "over at once", grant: func(g *driver.Grant) { g.Validity.Since = time.Now().Add(-time.Hour) }},
		{name: "token too high", grant: func(g *driver.Grant) { g.Token = locker.MaxToken + 1 }},
	}
	for _, k := range kinds {
		for after := range 12 {
			synctest.Test(t, func(t *testing.T) {
				var calls atomic.Int64
				b := granting{newScripted(), k.grant}
				b.fault = k.err
				b.chance = func() string {
					if n := calls.Add(1); k.err != nil && int(n) > after {
						return "fails"
					}
					return "ok"
				}
				open := driver.Openers{"x": func(ctx context.Context, _ *driver.URL,
					_ driver.Settings) (driver.Backend, error) {
					return b, b.request(ctx, "open", driver.Request{}, func() error { return nil })
				}}
				told := func(err error, what string) {
					t.Helper()
					assertSentinel(t, err, fmt.Sprintf("%s after %d: %s", k.name, after, what), false)
				}
				c, err := locker.Open(t.Context(), "x://", &locker.Options{TTL: ttl, OutageTimeout: time.Second}, open)
				told(err, "open")
				if err != nil {
					return
				}
				minute, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				l, err := c.Lock(minute, "a")
				assertSentinel(t, err, fmt.Sprintf("%s after %d: lock", k.name, after),
					errors.Is(err, locker.ErrHeld))
				assert.True(t, k.grant == nil || err != nil, k.name)
				for range 2 {
					_, err = c.TryLock(t.Context(), "b")
					told(err, "trylock")
				}
				_, err = c.Inspect(t.Context(), "a")
				told(err, "inspect")
				err = c.Break(t.Context(), locker.State{Name: "a", Held: true, Holder: "memory 9"})
				told(err, "break")
				_, err = c.Check(t.Context())
				told(err, "check")
				told(locktest.Lists(t.Context(), c), "list")
				if l != nil {
					told(l.RaiseToken(t.Context(), 1), "raise token")
					told(l.Renew(t.Context()), "renew")
					time.Sleep(ttl)
					told(l.Err(), "err")
					told(l.Unlock(t.Context()), "unlock")
					told(l.Err(), "err")
					told(l.Renew(t.Context()), "renew")
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				defer cancel()
				_, err = c.Lock(ctx, "b")
				assertSentinel(t, err, "lock with a deadline", true)
				told(c.Close(), "close")
				_, err = c.Lock(t.Context(), "a")
				told(err, "lock after close")
				assert.False(t, k.grant != nil && k.name != "no hold" && b.held("a"),
					"%s: what cannot be used is taken back", k.name)
			})
		}
	}
	_, err := locker.New(nil, nil)
	assertSentinel(t, err, "no backend", false)
	_, err = (*locker.Client)(nil).Lock(t.Context(), "a")
	assertSentinel(t, err, "no Client", false)
	_, err = locker.Open(t.Context(), "y://", nil, driver.Openers{})
	assertSentinel(t, err, "no scheme", false)
}
