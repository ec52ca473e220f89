//go:build linux || darwin

package file_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/file"
	"github.com/golockers/locker/internal/lab"
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
			g, err := b.Acquire(ctx, waiting(false))
			if ctx.Err() != nil {
				assert.ErrorIs(t, err, context.Canceled)
				return
			}
			assert.NoError(t, err)
			order = append(order, i)
			assert.NoError(t, g.Hold.Release(t.Context()))
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
	require.NoError(t, held.Release(t.Context()))
	all.Wait()
	assert.IsIncreasing(t, order)
	waitUntilBlocked(t, 0)
	shared := must(b.Acquire(t.Context(), request(true, 0))).Hold // nobody has kept the turn
	require.NoError(t, shared.Release(t.Context()))

	held = must(b.Acquire(t.Context(), request(false, 0))).Hold
	all.Go(func() {
		_, err := b.Acquire(t.Context(), waiting(false))
		assert.ErrorIs(t, err, locker.ErrClosed)
	})
	waitUntilBlocked(t, 1)
	require.NoError(t, b.Close())
	all.Wait()
	require.NoError(t, held.Release(t.Context()))
}

// The kernel grants the lock to a wait that nobody waits for any more, and Inspect locks it to look: for those
// microseconds it is locked, and yet it is free. A crash may have left a holder's name in the file.
func TestTryLockIsNotRefusedByAVisitor(t *testing.T) {
	dir := t.TempDir()
	b, c := newClient(t, dir, nil), newClient(t, dir, nil)
	try := func(times int) {
		t.Helper()
		for range times {
			lease, err := c.TryLock(t.Context(), "n")
			require.NoError(t, err)
			require.NoError(t, lease.Unlock(t.Context()))
		}
	}
	crash := func() func() {
		child := lab.StartChild(t, "hold", dir, "n")
		child.Expect(t, "holding", patience)
		return child.Kill
	}
	for round := range 300 {
		var free func()
		if round < 5 {
			free = crash()
		} else {
			holder := mustLock(t, c, "n")
			free = func() { require.NoError(t, holder.Unlock(t.Context())) }
		}
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() {
			_, err := b.Lock(ctx, "n")
			failed <- err
		}()
		waitUntilBlocked(t, 1)
		cancel()
		require.ErrorIs(t, <-failed, context.Canceled)
		free()
		try(1)
		waitUntilBlocked(t, 0)
	}
	for range 2 {
		lab.StartChild(t, "inspect", dir, "n").Expect(t, "ready", patience)
	}
	try(500)
	crash()()
	try(100)
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
