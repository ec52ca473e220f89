package locker_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/memory"
)

// A call that left its line long ago does not end the line of those who came after it.
func TestWhoLeavesTwiceLeavesOnce(t *testing.T) {
	b := memory.New()
	var c *locker.Client
	var second *locker.Lease
	c = locker.New(b, &locker.Options{Trace: &locker.Trace{LockDone: func(_ context.Context, e locker.Event) {
		if errors.Is(e.Err, locker.ErrRefused) { // it has left, and leaves again as it panics
			b.Fail(nil)
			second, _ = c.Lock(context.Background(), "job")
			panic("a trace")
		}
	}}})
	b.Fail(locker.ErrRefused)
	assert.Panics(t, func() { _, _ = c.Lock(context.Background(), "job") })
	assert.Equal(t, 1, c.Stats().Held)
	require.NoError(t, c.Close())
	require.ErrorIs(t, second.Err(), locker.ErrClosed)
	st, err := b.Inspect(t.Context(), "job")
	require.NoError(t, err)
	assert.False(t, st.Held, "after Close, the service keeps it")
}

// The patience and the context of many end at the same moment.
func TestManyWhoLeaveForTwoReasonsLeaveALineThatGoesOn(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			b := memory.New()
			c := locker.New(b, &locker.Options{Patience: time.Second})
			b.Fail(locker.ErrUnavailable)
			for range 20 {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				go func() {
					defer cancel()
					if l, err := c.Lock(ctx, "job"); err == nil {
						_ = l.Unlock(context.Background())
					}
				}()
			}
			time.Sleep(time.Second)
			b.Fail(nil)
			l, err := c.Lock(t.Context(), "job", locker.Patience(time.Minute))
			require.NoError(t, err)
			time.Sleep(10 * time.Second)
			assert.Equal(t, 1, c.Stats().Held)
			require.NoError(t, c.Close())
			require.ErrorIs(t, l.Err(), locker.ErrClosed)
		})
	}
}

// What a service says of its queue means the attempt that it is said to (R17).
func TestWhatIsSaidOfAQueueTooLateIsNotHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		var queued func()
		f.before = func(_ int, _ context.Context, req locker.Request) (locker.Grant, error, bool) {
			queued = req.Queued
			return locker.Grant{}, errDown, true
		}
		c := closing(t, locker.New(f, nil))
		go func() { _, _ = c.Lock(t.Context(), "job") }()
		synctest.Wait()
		queued()
		_, err := c.TryLock(t.Context(), "job")
		require.ErrorIs(t, err, locker.ErrUnavailable)
		require.NotErrorIs(t, err, locker.ErrHeld)
	})
}

func TestWhatWasSaidOfAQueueLeavesWithWhoWasTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.queue = true
		f.before = func(n int, ctx context.Context, req locker.Request) (locker.Grant, error, bool) {
			if n == 1 {
				req.Queued()
			}
			return locker.Grant{}, hang(ctx), true
		}
		c := closing(t, locker.New(f, nil))
		ends := make(chan error, 3)
		for _, d := range []time.Duration{time.Second, 3 * time.Second, 2 * time.Second} { // the second asks, and hears nothing; the third is behind it
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			go func() { _, err := c.Lock(ctx, "job"); ends <- err }()
			synctest.Wait()
		}
		require.Error(t, <-ends)
		require.NotErrorIs(t, <-ends, locker.ErrHeld)
		require.NotErrorIs(t, <-ends, locker.ErrHeld)
	})
}

// The client's place in a line of the service is left when all of its callers have left.
func TestTheLastOfSeveralWhoLeaveTogetherLeavesTheLine(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			var left atomic.Int64
			f.before = func(_ int, ctx context.Context, _ locker.Request) (locker.Grant, error, bool) {
				leave := func(context.Context) error { left.Add(1); return nil }
				return locker.Grant{}, &locker.HeldError{Leave: leave}, ctx.Err() == nil
			}
			c := closing(t, locker.New(f, nil))
			ctx, cancel := context.WithCancel(t.Context())
			for range 3 {
				go func() { _, _ = c.Lock(ctx, "job") }()
				synctest.Wait()
			}
			cancel()
			time.Sleep(time.Second)
			assert.EqualValues(t, 1, left.Load())
		})
	}
}

// hangingAcquire hangs for one name, whatever its context does.
type hangingAcquire struct{ *fake }

func (f hangingAcquire) Acquire(ctx context.Context, req locker.Request) (locker.Grant, error) {
	if req.Name == "slow" {
		time.Sleep(10 * time.Second)
		return locker.Grant{}, errDown
	}
	return f.fake.Acquire(ctx, req)
}

// A request that hangs takes no time from the locks of other names that Close gives back.
func TestCloseTakesBackBesideARequestThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := hangingAcquire{newFake()}
		f.release = func(_ int, ctx context.Context) error { time.Sleep(time.Millisecond); return ctx.Err() }
		c := locker.New(f, &locker.Options{TTL: time.Hour})
		_, err := c.Lock(t.Context(), "job", locker.MaxHold(time.Second))
		require.NoError(t, err)
		time.Sleep(2 * time.Second) // lost; the service would end it in an hour
		go func() { _, _ = c.Lock(context.Background(), "slow") }()
		synctest.Wait()
		_ = c.Close()
		assert.Empty(t, f.owner("job"))
		time.Sleep(time.Minute)
	})
}

// A loss is being told while its client is closed.
func TestCloseWaitsForALossThatIsBeingTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		slow := func(context.Context, locker.Event) { time.Sleep(100 * time.Millisecond) }
		c := locker.New(b, &locker.Options{Trace: &locker.Trace{Lost: slow}})
		l, err := c.Lock(t.Context(), "job", locker.MaxHold(time.Second))
		require.NoError(t, err)
		<-l.Done()
		require.NoError(t, c.Close())
		st, err := b.Inspect(t.Context(), "job")
		require.NoError(t, err)
		assert.False(t, st.Held)
	})
}

// A Poll that has ended listens again when it is used again.
func TestAPollMayBeUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &notifying{fake: newFake()}
		var p locker.Poll
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			for f.wake() == 0 { // the first waits are short, until the backend listens
				require.NoError(t, p.Wait(ctx, f, "job", locker.ErrHeld))
				synctest.Wait()
			}
			require.NoError(t, p.Wait(ctx, f, "job", locker.ErrHeld))
			p.End()
			cancel()
			assert.Zero(t, f.wake(), "nobody listens any more")
		}
	})
}
