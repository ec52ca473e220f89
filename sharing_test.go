package locker_test

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
	"github.com/golockers/locker/memory"
)

// sharers is a service that takes a millisecond for an answer, counts those who ask it
// at once, and may refuse sharers who do not wait, as where a writer of another client
// waits.
type sharers struct {
	*memory.Backend
	asks, most atomic.Int64
	refuse     atomic.Bool
}

func (b *sharers) Acquire(ctx context.Context, req locker.Request) (locker.Grant, error) {
	for n := b.asks.Add(1); ; {
		most := b.most.Load()
		if n <= most || b.most.CompareAndSwap(most, n) {
			break
		}
	}
	time.Sleep(time.Millisecond)
	if !req.Wait {
		b.asks.Add(-1)
		if b.refuse.Load() {
			return locker.Grant{}, locker.ErrHeld
		}
		return b.Backend.Acquire(ctx, req)
	}
	defer b.asks.Add(-1)
	return b.Backend.Acquire(ctx, req)
}

func TestARunOfSharersGetsInTogether(t *testing.T) {
	for _, refused := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := &sharers{Backend: memory.New()}
			b.refuse.Store(refused)
			c, other := locker.New(b, nil), locker.New(b, nil)
			defer c.Close()
			defer other.Close()
			writer, err := other.Lock(t.Context(), "job")
			require.NoError(t, err)
			const many = 100
			var got, late atomic.Int64
			var all sync.WaitGroup
			end := make(chan struct{})
			read := func(n *atomic.Int64) {
				l, err := c.Lock(t.Context(), "job", locker.Shared())
				if assert.NoError(t, err) {
					n.Add(1)
					<-end
					assert.NoError(t, l.Unlock(t.Context()))
				}
			}
			for range many {
				all.Go(func() { read(&got) })
			}
			synctest.Wait()
			all.Go(func() {
				l, err := c.Lock(t.Context(), "job")
				if assert.NoError(t, err) {
					assert.Zero(t, late.Load(), "who came after it")
					assert.NoError(t, l.Unlock(t.Context()))
				}
			})
			synctest.Wait()
			all.Go(func() { read(&late) })
			synctest.Wait()
			assert.EqualValues(t, 1, b.asks.Load(), "only one of them asks")
			began := time.Now()
			require.NoError(t, writer.Unlock(t.Context()))
			for got.Load() < many {
				time.Sleep(time.Millisecond)
			}
			if refused {
				assert.LessOrEqual(t, b.most.Load(), int64(many+1))
			} else {
				assert.LessOrEqual(t, time.Since(began), 5*time.Millisecond, "one, and then the others at once")
			}
			assert.Equal(t, many, c.Stats().Held)
			_, err = c.TryLock(t.Context(), "job")
			require.ErrorIs(t, err, locker.ErrHeld)
			time.Sleep(time.Second)
			assert.Zero(t, late.Load(), "the writer came before it")
			close(end)
			all.Wait()
			assert.EqualValues(t, 1, late.Load())
			assert.Zero(t, c.Stats().Held+c.Stats().Waiting)
		})
	}
}

func TestSharersWhoDoNotWaitComeAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &sharers{Backend: memory.New()}
		c := locker.New(b, nil)
		defer c.Close()
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				_, err := c.TryLock(t.Context(), "job", locker.Shared())
				assert.NoError(t, err)
			})
		}
		all.Wait()
		assert.Equal(t, 50, c.Stats().Held)
		_, err := c.TryLock(t.Context(), "job")
		require.ErrorIs(t, err, locker.ErrHeld)
	})
}

// noted leaves a note for a writer that waits for sharers.
type noted struct {
	locker.Backend
	note atomic.Int64
	asks []time.Time
}

func (b *noted) Acquire(ctx context.Context, req locker.Request) (locker.Grant, error) {
	b.asks = append(b.asks, time.Now())
	wait := req.Wait
	req.Wait = false
	g, err := b.Backend.Acquire(ctx, req)
	if wait && errors.Is(err, locker.ErrHeld) {
		n := b.note.Add(1)
		return g, &locker.HeldError{AskWithin: 300 * time.Millisecond, Leave: func(context.Context) error {
			b.note.CompareAndSwap(n, 0)
			return nil
		}}
	}
	return g, err
}

func TestAWriterRenewsItsNoteAndRemovesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &noted{Backend: memory.New()}
		c := locker.New(b, nil)
		defer c.Close()
		held, err := c.Lock(t.Context(), "job", locker.Shared())
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = c.Lock(ctx, "job")
		require.ErrorIs(t, err, locker.ErrHeld)
		for i, at := range b.asks[2:] {
			assert.LessOrEqual(t, at.Sub(b.asks[i+1]), 300*time.Millisecond)
		}
		synctest.Wait()
		assert.Zero(t, b.note.Load(), "who has left keeps nobody out")

		time.AfterFunc(time.Second, func() { assert.NoError(t, held.Unlock(context.Background())) })
		writer, err := c.Lock(t.Context(), "job")
		require.NoError(t, err)
		assert.Positive(t, b.note.Load(), "that is for the service to remove")
		require.NoError(t, writer.Unlock(t.Context()))
	})
}

func TestASharerCannotBecomeAWriter(t *testing.T) {
	c := locker.New(memory.New(), nil)
	defer c.Close()
	read := func(ctx context.Context, lease *locker.Lease) error {
		_, err := c.Lock(ctx, "job")
		require.ErrorIs(t, err, locker.ErrInvalid)
		require.ErrorContains(t, err, "unlock it first")
		require.ErrorIs(t, lease.RaiseToken(ctx, 1), errors.ErrUnsupported)
		again, err := c.Lock(ctx, "job", locker.Shared())
		require.NoError(t, err)
		return again.Unlock(ctx)
	}
	require.NoError(t, locker.Do(t.Context(), c, "job", read, locker.Shared()))
	require.NoError(t, locker.Do(t.Context(), c, "job", func(ctx context.Context, _ *locker.Lease) error {
		other, err := c.Lock(ctx, "another")
		require.NoError(t, err)
		return other.Unlock(ctx)
	}, locker.Shared()))
}

func TestSharedIsRefusedWhereItIsNotKnown(t *testing.T) {
	c := locker.New(newFake(), nil)
	defer c.Close()
	_, err := c.TryLock(t.Context(), "job", locker.Shared())
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.ErrorIs(t, locker.Require(c, locker.Guarantees{Shared: locker.SharingTokenless}), errors.ErrUnsupported)
}

func TestNoMoreSharersThanThereMayBe(t *testing.T) {
	locks := memory.New()
	c, other := locker.New(locks, nil), locker.New(locks, nil)
	defer c.Close()
	defer other.Close()
	for range locker.MaxSharers {
		_, err := c.TryLock(t.Context(), "job", locker.Shared())
		require.NoError(t, err)
	}
	_, err := other.Lock(t.Context(), "job", locker.Shared())
	require.ErrorIs(t, err, locker.ErrRefused)
	require.ErrorContains(t, err, "4096 share")
}
