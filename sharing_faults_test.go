package locker_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/memory"
)

// answering gives the answer of its function, if that has one, and otherwise that of the
// memory.
type answering struct {
	*memory.Backend
	answer func(ctx context.Context, req locker.Request) error
}

func (b *answering) Acquire(ctx context.Context, req locker.Request) (locker.Grant, error) {
	if err := b.answer(ctx, req); err != nil {
		return locker.Grant{}, err
	}
	return b.Backend.Acquire(ctx, req)
}

// besideASharer runs test with a client that has the name shared, in the label "first". From
// then on, the answers are those of the function that test sets.
func besideASharer(t *testing.T, test func(t *testing.T, b *answering, c *locker.Client, unlock func())) {
	synctest.Test(t, func(t *testing.T) {
		b := &answering{memory.New(), func(context.Context, locker.Request) error { return nil }}
		c := closing(t, locker.New(b, nil))
		held, err := c.Lock(t.Context(), "job", locker.Shared())
		require.NoError(t, err)
		test(t, b, c, func() { require.NoError(t, held.Unlock(t.Context())) })
	})
}

var atOnce = locker.Patience(locker.NoPatience)

// R17: those who share the name are not in a sharer's way.
func TestASharerIsNotToldHeldInAnOutage(t *testing.T) {
	besideASharer(t, func(t *testing.T, b *answering, c *locker.Client, unlock func()) {
		b.answer = func(context.Context, locker.Request) error { return errDown }
		away := func(err error) {
			t.Helper()
			assert.ErrorIs(t, err, locker.ErrUnavailable)
			assert.NotErrorIs(t, err, locker.ErrHeld)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		for range 2 { // the head, and one behind it
			go func() { _, err := c.Lock(ctx, "job", locker.Shared()); away(err) }()
			synctest.Wait()
		}
		_, err := c.TryLock(t.Context(), "job", locker.Shared())
		away(err)
		_, err = c.Lock(t.Context(), "job", locker.Shared(), atOnce)
		away(err)
		_, err = c.TryLock(t.Context(), "job")
		require.ErrorIs(t, err, locker.ErrHeld)
		<-ctx.Done()
		unlock()
	})
}

func TestAnOutageThatIsOverIsForgottenWhileSharersHold(t *testing.T) {
	besideASharer(t, func(t *testing.T, b *answering, c *locker.Client, unlock func()) {
		b.answer = func(context.Context, locker.Request) error { return errDown }
		_, err := c.TryLock(t.Context(), "job", locker.Shared())
		require.ErrorIs(t, err, locker.ErrUnavailable)
		b.answer = func(ctx context.Context, _ locker.Request) error { return hang(ctx) }
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		go func() { _, _ = c.Lock(ctx, "job") }()
		synctest.Wait()
		began := time.Now()
		_, err = c.Lock(ctx, "job", atOnce)
		require.Error(t, err)
		assert.Equal(t, 5*time.Second, time.Since(began), "nothing is known of an outage")
		unlock()
	})
}

// Whoever has asked the service need not wait for the head to learn of an outage.
func TestASharerBesideTheHeadHasItsOwnPatience(t *testing.T) {
	besideASharer(t, func(t *testing.T, b *answering, c *locker.Client, unlock func()) {
		b.answer = func(ctx context.Context, req locker.Request) error {
			if req.Wait {
				return hang(ctx)
			}
			return errDown
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		go func() { _, _ = c.Lock(ctx, "job", locker.Shared()) }()
		synctest.Wait()
		began := time.Now()
		_, err := c.Lock(ctx, "job", locker.Shared(), atOnce)
		require.ErrorIs(t, err, locker.ErrUnavailable)
		assert.Zero(t, time.Since(began))
		unlock()
	})
}

// The place of a client in a line of the service is left by the last of its callers who wait, a writer's note by
// each.
func TestTheLastWhoWaitsLeavesTheLine(t *testing.T) {
	for askWithin, first := range map[time.Duration]int{0: 0, 300 * time.Millisecond: 1} {
		synctest.Test(t, func(t *testing.T) {
			var left atomic.Int32
			c := locker.New(&answering{memory.New(), func(context.Context, locker.Request) error {
				return &locker.HeldError{AskWithin: askWithin, Leave: func(context.Context) error {
					left.Add(1)
					return nil
				}}
			}}, nil)
			var all sync.WaitGroup
			for _, waits := range []time.Duration{time.Second, time.Minute} {
				all.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), waits)
					defer cancel()
					_, err := c.Lock(ctx, "job")
					assert.ErrorIs(t, err, locker.ErrHeld)
				})
				synctest.Wait()
			}
			time.Sleep(2 * time.Second)
			assert.EqualValues(t, first, left.Load(), "%v", askWithin)
			all.Wait()
			synctest.Wait()
			assert.EqualValues(t, first+1, left.Load(), "%v", askWithin)
			require.NoError(t, c.Close())
		})
	}
}

