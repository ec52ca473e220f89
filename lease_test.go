package locker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
)

const ttl = 9 * time.Second

// lease locks "job" on a client of f with a TTL of 9 s.
func lease(t *testing.T, f locker.Backend, opts ...locker.Option) (*locker.Client, *locker.Lease) {
	t.Helper()
	c := locker.New(f, &locker.Options{TTL: ttl})
	l, err := c.Lock(t.Context(), "job", opts...)
	require.NoError(t, err)
	return c, l
}

// A service that refuses may keep the lock for longer than the TTL.
func TestAReleaseThatFailsSaysWhenTheLockIsFreeOnlyIfTheTTLDecides(t *testing.T) {
	for cause, says := range map[error]bool{errDown: true, errors.New("no permission"): false} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			c, l := lease(t, f)
			f.release = func(n int, _ context.Context) error {
				if n == 1 {
					return cause
				}
				return nil
			}
			err := l.Unlock(t.Context())
			require.ErrorIs(t, err, cause)
			assert.Equal(t, says, strings.Contains(err.Error(), "free after 9s at the latest"), err.Error())
			time.Sleep(time.Second)
			assert.Empty(t, f.owner("job"), "it was tried again")
			require.NoError(t, c.Close())
		})
	}
}

func TestUntilCountsFromBeforeTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		sent := time.Now()
		f.before = func(_ int, _ context.Context, req locker.Request) (locker.Grant, error, bool) {
			g, err := f.acquire(req)
			time.Sleep(2 * time.Second) // the answer takes its time
			return g, err, true
		}
		c, l := lease(t, f)
		assert.Equal(t, ttl-(ttl/100+2*time.Millisecond), l.Until().Sub(sent),
			"TTL less 1 % + 2 ms, from the send")
		require.NoError(t, l.Unlock(t.Context()))
		require.NoError(t, c.Close())
	})
}

func TestLeaseIsRenewedEveryThirdOfItsTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c, l := lease(t, f)
		time.Sleep(10 * ttl)
		synctest.Wait()
		assert.NoError(t, l.Err())
		assert.InDelta(t, 31, f.renewals, 2)
		assert.EqualValues(t, f.renewals, c.Stats().Renewed)
		require.NoError(t, c.Close())
	})
}

// A renewal that hangs postponed the loss to 7.4 s on a lease of 5 s elsewhere.
func TestHangingRenewalDoesNotPostponeTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.renew = func(int,
			context.Context) error {
			time.Sleep(time.Hour)
			return nil
		} // not even its context ends it
		_, l := lease(t, f)
		until := l.Until()
		<-l.Done()
		assert.Equal(t, until, time.Now())
		assert.ErrorIs(t, l.Err(), locker.ErrLost)
		time.Sleep(2 * time.Hour)
		assert.ErrorIs(t, l.Err(), locker.ErrLost, "the answer that came too late changes nothing")
	})
}

func TestFailedRenewalIsNotALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		start := time.Now()
		f.renew = func(_ int, ctx context.Context) error {
			if d := time.Since(start); d > 2*time.Second && d < 8*time.Second {
				return hang(ctx)
			}
			return nil
		}
		c, l := lease(t, f)
		time.Sleep(10 * ttl)
		assert.NoError(t, l.Err())
		assert.NotZero(t, c.Stats().RenewFailed)
		require.NoError(t, c.Close())
	})
}

func TestRenewalsAreTriedUpToTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		var last time.Time
		f.renew = func(int, context.Context) error { last = time.Now(); return errDown }
		c, l := lease(t, f)
		until := l.Until()
		<-l.Done()
		assert.Equal(t, until, time.Now())
		assert.Less(t, until.Sub(last), ttl/10)
		assert.Greater(t, f.renewals, 5)
		require.NoError(t, c.Close())
	})
}

func TestKeyThatIsGoneEndsTheLeaseAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c, l := lease(t, f)
		f.remove("job")
		<-l.Done()
		assert.Less(t, time.Until(l.Until()), ttl)
		assert.Greater(t, time.Until(l.Until()), ttl/2, "told by the first renewal")
		assert.ErrorIs(t, l.Err(), locker.ErrLost)
		assert.Empty(t, f.owner("job"), "a renewal never acquires again")
		require.NoError(t, c.Close())
	})
}

func TestServiceCanTellALossUnasked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c, l := lease(t, f)
		f.requests[0].Lost()
		f.requests[0].Lost()
		assert.True(t, isDone(l))
		assert.ErrorIs(t, l.Err(), locker.ErrLost)
		assert.EqualValues(t, 1, c.Stats().Lost)

		// Told before the answer to the request has come: never given out.
		f.before = func(_ int, _ context.Context, req locker.Request) (locker.Grant, error, bool) {
			g, err := f.acquire(req)
			req.Lost()
			return g, err, true
		}
		_, err := c.TryLock(t.Context(), "other")
		require.ErrorIs(t, err, locker.ErrUnavailable)
		synctest.Wait()
		assert.Empty(t, f.owner("other"))
		require.NoError(t, c.Close())
	})
}

