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

func TestCancelledWaitsReturnAtOnceAndPinOneThread(t *testing.T) {
	dir := t.TempDir()
	holder := mustLock(t, newClient(t, dir, nil), "n")
	b := newBackend(t, dir)
	for range 30 {
		// A Client of its own for each: one Client asks for a name once at a time.
		c := locker.New(b, nil)
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() {
			_, err := c.Lock(ctx, "n")
			failed <- err
		}()
		require.Eventually(t, func() bool { return c.Stats().Waiting == 1 }, patience, time.Millisecond)
		waitUntilBlocked(t, 1)
		cancel()
		began := time.Now()
		assert.ErrorIs(t, <-failed, context.Canceled)
		assert.Less(t, time.Since(began), time.Second)
		assert.NoError(t, c.Close())
	}
	assert.Equal(t, 1, blocked())

	// The thread that they left behind serves the next one, and then lets go.
	adopter := locker.New(b, nil)
	got := make(chan *locker.Lease, 1)
	go func() { got <- mustLock(t, adopter, "n") }()
	require.Eventually(t, func() bool { return adopter.Stats().Waiting == 1 }, patience, time.Millisecond)
	assert.Equal(t, 1, blocked())
	require.NoError(t, holder.Unlock(t.Context()))
	assert.NoError(t, (<-got).Unlock(t.Context()))
	assert.NoError(t, adopter.Close())
	waitUntilBlocked(t, 0)
}

// One thread waits for the file for all of them, and one for the turn.
func TestClientsOfOneBackendWaitInTwoThreadsAndInTurn(t *testing.T) {
	dir := t.TempDir()
	holder := mustLock(t, newClient(t, dir, nil), "n")
	b := newBackend(t, dir)
	var order []int // guarded by the lock
	var wg sync.WaitGroup
	for i := range 10 {
		c := locker.New(b, nil)
		wg.Go(func() {
			lease := mustLock(t, c, "n")
			order = append(order, i)
			assert.NoError(t, lease.Unlock(t.Context()))
			assert.NoError(t, c.Close())
		})
		require.Eventually(t, func() bool { n, _ := b.Waiters("n"); return n == i+1 }, patience, time.Millisecond)
		waitUntilBlocked(t, min(i+1, 2))
	}
	require.NoError(t, holder.Unlock(t.Context()))
	wg.Wait()
	assert.IsIncreasing(t, order)
}

func TestWhoComesLaterDoesNotOvertakeWhoWaits(t *testing.T) {
	dir := t.TempDir()
	a, b := newBackend(t, dir), newBackend(t, dir)
	first, second := newClientOf(t, b, nil), newClientOf(t, b, nil)
	for range 200 {
		held, err := a.Acquire(t.Context(), locker.Request{Name: "n"})
		require.NoError(t, err)
		var order []string // guarded by the lock
		var wg sync.WaitGroup
		lock := func(who string, c *locker.Client) {
			wg.Go(func() {
				lease := mustLock(t, c, "n")
				order = append(order, who)
				assert.NoError(t, lease.Unlock(t.Context()))
			})
		}
		lock("first", first)
		require.Eventually(t, func() bool { n, _ := b.Waiters("n"); return n == 1 }, patience, 10*time.Microsecond)
		// The kernel takes a moment to wake the one who waits.
		require.NoError(t, held.Hold.Release(t.Context()))
		lock("second", second)
		wg.Wait()
		require.Equal(t, []string{"first", "second"}, order)
	}
}

// The kernel grants the lock to a wait that nobody waits for any more: for
// those microseconds it is locked, and yet it is free.
func TestTryLockIsNotRefusedByAWaitThatWasGivenUp(t *testing.T) {
	dir := t.TempDir()
	a, b, c := newClient(t, dir, nil), newClient(t, dir, nil), newClient(t, dir, nil)
	for range 300 {
		holder := mustLock(t, a, "n")
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() {
			_, err := b.Lock(ctx, "n")
			failed <- err
		}()
		waitUntilBlocked(t, 1)
		cancel()
		require.ErrorIs(t, <-failed, context.Canceled)
		require.NoError(t, holder.Unlock(t.Context()))
		lease, err := c.TryLock(t.Context(), "n")
		require.NoError(t, err)
		require.NoError(t, lease.Unlock(t.Context()))
		waitUntilBlocked(t, 0)
	}
}

func TestTryLockIsNotRefusedByAWaitThatWasGivenUpAfterACrash(t *testing.T) {
	dir := t.TempDir()
	b, c := newClient(t, dir, nil), newClient(t, dir, nil)
	for range 5 {
		child := lab.StartChild(t, "hold", dir, "n")
		child.Expect(t, "holding", patience)
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() {
			_, err := b.Lock(ctx, "n")
			failed <- err
		}()
		waitUntilBlocked(t, 1)
		cancel()
		require.ErrorIs(t, <-failed, context.Canceled)
		child.Kill()
		lease, err := c.TryLock(t.Context(), "n")
		require.NoError(t, err)
		require.NoError(t, lease.Unlock(t.Context()))
		waitUntilBlocked(t, 0)
	}
}

func TestTryLockIsNotRefusedByThoseWhoLook(t *testing.T) {
	dir := t.TempDir()
	c := newClient(t, dir, nil)
	for range 2 {
		lab.StartChild(t, "inspect", dir, "n").Expect(t, "ready", patience)
	}
	for range 500 {
		lease, err := c.TryLock(t.Context(), "n")
		require.NoError(t, err)
		require.NoError(t, lease.Unlock(t.Context()))
	}
	// Nor is what a crash has left in the file taken for a holder.
	child := lab.StartChild(t, "hold", dir, "n")
	child.Expect(t, "holding", patience)
	child.Kill()
	for range 100 {
		lease, err := c.TryLock(t.Context(), "n")
		require.NoError(t, err)
		require.NoError(t, lease.Unlock(t.Context()))
	}
}

// A grant and a cancel that meet must not leave a lock that nobody holds.
func TestCancelAtTheMomentOfTheGrantLeavesNothingHeld(t *testing.T) {
	dir := t.TempDir()
	a, b := newBackend(t, dir), newBackend(t, dir)
	for range 1000 {
		held, err := a.Acquire(t.Context(), locker.Request{Name: "n"})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			g, err := b.Acquire(ctx, locker.Request{Name: "n", Wait: true, Queued: func() {}})
			if err == nil {
				assert.NoError(t, g.Hold.Release(context.Background()))
			} else {
				assert.ErrorIs(t, err, context.Canceled)
			}
		}()
		require.Eventually(t, func() bool { n, _ := b.Waiters("n"); return n == 1 }, patience, 10*time.Microsecond)
		go cancel()
		require.NoError(t, held.Hold.Release(t.Context()))
		<-done
		cancel()
	}
	g, err := a.Acquire(t.Context(), locker.Request{Name: "n"})
	require.NoError(t, err)
	assert.NoError(t, g.Hold.Release(t.Context()))
	waitUntilBlocked(t, 0)
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
