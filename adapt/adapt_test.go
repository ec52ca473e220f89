package adapt_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/adapt"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/internal/memlock"
)

// unlocker is what gocron.Lock is.
type unlocker interface{ Unlock(context.Context) error }

func newClient(t *testing.T, locks *memlock.Backend) *locker.Client {
	return locktest.Client(t, locks, nil)
}

func TestGocron(t *testing.T) {
	locks := memlock.New(false)
	a := adapt.Gocron[unlocker](newClient(t, locks))
	b := adapt.Gocron[unlocker](newClient(t, locks), locker.MinHold(time.Hour))
	held, err := a.Lock(t.Context(), "job")
	require.NoError(t, err)
	none, err := b.Lock(t.Context(), "job")
	require.ErrorIs(t, err, locker.ErrHeld)
	assert.Nil(t, none)
	require.NoError(t, held.Unlock(t.Context()))
	held, err = b.Lock(t.Context(), "job")
	require.NoError(t, err)
	require.NoError(t, held.Unlock(t.Context()))
	_, err = a.Lock(t.Context(), "job")
	require.ErrorIs(t, err, locker.ErrHeld, "the options are passed on")
	assert.Panics(t, func() { adapt.Gocron[struct{ unlocker }](nil) }, "at once, not in a job")
}

// The library locks and unlocks without a lease in its hands.
func TestLockAndUnlockByName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := memlock.New(false)
		ctx := locktest.Within(t, time.Hour)
		a, b := adapt.Certmagic(newClient(t, locks)), adapt.Certmagic(newClient(t, locks))
		require.ErrorIs(t, a.Unlock(ctx, "lock"), locker.ErrInvalid, "nothing is locked")
		require.ErrorIs(t, adapt.Certmagic(nil).Lock(ctx, "lock"), locker.ErrInvalid)
		assert.Panics(t, adapt.Sync(ctx, nil, "lock", func(error) {}).Lock)
		require.NoError(t, a.Lock(ctx, "lock"))
		time.AfterFunc(time.Minute, func() { assert.NoError(t, a.Unlock(ctx, "lock")) })
		began := time.Now()
		require.NoError(t, b.Lock(ctx, "lock"))
		assert.Equal(t, time.Minute, time.Since(began))

		locks.Lose("lock")
		require.NoError(t, b.Unlock(ctx, "lock"), "it was lost")
		require.ErrorIs(t, b.Unlock(ctx, "lock"), locker.ErrInvalid, "twice")

		require.NoError(t, b.Lock(ctx, "lock"))
		require.ErrorIs(t, a.Lock(ctx, "lock"), context.DeadlineExceeded)
		require.NoError(t, b.Unlock(ctx, "lock"), "though the context is over")
		synctest.Wait()
		again, err := newClient(t, locks).TryLock(t.Context(), "lock")
		require.NoError(t, err)
		require.NoError(t, again.Unlock(t.Context()))
	})
}

func TestCertmagic(t *testing.T) {
	locks := memlock.New(false)
	c, d := adapt.Certmagic(newClient(t, locks)), adapt.Certmagic(newClient(t, locks))
	tries := func(l *adapt.CertmagicLocker, want bool) {
		t.Helper()
		ok, err := l.TryLock(t.Context(), "a")
		require.NoError(t, err)
		require.Equal(t, want, ok)
	}
	tries(c, true)
	tries(d, false)
	require.NoError(t, c.Lock(t.Context(), "b"), "names have locks of their own")
	require.NoError(t, c.RenewLockLease(t.Context(), "a", time.Hour))
	require.ErrorIs(t, d.RenewLockLease(t.Context(), "a", time.Hour), locker.ErrInvalid)
	cut := errors.New("wrong password")
	locks.Fail(cut)
	_, err := d.TryLock(t.Context(), "a")
	require.ErrorIs(t, err, cut)
	locks.Fail(nil)

	// The lock is lost, and another goroutine of the process gets it before the first
	// unlocks: the first does not unlock the second's.
	locks.Lose("a")
	require.ErrorIs(t, c.RenewLockLease(t.Context(), "a", time.Hour), locker.ErrLost)
	require.NoError(t, c.Lock(t.Context(), "a"))
	require.NoError(t, c.Unlock(t.Context(), "a"))
	tries(d, false)
	require.NoError(t, c.Unlock(t.Context(), "a"))
	tries(d, true)
}