func TestMaxHold(t *testing.T) {
	for name, hold := range map[string]time.Duration{"longer than the TTL": 5 * ttl,
		"shorter than the TTL": ttl / 2, "the TTL": ttl} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				start := time.Now()
				c, l := lease(t, f, locker.MaxHold(hold))
				limit := start.Add(hold - hold/100 - 2*time.Millisecond)
				for !isDone(l) {
					require.False(t, l.Until().After(limit), "Until passed MaxHold")
					if f.owner("job") == "" {
						t.Fatal("the key is gone under a holder that may still act")
					}
					time.Sleep(10 * time.Millisecond)
				}
				assert.WithinDuration(t, limit, time.Now(), 10*time.Millisecond)
				assert.ErrorIs(t, l.Err(), locker.ErrLost)
				assert.ErrorContains(t, l.Err(), "MaxHold")
				assert.ErrorContains(t, l.Renew(t.Context()), "MaxHold")
				time.Sleep(2 * ttl)
				assert.Empty(t, f.owner("job"), "others can get in")
				require.NoError(t, c.Close())
			})
		})
	}
}

func TestMaxHoldWithoutDeadlineReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.before = func(_ int, _ context.Context, req locker.Request) (locker.Grant, error, bool) {
			req.TTL = time.Hour
			g, err := f.acquire(req)
			g.Validity.TTL = 0
			return g, err, true
		}
		c, l := lease(t, f, locker.MaxHold(time.Second))
		<-l.Done()
		assert.WithinDuration(t, l.Until(), time.Now(), time.Millisecond)
		time.Sleep(time.Second)
		assert.Empty(t, f.owner("job"))
		require.NoError(t, c.Close())
	})
}

func TestNoRenewLeavesItToTheHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c, l := lease(t, f, locker.NoRenew())
		time.Sleep(ttl / 2)
		require.NoError(t, l.Renew(t.Context()))
		time.Sleep(ttl * 3 / 4)
		require.NoError(t, l.Err())
		assert.Equal(t, 1, f.renewals)

		f.renew = func(_ int, ctx context.Context) error { return hang(ctx) }
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		err := l.Renew(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, l.Err(), "a failure is not a loss")

		<-l.Done()
		assert.ErrorIs(t, l.Renew(t.Context()), locker.ErrLost)
		require.NoError(t, c.Close())
	})
}

func TestContextEndsWithTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c, l := lease(t, f, locker.NoRenew())
		ctx, cancel := l.Context(t.Context())
		defer cancel()
		other, cancelOther := l.Context(t.Context())
		cancelOther()
		assert.Equal(t, context.Canceled, context.Cause(other))
		require.NoError(t, l.Err())
		<-ctx.Done()
		assert.ErrorIs(t, context.Cause(ctx), locker.ErrLost)
		assert.Equal(t, l.Until(), time.Now())
		late, cancel := l.Context(t.Context())
		defer cancel()
		assert.ErrorIs(t, context.Cause(late), locker.ErrLost)
		require.NoError(t, c.Close())
	})
}

func TestDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := closing(t, locker.New(f, &locker.Options{TTL: ttl}))
		mine := errors.New("mine")

		err := locker.Do(t.Context(), c, "job", func(_ context.Context, _ *locker.Lease) error {
			assert.NotEmpty(t, f.owner("job"))
			return mine
		})
		assert.Equal(t, mine, err)
		assert.Empty(t, f.owner("job"))

		// The caller's context ends: the lock is given back all the same.
		ctx, cancel := context.WithCancel(t.Context())
		err = locker.Do(ctx, c, "job", func(ctx context.Context, _ *locker.Lease) error {
			cancel()
			<-ctx.Done()
			return context.Cause(ctx)
		})
		assert.ErrorIs(t, err, context.Canceled)
		assert.Empty(t, f.owner("job"))

		// A loss is told even if fn does not care.
		err = locker.Do(t.Context(), c, "job", func(ctx context.Context, _ *locker.Lease) error {
			<-ctx.Done()
			assert.ErrorIs(t, context.Cause(ctx), locker.ErrLost)
			return nil
		}, locker.NoRenew())
		assert.ErrorIs(t, err, locker.ErrLost)

		err = locker.Do(t.Context(), c, "job", func(ctx context.Context, _ *locker.Lease) error {
			<-ctx.Done()
			return mine
		}, locker.NoRenew())
		assert.ErrorIs(t, err, locker.ErrLost)
		assert.ErrorIs(t, err, mine)

		assert.PanicsWithValue(t, "oops", func() {
			_ = locker.Do(t.Context(), c, "job", func(context.Context, *locker.Lease) error { panic("oops") })
		})
		assert.Empty(t, f.owner("job"), "unlocked although fn panicked")
	})
}

func TestUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c, l := lease(t, f)
		require.NoError(t, l.Unlock(t.Context()))
		assert.True(t, isDone(l))
		assert.ErrorIs(t, l.Err(), locker.ErrUnlocked)
		require.NoError(t, l.Unlock(t.Context()), "the first answer again")
		assert.Equal(t, 1, f.released())

		// The service lost it: the holder has to know.
		l, err := c.Lock(t.Context(), "job")
		require.NoError(t, err)
		f.put("job", time.Minute)
		require.ErrorIs(t, l.Unlock(t.Context()), locker.ErrLost)
		require.ErrorIs(t, l.Unlock(t.Context()), locker.ErrLost)
		assert.Equal(t, "somebody else", f.owner("job"))
		f.remove("job")

		// An ended context: the release is carried out in the background.
		l, err = c.Lock(t.Context(), "job")
		require.NoError(t, err)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		f.release = func(_ int, ctx context.Context) error { time.Sleep(time.Second); return ctx.Err() }
		require.ErrorIs(t, l.Unlock(ended), context.Canceled)
		require.NoError(t, l.Unlock(t.Context()), "the answer is that of the release")
		assert.Empty(t, f.owner("job"))
		require.NoError(t, c.Close())
	})
}

func TestFailedReleaseIsTriedAgainInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.release = func(n int, ctx context.Context) error {
			switch n {
			case 1:
				return errDown
			case 2:
				return hang(ctx)
			}
			return nil
		}
		c, l := lease(t, f)
		err := l.Unlock(t.Context())
		require.ErrorIs(t, err, locker.ErrUnavailable)
		assert.ErrorContains(t, err, "9s")
		assert.Equal(t, 1, c.Stats().Pending)
		time.Sleep(6 * time.Second)
		assert.Empty(t, f.owner("job"))
		assert.Zero(t, c.Stats().Pending)
		assert.EqualValues(t, 1, c.Stats().TakenBack)
		require.NoError(t, c.Close())
	})
}

func TestUnlockAfterALossClearsWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c, l := lease(t, f, locker.NoRenew())
		f.keys["job"].until = time.Now().Add(time.Hour) // a session keeps it alive
		<-l.Done()
		require.ErrorIs(t, l.Unlock(t.Context()), locker.ErrLost)
		synctest.Wait()
		assert.Empty(t, f.owner("job"))
		require.NoError(t, c.Close())
	})
}

func TestLostLeaseIsClearedWithoutUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c, l := lease(t, f, locker.NoRenew())
		f.keys["job"].until = time.Now().Add(time.Hour)
		<-l.Done()
		synctest.Wait()
		assert.NotEmpty(t, f.owner("job"), "a holder that was just told has some grace")
		time.Sleep(time.Second)
		assert.Empty(t, f.owner("job"))
		require.NoError(t, c.Close())
	})
}

func TestLeaseGivesWhatOnlyItsServiceHas(t *testing.T) {
	f := newFake()
	c := closing(t, locker.New(f, &locker.Options{Prefix: "p/", TokenBase: 1000}))
	l, err := c.Lock(t.Context(), "job")
	require.NoError(t, err)
	var req locker.Request
	require.True(t, l.As(&req))
	assert.Equal(t, "p/job", req.Name)
	assert.Equal(t, "job", l.Name())
	var wrong int
	assert.False(t, l.As(&wrong))
	token, ok := l.Token()
	assert.True(t, ok)
	assert.EqualValues(t, 1001, token)
}

// Two renewals whose answers overtake each other: the later promise counts.
func TestOlderAnswerDoesNotShortenTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.renew = func(n int, _ context.Context) error {
			if n == 1 {
				f.mu.Lock() // carried out at once, answered late
				f.keys["job"].until = time.Now().Add(ttl)
				f.mu.Unlock()
				time.Sleep(2 * time.Second)
			}
			return nil
		}
		c, l := lease(t, f, locker.NoRenew())
		time.Sleep(time.Second)
		slow := make(chan error, 1)
		go func() { slow <- l.Renew(t.Context()) }()
		time.Sleep(time.Second)
		require.NoError(t, l.Renew(t.Context()))
		until := l.Until()
		require.NoError(t, <-slow)
		assert.Equal(t, until, l.Until())
		require.NoError(t, c.Close())
	})
}
