package memlock_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/internal/memlock"
)

var errDown = fmt.Errorf("the test says so: %w", driver.ErrUnavailable)

func TestAFailureEndsWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := memlock.New(false)
		a, b := newClient(t, locks, nil), newClient(t, locks, &locker.Options{OutageTimeout: time.Second})
		lease := mustLock(t, a, "job")
		ended := make(chan error, 1)
		go func() {
			_, err := b.Lock(t.Context(), "job")
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
		expiring      bool
		minHold, ends time.Duration
	}{
		{true, 0, 10 * time.Second},
		{true, time.Hour, time.Hour},
		{false, time.Second, 10 * time.Second},
		{false, 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			locks := memlock.New(c.expiring)
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

// What a MinHold keeps after the release is nobody's, and ends then.
func TestAMinHoldKeepsTheLockAfterTheRelease(t *testing.T) {
	for name, shared := range map[string]bool{"alone": false, "shared": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memlock.New(true)
				acquire := func(req driver.Request) driver.Grant {
					req.Name, req.TTL, req.Lost, req.Queued = "job", time.Hour, func() {}, func() {}
					g, err := b.Acquire(t.Context(), req)
					require.NoError(t, err)
					return g
				}
				held := func() time.Duration {
					g := acquire(driver.Request{})
					if g.Refused == nil {
						require.NoError(t, g.Hold.Release(t.Context(), 0))
						return 0
					}
					return inspect(t, b, "job").Remaining
				}
				for _, end := range []string{"passes", "released", "undone", "broken"} {
					h := acquire(driver.Request{MinHold: time.Minute, Shared: shared, Label: "it"}).Hold
					require.NoError(t, h.Release(t.Context(), 10*time.Second))
					time.Sleep(time.Second)
					require.NoError(t, h.Release(t.Context(), time.Minute), "it is kept already")
					_, err := h.Renew(t.Context())
					require.ErrorIs(t, err, driver.ErrLost)
					require.ErrorIs(t, h.(driver.TokenRaiser).RaiseToken(t.Context(), 1000), driver.ErrLost)
					assert.Equal(t, 9*time.Second, held())
					st := inspect(t, b, "job")
					assert.Equal(t, "it", st.Label)
					assert.Equal(t, 9*time.Second, time.Until(st.KeptUntil))
					switch end {
					case "passes":
						time.Sleep(9*time.Second - time.Millisecond)
						assert.Equal(t, time.Millisecond, held())
						time.Sleep(time.Millisecond)
					case "released":
						require.NoError(t, h.Release(t.Context(), 0))
					case "undone":
						require.NoError(t, h.Undo(t.Context()))
					case "broken":
						require.NoError(t, b.Break(t.Context(), st))
					}
					synctest.Wait()
					assert.Zero(t, held(), end)
					require.ErrorIs(t, h.Release(t.Context(), time.Minute), driver.ErrLost)
				}
			})
		})
	}
}
