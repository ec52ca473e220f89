package locker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/golockers/locker"
)

// sentinels are what every error that leaves the library matches.
var sentinels = []error{
	locker.ErrHeld, locker.ErrLost, locker.ErrUnlocked, locker.ErrClosed, locker.ErrUnavailable,
	locker.ErrRefused, locker.ErrInvalid,
	errors.ErrUnsupported, context.Canceled, context.DeadlineExceeded,
}

func assertSentinel(t *testing.T, err error, what string, own bool) {
	t.Helper()
	sentinels := sentinels
	if !own { // the caller's context is not over
		sentinels = sentinels[:len(sentinels)-2]
	}
	if err == nil || err == locker.ErrUnlocked { //nolint:errorlint // Lease.Err, bare
		return
	}
	assert.ErrorAs(t, err, new(*locker.Error), what)
	if !own {
		assert.NotErrorIs(t, err, context.DeadlineExceeded, what)
		assert.NotErrorIs(t, err, context.Canceled, what)
	}
	for _, s := range sentinels {
		if errors.Is(err, s) {
			return
		}
	}
	t.Errorf("%s: %v matches nothing", what, err)
}

// broken fails as any driver might, from the call with the number after on.
type broken struct {
	*able
	after int
	err   error
	grant func(*locker.Grant)
	calls atomic.Int64
}

func (b *broken) fails() error {
	if b.calls.Add(1) > int64(b.after) {
		return b.err
	}
	return nil
}

func (b *broken) Acquire(ctx context.Context, req locker.Request) (locker.Grant, error) {
	if err := b.fails(); err != nil {
		return locker.Grant{}, err
	}
	g, err := b.fake.Acquire(ctx, req)
	if err == nil {
		g.Hold = &brokenHold{g.Hold, b}
		if b.grant != nil {
			b.grant(&g)
		}
	}
	return g, err
}

func (b *broken) Inspect(context.Context, string) (locker.State, error) {
	return locker.State{}, b.fails()
}
func (b *broken) Break(context.Context, locker.State) error       { return b.fails() }
func (b *broken) Check(context.Context) ([]locker.Finding, error) { return nil, b.fails() }
func (b *broken) Close() error                                    { return b.fails() }
func (b *broken) List(context.Context, string) iter.Seq2[locker.State, error] {
	return func(yield func(locker.State, error) bool) {
		if err := b.fails(); err != nil {
			yield(locker.State{}, err)
		}
	}
}

type brokenHold struct {
	locker.Hold
	b *broken
}

func (h *brokenHold) RaiseToken(context.Context, uint64) error { return h.b.fails() }
func (h *brokenHold) Release(ctx context.Context) error {
	if err := h.b.fails(); err != nil {
		return err
	}
	return h.Hold.Release(ctx)
}

func (h *brokenHold) Undo(ctx context.Context) error {
	if err := h.b.fails(); err != nil {
		return err
	}
	return h.Hold.Undo(ctx)
}

func (h *brokenHold) Renew(ctx context.Context) (locker.Validity, error) {
	if err := h.b.fails(); err != nil {
		return locker.Validity{}, err
	}
	return h.Hold.Renew(ctx)
}

// Every call, with every kind of failure, from every request on.
func TestEveryErrorMatchesASentinel(t *testing.T) {
	type kind struct {
		name  string
		err   error
		grant func(*locker.Grant)
	}
	kinds := []kind{
		{name: "unknown", err: errors.New("WRONGPASS")},
		{name: "EOF", err: io.EOF},
		{name: "closed", err: fmt.Errorf("read: %w", net.ErrClosed)},
		{name: "time-out of its own", err: fmt.Errorf("dial: %w", context.DeadlineExceeded)},
		{name: "a server's time-out", err: fmt.Errorf("two of three: %w: %w",
			locker.ErrUnavailable, context.DeadlineExceeded)},
		{name: "cancelled by itself", err: context.Canceled},
		{name: "unavailable", err: errDown},
		{name: "lost", err: locker.ErrLost},
		{name: "held", err: &locker.HeldError{}},
		{name: "no hold", grant: func(g *locker.Grant) { g.Hold = nil }},
		{name: "negative TTL", grant: func(g *locker.Grant) { g.Validity.TTL = -1 }},
		{name: "over at once",
			grant: func(g *locker.Grant) { g.Validity.Since = time.Now().Add(-time.Hour) }},
		{name: "token too high", grant: func(g *locker.Grant) { g.Token = locker.MaxToken + 1 }},
	}
	for _, k := range kinds {
		for after := range 12 {
			synctest.Test(t, func(t *testing.T) {
				b := &broken{able: &able{fake: newFake()}, after: after, err: k.err, grant: k.grant}
				open := locker.Openers{"x": func(context.Context, *locker.URL,
					locker.Options) (locker.Backend, error) {
					return b, b.fails()
				}}
				told := func(err error, what string) {
					t.Helper()
					assertSentinel(t, err, fmt.Sprintf("%s after %d: %s", k.name, after, what), false)
				}
				c, err := open.Open(t.Context(), "x://", &locker.Options{TTL: ttl, Patience: time.Second})
				told(err, "open")
				if err != nil {
					return
				}
				minute, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				l, err := c.Lock(minute, "a")
				assertSentinel(t, err, fmt.Sprintf("%s after %d: lock", k.name, after),
					errors.Is(err, locker.ErrHeld))
				for range 2 {
					_, err = c.TryLock(t.Context(), "b")
					told(err, "trylock")
				}
				_, err = c.Inspect(t.Context(), "a")
				told(err, "inspect")
				err = c.Break(t.Context(), locker.State{Name: "a", Held: true, Holder: "x"})
				told(err, "break")
				_, err = c.Check(t.Context())
				told(err, "check")
				told(listError(t.Context(), c), "list")
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
			})
		}
	}
	for what, err := range map[string]error{
		"no backend": func() error { _, err := locker.New(nil, nil).Lock(t.Context(), "a"); return err }(),
		"no scheme": func() error {
			_, err := locker.Openers{}.Open(t.Context(), "y://",
				nil)
			return err
		}(),
	} {
		assertSentinel(t, err, what, false)
	}
}
