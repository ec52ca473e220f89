package bridge_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/bridge"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/memory"
)

// minHold is longer than a TTL.
const minHold = 8 * ttl

// isKept checks that nobody gets a lock on either service before minHold is over, counted
// from the grant, and everybody does soon after. The holder is dead by then.
func isKept(t *testing.T, services ...driver.Backend) {
	t.Helper()
	granted := time.Now()
	time.Sleep(minHold - time.Millisecond)
	for i, s := range services {
		_, err := clientOf(t, s, "").TryLock(t.Context(), "job")
		require.ErrorIs(t, err, locker.ErrHeld, "free on service %d", i+1)
	}
	time.Sleep(time.Until(granted.Add(minHold + 2*ttl)))
	isFree(t, services...)
}

// The time counts from the grant of both, however late the second one answers, unless that
// is too late: then nothing is left.
func TestMinHoldCountsFromTheGrantOfBoth(t *testing.T) {
	for _, away := range []time.Duration{0, ttl / 4, ttl - time.Second, ttl + time.Second} {
		synctest.Test(t, func(t *testing.T) {
			a, b := expiring(), expiring()
			b.acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
				time.Sleep(away)
				return b.Backend.Acquire(context.WithoutCancel(ctx), req)
			}
			pair, err := bridge.New(a, b)
			require.NoError(t, err)
			g, err := pair.Acquire(t.Context(), driver.Request{Name: "job", Owner: "owner", TTL: ttl, MinHold: minHold,
				Lost: func() {}})
			b.acquire = nil
			if away < ttl {
				require.NoError(t, err)
				isKept(t, a.Backend, b.Backend)
				return
			}
			require.ErrorIs(t, err, locker.ErrUnavailable)
			assert.Nil(t, g.Hold, "nothing is left")
			isFree(t, a.Backend, b.Backend)
		})
	}
}

// Close leaves a lock with MinHold to the services.
func TestMinHoldOutlastsClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := expiring(), expiring()
		pair, err := bridge.New(a, b)
		require.NoError(t, err)
		_, err = pair.Acquire(t.Context(), driver.Request{Name: "job", Owner: "owner", TTL: ttl, MinHold: minHold})
		require.NoError(t, err)
		require.NoError(t, pair.Close())
		isKept(t, a, b)
	})
}

// A hold without a deadline, as in a file, ends with the process otherwise.
func TestMinHoldOutlastsCloseAndNoLonger(t *testing.T) {
	for endless := range 2 {
		synctest.Test(t, func(t *testing.T) {
			on := [2]fake{expiring(), expiring()}
			m := memory.New()
			on[endless] = fake{Backend: m, acquire: func(ctx context.Context, req driver.Request) (driver.Grant, error) {
				req.MinHold = 0
				return m.Acquire(ctx, req)
			}}
			pair, err := bridge.New(on[0], on[1])
			require.NoError(t, err)
			c, err := locker.Open(t.Context(), "x://", &locker.Options{TTL: ttl}, driver.Openers{"x": opens(pair)})
			require.NoError(t, err)
			try(t, c, "job", locker.MinHold(minHold))
			require.NoError(t, c.Close())
			isKept(t, on[0].Backend, on[1].Backend)
		})
	}
}

// A program that waits for the second lock may die: the first one must not be locked for
// all of the MinHold then.
func TestMinHoldLocksNothingWhileTheSecondIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := expiring(), expiring()
		held := try(t, clientOf(t, b, "young"), "job")
		in := lockLater(t.Context(), pairOf(t, a, b), locker.MinHold(minHold), locker.NoRenew())
		for range 30 {
			time.Sleep(ttl / 10)
			synctest.Wait()
			isFree(t, a)
		}
		unlock(t, held)
		got := <-in
		require.NoError(t, got.err)
		assert.Greater(t, time.Until(got.Until()), ttl*8/10)
		isKept(t, a, b)
		require.ErrorIs(t, got.Err(), locker.ErrLost)
	})
}

// Nobody holds what an attempt has left on a service that is down: it does not stay for all
// of its MinHold when the service is back, however long that takes.
func TestMinHoldOfALeftoverIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := expiring(), forever()
		b.acquire = func(context.Context, driver.Request) (driver.Grant, error) {
			a.Fail(locker.ErrUnavailable) // when the second one refuses
			return driver.Grant{Refused: &driver.Refusal{}}, nil
		}
		_, err := pairOf(t, a, b).TryLock(t.Context(), "job", locker.MinHold(minHold))
		require.ErrorIs(t, err, locker.ErrUnavailable)
		time.Sleep(3 * ttl)
		a.Fail(nil)
		time.Sleep(ttl)
		isFree(t, a)
	})
}
