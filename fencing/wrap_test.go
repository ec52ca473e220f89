package fencing_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/conformance"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/memory"
)

// counter is a Counter in memory; before, if it is set, is called for each number.
type counter struct {
	before func(ctx context.Context) error
	prompt bool

	mu   sync.Mutex
	last map[string]uint64
}

func (c *counter) Next(ctx context.Context, name string) (uint64, error) {
	if c.before != nil {
		if err := c.before(ctx); err != nil {
			return 0, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last == nil {
		c.last = make(map[string]uint64)
	}
	c.last[name]++
	return c.last[name], nil
}

func (c *counter) Fencing() locker.Fencing { return locker.FencingWhileKept }
func (c *counter) Prompt() bool            { return c.prompt }

func TestConformanceOfAWrappedBackend(t *testing.T) {
	service, numbers := memory.New(), &counter{prompt: true}
	conformance.Run(t, conformance.Harness{
		New: func(conformance.T) locker.Backend {
			return fencing.Wrap(&connection{tokenless: tokenless{Backend: service}}, numbers)
		},
		Delete: func(_ conformance.T, name string) { service.Delete(name) },
	})
}

// connection is one client of a service that goes on when it is closed.
type connection struct {
	tokenless
	closed atomic.Bool
}

func (c *connection) Acquire(ctx context.Context, req locker.Request) (locker.Grant, error) {
	if c.closed.Load() {
		return locker.Grant{}, locker.ErrClosed
	}
	return c.tokenless.Acquire(ctx, req)
}

func (c *connection) Close() error {
	c.closed.Store(true)
	return nil
}

func TestWrapClaimsWhatItsCounterDoes(t *testing.T) {
	b := fencing.Wrap(tokenless{Backend: memory.New(), why: "none"}, &counter{})
	g := b.Guarantees()
	assert.Equal(t, locker.FencingWhileKept, g.Fencing)
	assert.Empty(t, g.NoFencing)
	assert.Contains(t, g.RestsOn, "counter")
	_, err := fencing.Require(newClient(t, b, nil))
	require.NoError(t, err)
}

// plain hides every optional ability of a backend.
type plain struct{ locker.Backend }

type notifier struct{ locker.Backend }

func (notifier) Notify(context.Context, string, func()) (func(), error) { return func() {}, nil }

type both struct {
	notifier
	locker.Inspector
}

func TestWrapKeepsOptionalAbilitiesAndAddsNone(t *testing.T) {
	service := memory.New()
	for _, b := range []locker.Backend{plain{service}, notifier{service}, service, both{notifier{service}, service}} {
		w := fencing.Wrap(b, &counter{prompt: true})
		_, had := b.(locker.Notifier)
		_, has := w.(locker.Notifier)
		assert.Equal(t, had, has, "%T Notifier", b)
		_, had = b.(locker.Inspector)
		_, has = w.(locker.Inspector)
		assert.Equal(t, had, has, "%T Inspector", b)
		p, ok := b.(locker.Prompt)
		assert.Equal(t, ok && p.Prompt(), w.(locker.Prompt).Prompt(), "%T Prompt", b)
		assert.False(t, fencing.Wrap(b, &counter{}).(locker.Prompt).Prompt(), "%T: the counter is not", b)
	}
}

func TestAnotherTokenThanTheHoldersIsNotShown(t *testing.T) {
	c := newClient(t, fencing.Wrap(memory.New(), &counter{last: map[string]uint64{"n": 40}}), nil)
	lease, err := c.Lock(t.Context(), "n")
	require.NoError(t, err)
	token, _ := lease.Token()
	assert.Equal(t, uint64(41), token, "the counter's, not the backend's")
	state, err := c.Inspect(t.Context(), "n")
	require.NoError(t, err)
	assert.True(t, state.Held)
	assert.Zero(t, state.Token)
	require.NoError(t, lease.Unlock(t.Context()))
}

func TestALockWhoseTokenCannotBeDrawnIsGivenBack(t *testing.T) {
	down := errors.Join(errors.New("no route to the counter"), locker.ErrUnavailable)
	var fail atomic.Bool
	fail.Store(true)
	numbers := &counter{before: func(context.Context) error {
		if fail.Load() {
			return down
		}
		return nil
	}}
	c := newClient(t, fencing.Wrap(tokenless{Backend: memory.New()}, numbers), nil)
	lease, err := c.TryLock(t.Context(), "n")
	require.ErrorIs(t, err, locker.ErrUnavailable)
	require.ErrorContains(t, err, "no route to the counter")
	assert.Nil(t, lease)
	fail.Store(false)
	lease, err = c.Lock(t.Context(), "n")
	require.NoError(t, err)
	require.NoError(t, lease.Unlock(t.Context()))
}

func TestACounterThatReturnsNothingGivesNoLease(t *testing.T) {
	c := newClient(t, fencing.Wrap(memory.New(), zero{}), nil)
	_, err := c.Lock(t.Context(), "n")
	require.ErrorIs(t, err, fencing.ErrMissing)
}

type zero struct{}

func (zero) Next(context.Context, string) (uint64, error) { return 0, nil }
func (zero) Fencing() locker.Fencing                      { return locker.FencingWhileKept }

// lasting gives each hold a TTL of a second from when it was granted.
type lasting struct{ tokenless }

func (b lasting) Acquire(ctx context.Context, req locker.Request) (locker.Grant, error) {
	g, err := b.tokenless.Acquire(ctx, req)
	g.Validity = locker.Validity{Since: time.Now(), TTL: time.Second}
	return g, err
}

func TestATokenThatIsDrawnTooLateIsNotGivenOut(t *testing.T) {
	for name, before := range map[string]func(context.Context) error{
		"the counter is slow and does not mind": func(context.Context) error { time.Sleep(2 * time.Second); return nil },
		"the counter minds its context":         func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := fencing.Wrap(lasting{tokenless{Backend: memory.New()}}, &counter{before: before})
				begin := time.Now()
				g, err := b.Acquire(t.Context(), locker.Request{Name: "n", TTL: time.Second})
				require.ErrorIs(t, err, locker.ErrUnavailable)
				assert.NotErrorIs(t, err, context.DeadlineExceeded, "no deadline of the caller's has passed")
				assert.NotNil(t, g.Hold, "so that the engine takes it back")
				assert.Less(t, time.Since(begin), 3*time.Second)
			})
		})
	}
}
