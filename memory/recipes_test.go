package memory_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/memory"
)

// How a program tests what it does when locks fail it. keepBooks is the program:
// it takes any Locker, and works until it is told to stop.
func keepBooks(ctx context.Context, l locker.Locker) (entries int, err error) {
	err = locker.Do(ctx, l, "books", func(ctx context.Context, _ *locker.Lease) error {
		for {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(time.Second):
				entries++
			}
		}
	})
	return entries, err
}

// In a bubble of synctest hours take no time, and every timer is exact.
func inABubble(t *testing.T, opts *locker.Options,
	test func(t *testing.T, locks *memory.Backend, l *locker.Client)) {
	synctest.Test(t, func(t *testing.T) {
		locks := memory.NewExpiring()
		test(t, locks, newClient(t, locks, opts))
	})
}

func TestMyProgramStopsWhenItsLockIsTaken(t *testing.T) {
	inABubble(t, nil, func(t *testing.T, locks *memory.Backend, l *locker.Client) {
		time.AfterFunc(10500*time.Millisecond, func() { locks.Delete("books") })
		entries, err := keepBooks(t.Context(), l)
		require.ErrorIs(t, err, driver.ErrLost)
		assert.Equal(t, 10, entries)
	})
}

func TestMyProgramStopsBeforeAnOutageLetsOthersIn(t *testing.T) {
	inABubble(t, &locker.Options{TTL: 30 * time.Second},
		func(t *testing.T, locks *memory.Backend, l *locker.Client) {
			began := time.Now()
			time.AfterFunc(time.Minute, func() { locks.Fail(fmt.Errorf("cable cut: %w", driver.ErrUnavailable)) })
			entries, err := keepBooks(t.Context(), l)
			require.ErrorIs(t, err, driver.ErrLost)
			assert.Greater(t, entries, 60, "it goes on for as long as its lease lasts")
			assert.Less(t, time.Since(began), 90*time.Second, "and no longer")

			locks.Fail(nil)
			next := newClient(t, locks, nil)
			require.NoError(t, mustLock(t, next, "books").Unlock(t.Context()))
		})
}

func TestMyProgramWaitsOutAShortOutage(t *testing.T) {
	inABubble(t, nil, func(t *testing.T, locks *memory.Backend, l *locker.Client) {
		locks.Fail(fmt.Errorf("restarting: %w", driver.ErrUnavailable))
		time.AfterFunc(5*time.Second, func() { locks.Fail(nil) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		entries, err := keepBooks(ctx, l)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.InDelta(t, 54, entries, 2)
	})
}

func TestMyProgramSaysThatItsPasswordIsWrong(t *testing.T) {
	inABubble(t, nil, func(t *testing.T, locks *memory.Backend, l *locker.Client) {
		wrong := errors.New("wrong password")
		locks.Fail(wrong)
		began := time.Now()
		_, err := keepBooks(t.Context(), l)
		require.ErrorIs(t, err, driver.ErrRefused)
		require.ErrorIs(t, err, wrong)
		assert.Zero(t, time.Since(began), "asking again would not help")
	})
}
