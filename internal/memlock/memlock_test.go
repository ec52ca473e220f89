package memlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/internal/memlock"
	"github.com/golockers/locker/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var newClient, mustLock = locktest.Client, locktest.Lock

func inspect(t *testing.T, locks *memlock.Backend, name string) driver.State {
	t.Helper()
	st, err := locks.Inspect(t.Context(), name)
	require.NoError(t, err)
	return st
}

// ending is a context that ends after the first look at it.
type ending struct {
	context.Context
	looked atomic.Bool
}

func (e *ending) Err() error {
	if e.looked.Swap(true) {
		return context.Canceled
	}
	return nil
}

func (e *ending) Done() <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}

// A lock that is granted at the moment at which the caller gives up is granted: "held"
// would be wrong, since nobody else has it. Go chooses at random among channels that are
// ready, so this takes many tries.
func TestALockThatIsGrantedAsItsContextEndsIsNotHeld(t *testing.T) {
	locks := memlock.New(false)
	for range 200 {
		g, err := locktest.Ask(&ending{Context: t.Context()}, locks, driver.Request{Name: "n", Wait: true, Queued: func() {}})
		require.NoError(t, err)
		require.NoError(t, g.Hold.Release(t.Context(), 0))
	}
}

func TestTimeInTheQueueDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := memlock.New(false)
		first := mustLock(t, newClient(t, locks, nil), "n")
		time.AfterFunc(time.Hour, func() { assert.NoError(t, first.Unlock(context.Background())) })
		second, err := locktest.Ask(t.Context(), locks, driver.Request{Name: "n", Wait: true, Queued: func() {}})
		require.NoError(t, err)
		assert.Equal(t, time.Now(), second.Validity.Since)
	})
}

// A program that gives its requests the lease's deadline has to work on every service.
func TestADeadlineOfALeaseThatHasNoneIsFarAway(t *testing.T) {
	lease := mustLock(t, newClient(t, memlock.New(false), nil), "n")
	ctx, cancel := context.WithDeadline(t.Context(), lease.Until())
	defer cancel()
	require.NoError(t, ctx.Err())
	assert.Greater(t, time.Until(lease.Until()), 99*365*24*time.Hour)
	written, err := lease.Until().MarshalJSON()
	require.NoError(t, err, "a year of four digits")
	assert.NotContains(t, string(written), `"0001`)
}

func TestDeleteEndsTheHoldersLeaseAndNothingElse(t *testing.T) {
	locks := memlock.New(false)
	// A TTL that long: it is not a renewal that finds out.
	a, b := newClient(t, locks, &locker.Options{Prefix: "p/", TTL: 24 * time.Hour}),
		newClient(t, locks, &locker.Options{Prefix: "p/"})
	lost, kept := mustLock(t, a, "n"), mustLock(t, a, "other")

	assert.False(t, locks.Lose("n"), "the prefix is a part of the name")
	assert.True(t, locks.Lose("p/n"))
	select {
	case <-lost.Done():
	case <-time.After(10 * time.Second):
		require.Fail(t, "the holder was not told")
	}
	assert.ErrorIs(t, lost.Err(), driver.ErrLost)
	assert.NoError(t, kept.Err())

	// The old holder's Unlock must not free the next holder's lock.
	next := mustLock(t, b, "n")
	assert.ErrorIs(t, lost.Unlock(t.Context()), driver.ErrLost)
	assert.NoError(t, next.Renew(t.Context()))
	assert.True(t, inspect(t, locks, "p/n").Held)
	assert.False(t, locks.Lose("nobody's"))
}

func TestInspectSaysWhoHolds(t *testing.T) {
	before := time.Now()
	locks := memlock.New(false)
	assert.Equal(t, driver.State{Name: "n"}, inspect(t, locks, "n"))
	lease := mustLock(t, newClient(t, locks, &locker.Options{Label: "the night job"}), "n")
	token, _ := lease.Token()
	st := inspect(t, locks, "n")
	assert.Equal(t, driver.State{Name: "n", Held: true, Holder: st.Holder, Label: "the night job", Token: token,
		Since: st.Since}, st)
	assert.WithinRange(t, st.Since, before, time.Now())
	require.ErrorIs(t, locks.Break(t.Context(), driver.State{Name: "n", Held: true, Holder: "1"}), driver.ErrInvalid)
	require.NoError(t, lease.Err(), "that is another backend's holder")
}

