package memory_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/memory"
)

var errDown = fmt.Errorf("the test says so: %w", locker.ErrUnavailable)

func TestAnExpiringLockEndsWithItsTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := memory.NewExpiring()
		opts := &locker.Options{TTL: 10 * time.Second}
		a, b := newClient(t, locks, opts), newClient(t, locks, opts)
		lease := mustLock(t, a, "job")
		time.Sleep(time.Minute)
		require.NoError(t, lease.Err(), "renewed")
		assert.Greater(t, inspect(t, locks, "job").Remaining, 5*time.Second)

		began := time.Now()
		locks.Fail(errDown)
		_, err := b.TryLock(t.Context(), "job")
		require.ErrorIs(t, err, locker.ErrUnavailable)
		<-lease.Done()
		assert.Less(t, time.Since(began), 10*time.Second)
		locks.Fail(nil)
		next := mustLock(t, b, "job")
		assert.LessOrEqual(t, time.Since(began), 11*time.Second)
		require.ErrorIs(t, lease.Unlock(t.Context()), locker.ErrLost)
		require.NoError(t, next.Err())
		require.NoError(t, next.Unlock(t.Context()))
	})
}

func TestAFailureEndsWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := memory.New()
		a, b := newClient(t, locks, nil), newClient(t, locks, nil)
		lease := mustLock(t, a, "job")
		ended := make(chan error, 1)
		go func() {
			_, err := b.Lock(t.Context(), "job", locker.Patience(time.Second))
			ended <- err
		}()
		synctest.Wait()
		locks.Fail(errDown)
		require.ErrorIs(t, <-ended, locker.ErrUnavailable)
		require.ErrorIs(t, lease.Unlock(t.Context()), locker.ErrUnavailable)
		locks.Fail(nil)
		require.NoError(t, mustLock(t, b, "job").Unlock(t.Context()), "the release was tried again")
	})
}

func TestMinHoldOutlastsUnlockAndClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := memory.New()
		other := newClient(t, locks, nil)
		for _, dies := range []bool{false, true} {
			c := locker.New(locks, nil)
			began := time.Now()
			lease, err := c.Lock(t.Context(), "job", locker.MinHold(time.Hour))
			require.NoError(t, err)
			require.NoError(t, lease.Unlock(t.Context()))
			if dies {
				require.NoError(t, c.Close())
			}
			time.Sleep(59 * time.Minute)
			_, err = other.TryLock(t.Context(), "job")
			require.ErrorIs(t, err, locker.ErrHeld)
			got := mustLock(t, other, "job")
			assert.InDelta(t, time.Hour, time.Since(began), float64(time.Minute))
			require.NoError(t, got.Unlock(t.Context()))
			require.NoError(t, c.Close())
		}

		// A lock that is held for longer ends when it is unlocked.
		c := newClient(t, locks, nil)
		lease, err := c.Lock(t.Context(), "job", locker.MinHold(time.Minute))
		require.NoError(t, err)
		time.Sleep(time.Hour)
		require.NoError(t, lease.Unlock(t.Context()))
		require.NoError(t, mustLock(t, other, "job").Unlock(t.Context()))
	})
}

func TestListAndBreak(t *testing.T) {
	locks := memory.New()
	c := newClient(t, locks, &locker.Options{Prefix: "app/"})
	lease := mustLock(t, c, "a/1")
	mustLock(t, c, "a/2")
	mustLock(t, c, "b")
	found := map[string]bool{}
	for e, err := range c.List(t.Context(), "a/") {
		require.NoError(t, err)
		found[e.Name] = e.Held
	}
	assert.Equal(t, map[string]bool{"a/1": true, "a/2": true}, found)

	st, err := locktest.Break(t.Context(), c, "a/1")
	require.NoError(t, err)
	assert.True(t, st.Held)
	assert.EqualValues(t, 1, st.Token)
	require.ErrorIs(t, lease.Err(), locker.ErrLost)
	st, err = locktest.Break(context.Background(), c, "a/1")
	require.NoError(t, err)
	assert.False(t, st.Held)
}
