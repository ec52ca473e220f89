package bridge_test

import (
	"context"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/backends"
	"github.com/golockers/locker/bridge"
	"github.com/golockers/locker/memory"
)

// minHold is longer than a TTL.
const minHold = 8 * ttl

// isKept checks that nobody gets a lock on either service before minHold is over, counted
// from the grant, and everybody does soon after. The holder is dead by then.
func isKept(t *testing.T, services ...locker.Backend) {
	t.Helper()
	granted := time.Now()
	time.Sleep(minHold - time.Millisecond)
	for i, s := range services {
		_, err := clientOf(t, s, "").TryLock(t.Context(), "job")
		require.ErrorIs(t, err, locker.ErrHeld, "free on service %d", i+1)
	}
	time.Sleep(time.Until(granted.Add(minHold + 2*ttl)))
	for _, s := range services {
		unlock(t, try(t, clientOf(t, s, ""), "job"))
	}
}

// acquire asks the pair as the engine does that then dies.
func acquire(t *testing.T, b *bridge.Backend, req locker.Request) error {
	t.Helper()
	req.Name, req.Owner, req.TTL, req.MinHold, req.Lost = "job", "owner", ttl, minHold, func() {}
	g, err := b.Acquire(t.Context(), req)
	if err != nil {
		assert.Nil(t, g.Hold, "nothing is left")
	}
	return err
}

func TestMinHoldCountsFromTheGrantOfBoth(t *testing.T) {
	for _, away := range []time.Duration{0, ttl / 4, ttl - time.Second} { // of the second service
		synctest.Test(t, func(t *testing.T) {
			a, b := memory.NewExpiring(), memory.NewExpiring()
			pair, err := bridge.New(a, distant{b, away})
			require.NoError(t, err)
			require.NoError(t, acquire(t, pair, locker.Request{}))
			isKept(t, shared{a}, shared{b})
		})
	}
}

func TestMinHoldWhereTheSecondAnswersTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := memory.NewExpiring(), memory.NewExpiring()
		pair, err := bridge.New(a, distant{b, ttl + time.Second})
		require.NoError(t, err)
		require.ErrorIs(t, acquire(t, pair, locker.Request{}), locker.ErrUnavailable)
		for _, s := range []*memory.Backend{a, b} {
			unlock(t, try(t, clientOf(t, shared{s}, ""), "job"))
		}
	})
}

func TestMinHoldAfterARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := shared{memory.NewExpiring()}, shared{memory.NewExpiring()}
		pair, err := bridge.New(a, b)
		require.NoError(t, err)
		old, young := clientOf(t, a, "old"), clientOf(t, b, "young")
		for range 2 {
			held := try(t, young, "job")
			require.ErrorIs(t, acquire(t, pair, locker.Request{}), locker.ErrHeld)
			unlock(t, try(t, old, "job"))
			unlock(t, held)
		}
		require.NoError(t, acquire(t, pair, locker.Request{}))
		isKept(t, a, b)
	})
}

// A program that waits for the second lock may die: the first one must not be locked for
// all of the MinHold then.
func TestMinHoldLocksNothingWhileTheSecondIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := shared{memory.NewExpiring()}, shared{memory.NewExpiring()}
		pair, old, young := pairOf(t, a, b), clientOf(t, a, "old"), clientOf(t, b, "young")
		held := try(t, young, "job")
		got := make(chan *locker.Lease)
		go func() {
			l, err := pair.Lock(t.Context(), "job", locker.MinHold(minHold), locker.NoRenew())
			assert.NoError(t, err)
			got <- l
		}()
		for range 30 {
			time.Sleep(ttl / 10)
			synctest.Wait()
			unlock(t, try(t, old, "job"))
		}
		unlock(t, held)
		l := <-got
		assert.Greater(t, time.Until(l.Until()), ttl*8/10)
		isKept(t, a, b)
		require.ErrorIs(t, l.Err(), locker.ErrLost)
	})
}

func TestMinHoldThatOneServiceCannotDo(t *testing.T) {
	a := shared{memory.New()}
	_, err := pairOf(t, a, polled{memory.New()}).TryLock(t.Context(), "job", locker.MinHold(minHold))
	require.ErrorContains(t, err, "cannot keep a lock without its client")
	_, err = pairOf(t, a, shared{memory.New()}).TryLock(t.Context(), "job", locker.MinHold(a.MaxMinHold()))
	require.ErrorIs(t, err, locker.ErrInvalid)
	require.ErrorContains(t, err, "together are more than")
	unlock(t, try(t, clientOf(t, a, ""), "job"))
}

func TestMinHoldOnServers(t *testing.T) {
	const ttl, minHold = time.Second, 3 * time.Second
	all := [][2]string{{"redis", "etcd"}, {"file", "redis"}, {"redis", "redlock"}, {"etcd", "postgres"}}
	for _, names := range all {
		t.Run(names[0]+" "+names[1], func(t *testing.T) {
			if names != [2]string{"redis", "etcd"} && os.Getenv(allEnv) == "" {
				t.Skip("it starts servers: set " + allEnv + "=1")
			}
			t.Parallel()
			a, b := services[names[0]](t).ownURL(), services[names[1]](t).ownURL()
			clients := make(map[string]*locker.Client)
			for _, urls := range []string{a + " " + b, a, b} {
				c, err := backends.Openers.Open(t.Context(), urls, &locker.Options{TTL: ttl})
				require.NoError(t, err)
				t.Cleanup(func() { assert.NoError(t, c.Close()) })
				clients[urls] = c
			}
			pair := clients[a+" "+b]
			held := try(t, clients[b], "job")
			_, err := pair.TryLock(t.Context(), "job", locker.MinHold(minHold))
			require.ErrorIs(t, err, locker.ErrHeld)
			unlock(t, try(t, clients[a], "job"))
			unlock(t, held)

			l, err := pair.Lock(t.Context(), "job", locker.MinHold(minHold))
			require.NoError(t, err)
			granted := time.Now()
			unlock(t, l)
			for urls, c := range clients {
				_, err := c.TryLock(t.Context(), "job")
				if time.Since(granted) < minHold {
					require.ErrorIs(t, err, locker.ErrHeld, urls)
				}
			}
			for _, urls := range []string{a, b} {
				l, err := clients[urls].Lock(t.Context(), "job")
				require.NoError(t, err)
				assert.GreaterOrEqual(t, time.Since(granted), minHold, urls)
				unlock(t, l)
			}
		})
	}
}

// downAtRefusal is a service that refuses everybody, at which moment the other one fails.
type downAtRefusal struct {
	shared
	other *memory.Backend
}

func (d downAtRefusal) Acquire(context.Context, locker.Request) (locker.Grant, error) {
	d.other.Fail(locker.ErrUnavailable)
	return locker.Grant{}, locker.ErrHeld
}

// Nobody holds what an attempt has left on a service that is down: it does not stay for all
// of its MinHold when the service is back, however long that takes.
func TestMinHoldOfALeftoverIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := memory.NewExpiring()
		pair := pairOf(t, shared{a}, downAtRefusal{shared{memory.New()}, a})
		_, err := pair.TryLock(t.Context(), "job", locker.MinHold(minHold))
		require.ErrorIs(t, err, locker.ErrUnavailable)
		time.Sleep(3 * ttl)
		a.Fail(nil)
		time.Sleep(ttl)
		unlock(t, try(t, clientOf(t, shared{a}, ""), "job"))
	})
}
