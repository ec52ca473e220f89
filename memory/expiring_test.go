package memory_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/memory"
)

var errDown = fmt.Errorf("the test says so: %w", driver.ErrUnavailable)

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
		locks.Fail(nil) // as it is
		locks.Fail(errDown)
		require.ErrorIs(t, <-ended, driver.ErrUnavailable)
		require.ErrorIs(t, lease.Unlock(t.Context()), driver.ErrUnavailable)
		locks.Fail(nil)
		require.NoError(t, mustLock(t, b, "job").Unlock(t.Context()), "the release was tried again")
	})
}

// While the Backend fails, only time removes a lock, and without a deadline nothing does.
func TestUndoDuringAnOutage(t *testing.T) {
	for _, c := range []struct {
		start         func() *memory.Backend
		minHold, ends time.Duration
	}{
		{memory.NewExpiring, 0, 10 * time.Second},
		{memory.NewExpiring, time.Hour, time.Hour},
		{memory.New, time.Second, 10 * time.Second},
		{memory.New, 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			locks := c.start()
			req := driver.Request{Name: "job", TTL: 10 * time.Second, MinHold: c.minHold}
			g, err := locktest.Ask(t.Context(), locks, req)
			require.NoError(t, err)
			require.NoError(t, g.Hold.Undo(t.Context()), "at once, whatever its MinHold")
			require.False(t, inspect(t, locks, "job").Held)

			g, err = locktest.Ask(t.Context(), locks, req)
			require.NoError(t, err)
			require.Equal(t, c.ends, inspect(t, locks, "job").Remaining)
			locks.Fail(errDown)
			if c.ends > 0 {
				time.Sleep(c.ends - 1)
				require.ErrorIs(t, g.Hold.Undo(t.Context()), errDown)
				time.Sleep(time.Nanosecond)
				synctest.Wait()
				require.NoError(t, g.Hold.Undo(t.Context()), "it has ended")
				return
			}
			time.Sleep(time.Hour)
			require.ErrorIs(t, g.Hold.Undo(t.Context()), errDown)
			locks.Fail(nil)
			require.NoError(t, g.Hold.Undo(t.Context()))
			require.False(t, inspect(t, locks, "job").Held)
		})
	}
}
