package locker_test

import (
	"context"
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
	waits   func(ctx context.Context) error
	fails   atomic.Bool // Undo
	undone  atomic.Int32
	left    atomic.Int32
	granted bool // at the same time
}

func (r *refusing) Queue() bool { return false }

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
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &refusing{Backend: memory.New(), waits: test.waits}
				r.fails.Store(test.fails)
				c := locker.New(r, nil)
				lock := c.TryLock
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if test.waits != nil {
					lock = c.Lock
				}
				_, err := lock(ctx, "job")
				if name != "when the caller has left" { // it was not known by then
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