// What keeps others out for a writer goes with it, however it goes.
func TestAWriterWhoLeavesTakesItsNoteAlong(t *testing.T) {
	for how, takes := range map[string]time.Duration{
		"with the answer": time.Second, "before the answer": 2 * time.Second, "at Close": 0,
	} {
		synctest.Test(t, func(t *testing.T) {
			var noted atomic.Bool
			answers := 0
			b := &answering{memory.New(), func(context.Context, locker.Request) error {
				time.Sleep(takes)
				if answers++; answers == 2 {
					return locker.ErrHeld // another writer holds it now: the note is still there
				}
				noted.Store(true)
				return &locker.HeldError{Leave: func(ctx context.Context) error {
					time.Sleep(time.Millisecond)
					noted.Store(ctx.Err() != nil)
					return ctx.Err()
				}}
			}}
			c := locker.New(struct{ locker.Backend }{b}, nil) // it does not say that it is prompt
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			failed := make(chan error)
			go func() { _, err := c.Lock(ctx, "job"); failed <- err }()
			if takes == 0 {
				time.Sleep(8 * time.Millisecond) // two answers
				require.NoError(t, c.Close())
				assert.False(t, noted.Load(), "after Close")
			}
			require.Error(t, <-failed)
			time.Sleep(2 * time.Second)
			assert.False(t, noted.Load(), how)
			require.NoError(t, c.Close())
		})
	}
}

// At a distance of 20 ms many get in within a second, and the more of one client than a
// service has room for wait for each other instead of being refused.
func TestManyReadersOfOneClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &distant{Backend: memory.New()}
		c := locker.New(b, nil)
		defer c.Close()
		const many = locker.MaxSharers + 1000
		var got atomic.Int64
		var all sync.WaitGroup
		began := time.Now()
		for i := range many {
			all.Go(func() {
				if i >= 1000 {
					time.Sleep(time.Second)
				}
				l, err := c.Lock(t.Context(), "job", locker.Shared())
				if assert.NoError(t, err) {
					got.Add(1)
					time.Sleep(time.Minute)
					assert.NoError(t, l.Unlock(t.Context()))
				}
			})
		}
		for got.Load() < 1000 {
			time.Sleep(time.Millisecond)
		}
		assert.Less(t, time.Since(began), time.Second)
		time.Sleep(10 * time.Second)
		assert.EqualValues(t, locker.MaxSharers, got.Load())
		_, err := c.TryLock(t.Context(), "job", locker.Shared())
		require.ErrorIs(t, err, locker.ErrHeld)
		all.Wait()
		assert.LessOrEqual(t, b.most.Load(), int64(65), "at once, and whoever is at the head")
		assert.Zero(t, c.Stats().Failed)
		assert.Zero(t, c.Stats().Held+c.Stats().Waiting)
	})
}

// distant is a service that takes 20 ms for an answer.
type distant struct {
	*memory.Backend
	asks, most atomic.Int64
}

func (b *distant) Acquire(ctx context.Context, req locker.Request) (locker.Grant, error) {
	n := b.asks.Add(1)
	defer b.asks.Add(-1)
	for most := b.most.Load(); n > most && !b.most.CompareAndSwap(most, n); {
		most = b.most.Load()
	}
	time.Sleep(20 * time.Millisecond)
	return b.Backend.Acquire(ctx, req)
}

// A note is left once, also if the caller's LockDone panics after that.
func TestAPanicAfterANoteWasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var left atomic.Int32
		b := &answering{memory.New(), func(context.Context, locker.Request) error {
			return &locker.HeldError{Leave: func(context.Context) error { left.Add(1); return nil }}
		}}
		c := locker.New(b, &locker.Options{Trace: &locker.Trace{
			LockDone: func(context.Context, locker.Event) { panic("LockDone") },
		}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.Panics(t, func() { _, _ = c.Lock(ctx, "job") })
		synctest.Wait()
		assert.EqualValues(t, 1, left.Load())
		began := time.Now()
		require.NoError(t, c.Close())
		assert.Zero(t, time.Since(began))
	})
}