func TestCloseEndsWaitsAndLeavesHolders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := memlock.New(false)
		held, err := locktest.Ask(t.Context(), locks, driver.Request{Name: "n"})
		require.NoError(t, err)
		time.AfterFunc(time.Second, func() { assert.NoError(t, locks.Close()) })
		for range 2 {
			_, err = locktest.Ask(t.Context(), locks, driver.Request{Name: "n", Wait: true, Queued: func() {}})
			require.ErrorIs(t, err, driver.ErrClosed)
		}
		require.NoError(t, locks.Close())
		_, err = held.Hold.Renew(t.Context())
		assert.NoError(t, err)
		assert.NoError(t, held.Hold.Release(t.Context(), 0))
	})
	failed := memlock.New(false)
	failed.Fail(errDown)
	require.NoError(t, failed.Close())
	failed.Fail(nil)
	_, err := locktest.Ask(t.Context(), failed, driver.Request{Name: "n"})
	require.ErrorIs(t, err, driver.ErrClosed)
}

func TestProveSharersAtTheBound(t *testing.T) {
	lab.NeedProve(t)
	locktest.MaxSharers(t, memlock.New(false), func() {})
}

// Those who waited for a writer are let in up to the bound; a State names some of them, and one without a Holder breaks
// nobody.
func TestSharersWhoWaitedAtTheBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, grants := memlock.New(false), make(chan driver.Grant, driver.MaxSharers+2)
		writer, err := locktest.Ask(t.Context(), locks, driver.Request{Name: "n"})
		require.NoError(t, err)
		for i := range cap(grants) {
			go func() {
				g, err := locktest.Ask(t.Context(), locks, driver.Request{Name: "n", Label: fmt.Sprint(i), Shared: true, Wait: true,
					Queued: func() {}, Lost: func() {}})
				assert.NoError(t, err)
				grants <- g
			}()
		}
		sees := func(sharers, waiters int) {
			synctest.Wait()
			st := inspect(t, locks, "n")
			assert.Equal(t, []int{sharers, waiters}, []int{st.Sharers, st.Waiters})
			assert.Equal(t, []int{min(sharers, 16), min(waiters, 16)}, []int{len(st.Sharing), len(st.Waiting)})
		}
		sees(0, cap(grants))
		require.NoError(t, locks.Break(t.Context(), driver.State{Name: "n"}))
		sees(0, cap(grants))
		require.NoError(t, writer.Hold.Release(t.Context(), 0))
		sees(driver.MaxSharers, 2)
		require.NoError(t, (<-grants).Hold.Release(t.Context(), 0))
		sees(driver.MaxSharers, 1)
		require.NoError(t, locks.Break(t.Context(), inspect(t, locks, "n")))
		sees(1, 0) // who waited is none of them
	})
}

func TestOpen(t *testing.T) {
	for _, good := range []string{"memory://", "memory:///", "memory://?ttl=5s&prefix=a/"} {
		a, err := locker.Open(t.Context(), good, nil, memory.Openers)
		require.NoError(t, err, good)
		b, err := locker.Open(t.Context(), good, nil, memory.Openers)
		require.NoError(t, err, good)
		mustLock(t, a, "n")
		_, err = b.TryLock(t.Context(), "n")
		assert.NoError(t, err, "two Opens share nothing")
		assert.NoError(t, errors.Join(a.Close(), b.Close()))
	}
	for _, bad := range []string{"memory://name", "memory://user@", "memory:///name", "memory://?size=3"} {
		_, err := locker.Open(t.Context(), bad, nil, memory.Openers)
		assert.ErrorIs(t, err, driver.ErrInvalid, bad)
	}
}