// forgetful is a service that finds a lock gone when it is released.
type forgetful struct{ *memlock.Backend }

type forgotten struct{ driver.Hold }

func (f forgetful) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	g, err := f.Backend.Acquire(ctx, req)
	g.Hold = forgotten{g.Hold}
	return g, err
}

func (f forgotten) Release(ctx context.Context, keep time.Duration) error {
	return errors.Join(f.Hold.Release(ctx, keep), locker.ErrLost)
}

func TestSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := memlock.New(true)
		var lost atomic.Int32
		ctx, cancel := context.WithCancel(t.Context())
		onLoss := func(err error) { assert.ErrorIs(t, err, locker.ErrLost); lost.Add(1) }
		here := adapt.Sync(ctx, newClient(t, locks), "a", onLoss)
		there := adapt.Sync(ctx, newClient(t, locks), "a", onLoss, locker.TTL(time.Minute))
		assert.Panics(t, func() { adapt.Sync(ctx, newClient(t, locks), "a", nil) })
		assert.Panics(t, here.Unlock, "nothing is locked")
		var inside, most int // guarded by the lock alone: the race detector looks, too
		var all sync.WaitGroup
		for i := range 20 {
			l := []sync.Locker{here, there}[i%2]
			all.Go(func() {
				l.Lock()
				defer l.Unlock()
				inside++
				most = max(most, inside)
				time.Sleep(time.Second)
				inside--
			})
		}
		all.Wait()
		assert.Equal(t, 1, most)
		assert.Zero(t, lost.Load())

		here.Lock()
		locks.Lose("a")
		synctest.Wait()
		assert.EqualValues(t, 1, lost.Load(), "at once")
		there.Lock() // somebody else
		next := func(l sync.Locker) {
			l.Lock()
			defer l.Unlock()
		}
		all.Go(func() { next(here) })
		synctest.Wait()
		here.Unlock() // of what was lost: nothing of the next ones
		time.Sleep(time.Hour)
		assert.EqualValues(t, 1, lost.Load(), "once")
		there.Unlock()
		all.Wait()

		next(adapt.Sync(ctx, locktest.Client(t, forgetful{locks}, nil), "a", onLoss))
		assert.EqualValues(t, 2, lost.Load(), "Unlock is the first to learn of it")
		locks.Fail(fmt.Errorf("cable cut: %w", locker.ErrUnavailable))
		assert.Panics(t, there.Lock, "after a minute")
		locks.Fail(nil)
		there.Lock()
		all.Go(func() { assert.PanicsWithError(t, "context canceled", there.Lock, "it waits for the other goroutine") })
		all.Go(func() { assert.Panics(t, here.Lock, "it waits for another holder") })
		synctest.Wait()
		cancel()
		all.Wait()
		there.Unlock()
		assert.Panics(t, there.Lock, "its context has ended")
	})
}

// A function of the caller's own that panics inside Lock leaves nothing locked.
func TestSyncAfterAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var once sync.Once
		trace := &locker.Trace{LockDone: func(context.Context, locker.Event) { once.Do(func() { panic("a trace") }) }}
		l := adapt.Sync(t.Context(), locktest.Client(t, memlock.New(false), &locker.Options{Trace: trace}), "a", func(error) {})
		assert.PanicsWithValue(t, "a trace", l.Lock)
		l.Lock()
		l.Unlock() //nolint:staticcheck // an empty section is what is tested
	})
}
