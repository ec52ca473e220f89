package locker_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/memory"
)

// refusing refuses everybody, when it has waited, and may leave something.
type refusing struct {
	*memory.Backend
	prompt  bool
	waits   func(ctx context.Context) error
	fails   atomic.Bool // Undo
	undone  atomic.Int32
	left    atomic.Int32
	granted bool // at the same time
}

func (r *refusing) Queue() bool  { return false }
func (r *refusing) Prompt() bool { return r.prompt }

func (r *refusing) Acquire(ctx context.Context, req driver.Request) (g driver.Grant, err error) {
	if r.granted {
		g, _ = r.Backend.Acquire(ctx, req)
	}
	g.Refused = &driver.Refusal{
		AskWithin: time.Second,
		Leave:     func(context.Context) error { r.left.Add(1); return nil },
		Undo: func(context.Context) error {
			if r.fails.Load() {
				return locker.ErrUnavailable
			}
			r.undone.Add(1)
			return nil
		},
	}
	if r.waits != nil {
		err = r.waits(ctx)
	}
	return g, err
}

// What a refused attempt may have left is undone, and its note is left, whenever the refusal comes.
func TestWhatARefusalLeaves(t *testing.T) {
	for name, test := range map[string]struct {
		fails bool                            // Undo, at first
		waits func(ctx context.Context) error // the answer to a Lock under a context of a second; nil: to a TryLock
	}{
		"at once":                    {},
		"tried again until it is":    {fails: true},
		"when the context has ended": {waits: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }},
		"when the caller has left":   {waits: func(context.Context) error { time.Sleep(2 * time.Second); return nil }},
		"a moment before the context": {waits: func(context.Context) error {
			time.Sleep(time.Second - 1)
			return context.DeadlineExceeded
		}},
	} {
		synctestBoth(t, name, func(t *testing.T, prompt bool) {
			r := &refusing{Backend: memory.New(), prompt: prompt, waits: test.waits}
			r.fails.Store(test.fails)
			c := locker.New(r, nil)
			lock := c.TryLock
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if test.waits != nil {
				lock = c.Lock
			}
			_, err := lock(ctx, "job")
			if name == "when the caller has left" && !prompt { // it was not known by then
				require.NotErrorIs(t, err, locker.ErrHeld)
			} else {
				require.ErrorIs(t, err, locker.ErrHeld)
			}
			time.Sleep(3 * time.Second)
			if test.fails {
				assert.Equal(t, 1, c.Stats().Pending)
				r.fails.Store(false)
				time.Sleep(10 * time.Second)
			}
			assert.Zero(t, c.Stats().Pending)
			assert.EqualValues(t, 1, r.undone.Load())
			assert.EqualValues(t, 1, r.left.Load())
			require.NoError(t, c.Close())
		})
	}
}

// synctestBoth runs a test in virtual time with a backend that is prompt, and with one that is not.
func synctestBoth(t *testing.T, name string, test func(t *testing.T, prompt bool)) {
	t.Helper()
	for _, prompt := range []bool{false, true} {
		t.Run(fmt.Sprintf("%s, prompt %t", name, prompt), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, prompt) })
		})
	}
}

// An outage is an outage, whatever stands beside it: nothing of the refusal counts.
func TestARefusalBesideAnOutageMeansNothing(t *testing.T) {
	synctestBoth(t, "outage", func(t *testing.T, prompt bool) {
		r := &refusing{Backend: memory.New(), prompt: prompt, waits: func(context.Context) error { return locker.ErrUnavailable }}
		c := locker.New(r, nil)
		_, err := c.TryLock(t.Context(), "job")
		require.ErrorIs(t, err, locker.ErrUnavailable)
		require.NotErrorIs(t, err, locker.ErrHeld)
		time.Sleep(time.Second)
		assert.Zero(t, r.left.Load(), "there is no note")
		require.NoError(t, c.Close())
	})
}

// A backend that says "held" by an error has a fault: it must not be taken for a refusal of which nothing is known.
func TestARefusalIsNoError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &refusing{Backend: memory.New()}
		c := locker.New(heldByError{r}, nil)
		_, err := c.TryLock(t.Context(), "job")
		require.ErrorIs(t, err, locker.ErrRefused)
		require.NotErrorIs(t, err, locker.ErrHeld)
		require.ErrorContains(t, err, "in place of a Refusal")
		require.NoError(t, c.Close())
	})
}

type heldByError struct{ *refusing }

func (heldByError) Acquire(context.Context, driver.Request) (driver.Grant, error) {
	return driver.Grant{}, locker.ErrHeld
}

// passing is a service whose Pass refuses the next caller: it may leave something of it, or grant the lock as well.
type passing struct {
	*memory.Backend
	granted bool
	undone  atomic.Int32
}

func (p *passing) Queue() bool { return false }

func (p *passing) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	g, err := p.Backend.Acquire(ctx, req)
	if g.Hold != nil {
		g.Hold = passingHold{g.Hold, p}
	}
	return g, err
}

type passingHold struct {
	driver.Hold
	p *passing
}

func (h passingHold) Pass(ctx context.Context, next driver.Request, _ bool) (g driver.Grant, err error) {
	if err = h.Release(ctx); err == nil && h.p.granted {
		g, err = h.p.Acquire(ctx, next)
	}
	g.Refused = &driver.Refusal{Undo: func(context.Context) error { h.p.undone.Add(1); return nil }}
	return g, err
}

func TestAPassThatIsRefused(t *testing.T) {
	for _, granted := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := &passing{Backend: memory.New(), granted: granted}
			c := locker.New(p, nil)
			first, err := c.Lock(t.Context(), "job")
			require.NoError(t, err)
			next := make(chan *locker.Lease)
			go func() {
				l, err := c.Lock(t.Context(), "job")
				assert.NoError(t, err)
				next <- l
			}()
			synctest.Wait()
			err = first.Unlock(t.Context())
			if granted { // a fault: neither is known
				require.ErrorIs(t, err, locker.ErrRefused)
			} else {
				require.NoError(t, err)
			}
			l := <-next
			time.Sleep(time.Minute)
			require.NoError(t, l.Err(), "it has asked for itself")
			st, err := p.Inspect(t.Context(), "job")
			require.NoError(t, err)
			assert.True(t, st.Held)
			if !granted {
				assert.EqualValues(t, 1, p.undone.Load())
			}
			p.granted = false
			require.NoError(t, l.Unlock(t.Context()))
			require.NoError(t, c.Close())
		})
	}
}

// Close asks once more for what a refusal has left.
func TestCloseUndoesWhatARefusalLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &refusing{Backend: memory.New()}
		r.fails.Store(true)
		c := locker.New(r, nil)
		_, err := c.TryLock(t.Context(), "job")
		require.ErrorIs(t, err, locker.ErrHeld)
		r.fails.Store(false)
		require.NoError(t, c.Close())
		assert.Positive(t, r.undone.Load())
	})
}

// A backend that both grants and refuses has a fault, and nobody holds what it has granted.
func TestAGrantThatIsRefusedIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &refusing{Backend: memory.New(), granted: true}
		c := locker.New(r, nil)
		_, err := c.TryLock(t.Context(), "job")
		require.ErrorIs(t, err, locker.ErrRefused)
		require.ErrorContains(t, err, "a fault of the backend")
		time.Sleep(time.Second)
		other := locker.New(r.Backend, nil)
		l, err := other.TryLock(t.Context(), "job")
		require.NoError(t, err, "it was taken back")
		require.NoError(t, l.Unlock(t.Context()))
		require.NoError(t, c.Close())
		require.NoError(t, other.Close())
	})
}
