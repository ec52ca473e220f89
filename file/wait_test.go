//go:build linux || darwin

package file_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/file"
	"github.com/golockers/locker/internal/localfile"
	"github.com/golockers/locker/internal/locktest"
)

// One thread waits for the file for all callers, and one for the turn. A thread that callers have left behind serves
// the next one, and lets go when nobody waits any more.
func TestCallersOfOneBackendWaitInTwoThreadsAndInTurn(t *testing.T) {
	dir := t.TempDir()
	held, b := must(newBackend(t, dir).Acquire(t.Context(), request(false, 0))).Hold, newBackend(t, dir)
	var order []int // guarded by the lock
	var all sync.WaitGroup
	wait := func(ctx context.Context, i int) {
		all.Go(func() {
			g, err := locktest.Ask(ctx, b, waiting(false))
			if ctx.Err() != nil {
				assert.ErrorIs(t, err, context.Canceled)
				return
			}
			assert.NoError(t, err)
			order = append(order, i)
			assert.NoError(t, g.Hold.Release(t.Context(), 0))
		})
		require.Eventually(t, func() bool { n, _ := b.Waiters("n"); return n == i+1 }, patience, time.Millisecond)
	}
	for range 30 {
		ctx, cancel := context.WithCancel(t.Context())
		wait(ctx, 0)
		cancel()
		all.Wait() // which the holder does not end
		waitUntilBlocked(t, 1)
	}
	for i := range 10 {
		wait(t.Context(), i)
		waitUntilBlocked(t, min(i+1, 2))
	}
	require.NoError(t, held.Release(t.Context(), 0))
	all.Wait()
	assert.IsIncreasing(t, order)
	waitUntilBlocked(t, 0)
	shared := must(locktest.Ask(t.Context(), b, request(true, 0))).Hold // nobody has kept the turn
	require.NoError(t, shared.Release(t.Context(), 0))

	held = must(locktest.Ask(t.Context(), b, request(false, 0))).Hold
	all.Go(func() {
		_, err := locktest.Ask(t.Context(), b, waiting(false))
		assert.ErrorIs(t, err, driver.ErrClosed)
	})
	waitUntilBlocked(t, 1)
	require.NoError(t, b.Close())
	all.Wait()
	require.NoError(t, held.Release(t.Context(), 0))
	waitUntilBlocked(t, 0) // a thread that wakes up later would make the file anew
}

// The kernel grants the lock to a wait that nobody waits for any more, Inspect locks it to look, and a sharer has it
// alone as it comes or leaves: for those microseconds it is locked, and yet it is free. TryLock looks again, unless
// the file tells of a holder who lives.
func TestTryLockLooksAgainWhereAVisitorMayBe(t *testing.T) {
	for _, shared := range []bool{false, true} {
		b := newBackend(t, t.TempDir())
		require.NoError(t, must(locktest.Ask(t.Context(), b, request(shared, 0))).Hold.Release(t.Context(), 0))
		if shared {
			dies(t, must(locktest.Ask(t.Context(), b, request(shared, 0))).Hold)
		}
		f := must(os.Open(lockFile(t, b.Dir())))
		defer f.Close()
		require.NoError(t, localfile.Flock(f, localfile.Exclusive))
		began := time.Now()
		_, err := locktest.Ask(t.Context(), b, request(shared, 0))
		require.ErrorIs(t, err, driver.ErrHeld)
		assert.Greater(t, time.Since(began), 10*time.Millisecond)
	}
}

// A program dies when it has 10,000 threads: waits for many names must not.
func TestWaitsForManyNamesPinABoundedNumberOfThreads(t *testing.T) {
	const names = 300
	dir := t.TempDir()
	holder, waiter := newClient(t, dir, nil), newClient(t, dir, nil)
	var leases []*locker.Lease
	for i := range names {
		leases = append(leases, mustLock(t, holder, fmt.Sprint(i)))
	}
	var wg sync.WaitGroup
	for i := range names {
		wg.Go(func() {
			assert.NoError(t, mustLock(t, waiter, fmt.Sprint(i)).Unlock(t.Context()))
		})
	}
	// As many attempts as names, and some more by those that poll.
	require.Eventually(t, func() bool { return waiter.Stats().Refused > names }, patience, time.Millisecond)
	assert.Equal(t, file.MaxThreads, blocked())
	for _, l := range leases {
		require.NoError(t, l.Unlock(t.Context()))
	}
	wg.Wait()
}
