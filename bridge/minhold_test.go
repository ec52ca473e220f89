package bridge_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/bridge"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/internal/memlock"
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
			pair := locktest.Must(bridge.New(a, b))
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

// The lock of one that unlocks, or is closed, is kept on both services, and no longer: also by one
// whose holds have no deadline, as those of a file.
func TestMinHoldIsKeptOnBoth(t *testing.T) {
	for _, end := range []string{"Unlock", "Close"} {
		for endless := range 3 {
			synctest.Test(t, func(t *testing.T) {
				on := [2]fake{expiring(), expiring()}
				if endless < 2 {
					m := memlock.New(false)
					on[endless] = fake{Backend: m, acquire: func(ctx context.Context, req driver.Request) (driver.Grant, error) {
						req.MinHold = 0
						return m.Acquire(ctx, req)
					}}
				}
				pair := locktest.Must(bridge.New(on[0], on[1]))
				c, err := locker.Open(t.Context(), "x://", &locker.Options{TTL: 100 * ttl}, driver.Openers{"x": opens(pair)})
				require.NoError(t, err)
				l := try(t, c, "job", locker.MinHold(minHold))
				if end == "Unlock" {
					require.NoError(t, l.Unlock(t.Context()))
				}
				require.NoError(t, c.Close())
				isKept(t, on[0].Backend, on[1].Backend)
			})
		}
	}
}

// goneHold is one whose session has ended, while its service keeps the lock for its MinHold.
type goneHold struct{ driver.Hold }

func (goneHold) Renew(context.Context) (driver.Validity, error) {
	return driver.Validity{}, driver.ErrLost
}
func (goneHold) Release(context.Context, time.Duration) error { return driver.ErrLost }

// Also where the hold on one of them is gone, and its holder knows it, or does not yet.
func TestMinHoldIsKeptOnBothAfterALossOnOne(t *testing.T) {
	for gone := range 2 {
		for _, end := range []string{"Unlock", "Close", "loss", "loss and Unlock", "loss and Close"} {
			synctest.Test(t, func(t *testing.T) {
				var lost func()
				on := [2]fake{expiring(), expiring()}
				on[gone].acquire = func(ctx context.Context, req driver.Request) (driver.Grant, error) {
					g, err := on[gone].Backend.Acquire(ctx, req)
					g.Hold, lost = goneHold{g.Hold}, req.Lost
					return g, err
				}
				c := pairOf(t, on[0], on[1])
				l := try(t, c, "job", locker.MinHold(minHold))
				if strings.HasPrefix(end, "loss") {
					lost()
				}
				if strings.HasSuffix(end, "Unlock") {
					require.ErrorIs(t, l.Unlock(t.Context()), locker.ErrLost)
				}
				if strings.HasSuffix(end, "Close") {
					require.NoError(t, c.Close())
				}
				isKept(t, on[0].Backend, on[1].Backend)
			})
		}
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
