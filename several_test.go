package locker_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/memory"
)

func names(ls locker.Leases) (all []string) {
	for _, l := range ls {
		all = append(all, l.Name())
	}
	return all
}

// In synctest, callers that wait for each other in a circle are a deadlock that
// fails the test.
func TestLockAllOfManyCallersIsNoDeadlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := memory.New()
		inside := map[string]int{} // guarded by the locks alone: the race detector looks, too
		for i := range 5 {
			inside[fmt.Sprint("account/", i)] = 0
		}
		var callers sync.WaitGroup
		for i := range 20 {
			c := closing(t, locker.New(locks, nil))
			random := rand.New(rand.NewPCG(uint64(i), 7))
			callers.Go(func() {
				for range 20 {
					var want []string
					for range 1 + random.IntN(4) { // in any order, and some twice
						want = append(want, fmt.Sprint("account/", random.IntN(5)))
					}
					err := locker.DoAll(t.Context(), c, want, func(_ context.Context, leases locker.Leases) error {
						assert.IsIncreasing(t, names(leases))
						assert.Subset(t, names(leases), want)
						time.Sleep(time.Millisecond)
						return nil
					})
					assert.NoError(t, err)
				}
			})
		}
		callers.Wait()
	})
}

func TestLockAllHoldsAllOrNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := memory.New()
		c, other := closing(t, locker.New(locks, nil)), closing(t, locker.New(locks, nil))
		theirs, err := other.Lock(t.Context(), "c")
		require.NoError(t, err)
		free := func(names ...string) {
			t.Helper()
			for _, name := range names {
				st, err := other.Inspect(t.Context(), name)
				require.NoError(t, err)
				assert.False(t, st.Held, name)
			}
		}

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = locker.LockAll(ctx, c, []string{"d", "c", "b", "a"})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, locker.ErrHeld)
		free("a", "b", "d")

		// One that is held is lost during the wait for another.
		time.AfterFunc(time.Second, func() { locks.Delete("a") })
		_, err = locker.LockAll(t.Context(), c, []string{"a", "b", "c"})
		require.ErrorIs(t, err, locker.ErrLost)
		free("a", "b")

		require.NoError(t, theirs.Unlock(t.Context()))
		held, err := locker.LockAll(t.Context(), c, []string{"b", "a", "b"})
		require.NoError(t, err)
		assert.Equal(t, []string{"a", "b"}, names(held))
		within, cancel := held.Context(t.Context())
		defer cancel()
		locks.Delete("b")
		<-within.Done()
		require.ErrorIs(t, context.Cause(within), locker.ErrLost)
		require.ErrorIs(t, held.Unlock(t.Context()), locker.ErrLost)
		free("a", "b")

		none, err := locker.LockAll(t.Context(), c, nil)
		require.NoError(t, err)
		require.NoError(t, none.Unlock(t.Context()))
		_, err = locker.LockAll(t.Context(), c, []string{"a"}, locker.MinHold(time.Minute))
		require.ErrorIs(t, err, locker.ErrInvalid)
	})
}

func TestTryDoLeavesAHeldLockAlone(t *testing.T) {
	locks := memory.New()
	c := closing(t, locker.New(locks, nil))
	do := func() error {
		return locker.TryDo(t.Context(), c, "job", func(context.Context, *locker.Lease) error {
			return locker.TryDo(t.Context(), c, "job", func(context.Context, *locker.Lease) error {
				t.Error("called without the lock")
				return nil
			})
		})
	}
	require.ErrorIs(t, do(), locker.ErrHeld)
	require.ErrorIs(t, do(), locker.ErrHeld, "and gave it back")
}
