package lockertest_test

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
	"github.com/golockers/locker/lockertest"
)

// How a program tests its behavior when locks fail. keepBooks is the program: it takes any Locker, and
// works until it is told to stop.
func keepBooks(ctx context.Context, l locker.Locker) (entries int, err error) {
	err = locker.Do(ctx, l, "books", func(ctx context.Context) error {
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

// newClient is the client that the program makes when it starts.
func newClient(t *testing.T, service *lockertest.Service, opts *locker.Options) *locker.Client {
	client, err := locker.New(service, opts)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	return client
}

// In a bubble of synctest, hours take no time, and every timer is exact.
func inABubble(t *testing.T, opts *locker.Options,
	test func(t *testing.T, service *lockertest.Service, l *locker.Client)) {
	synctest.Test(t, func(t *testing.T) {
		service := lockertest.NewService()
		test(t, service, newClient(t, service, opts))
	})
}

func TestMyProgramStopsWhenItsLockIsTaken(t *testing.T) {
	inABubble(t, nil, func(t *testing.T, service *lockertest.Service, l *locker.Client) {
		time.AfterFunc(10500*time.Millisecond, func() { service.Lose("books") })
		entries, err := keepBooks(t.Context(), l)
		require.ErrorIs(t, err, locker.ErrLost)
		assert.Equal(t, 10, entries)
	})
}

func TestMyProgramStopsBeforeAnOutageLetsOthersIn(t *testing.T) {
	inABubble(t, &locker.Options{TTL: 30 * time.Second},
		func(t *testing.T, service *lockertest.Service, l *locker.Client) {
			began := time.Now()
			time.AfterFunc(time.Minute, func() { service.Fail(fmt.Errorf("cable cut: %w", locker.ErrUnavailable)) })
			entries, err := keepBooks(t.Context(), l)
			require.ErrorIs(t, err, locker.ErrLost)
			assert.Greater(t, entries, 60, "it goes on for as long as its lease lasts")
			assert.Less(t, time.Since(began), 90*time.Second, "and no longer")

			service.Fail(nil)
			next := newClient(t, service, nil)
			lease, err := next.Lock(t.Context(), "books", locker.MaxWait(time.Minute))
			require.NoError(t, err)
			require.NoError(t, lease.Unlock(t.Context()))
		})
}

func TestMyProgramWaitsOutAShortOutage(t *testing.T) {
	inABubble(t, nil, func(t *testing.T, service *lockertest.Service, l *locker.Client) {
		service.Fail(fmt.Errorf("restarting: %w", locker.ErrUnavailable))
		time.AfterFunc(5*time.Second, func() { service.Fail(nil) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		entries, err := keepBooks(ctx, l)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.InDelta(t, 54, entries, 2)
	})
}

func TestMyProgramSaysThatItsPasswordIsWrong(t *testing.T) {
	inABubble(t, nil, func(t *testing.T, service *lockertest.Service, l *locker.Client) {
		wrong := errors.New("wrong password")
		service.Fail(wrong)
		began := time.Now()
		_, err := keepBooks(t.Context(), l)
		require.ErrorIs(t, err, locker.ErrRefused)
		require.ErrorIs(t, err, wrong)
		assert.Zero(t, time.Since(began), "asking again would not help")
	})
}
