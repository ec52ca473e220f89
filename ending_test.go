package locker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
)

// minHoldFake is a fake whose locks can outlive their clients. It keeps the lock
// of a request with MinHold for the longer of TTL and MinHold.
type minHoldFake struct{ *fake }

func (minHoldFake) MaxMinHold() time.Duration { return time.Hour }

func (f minHoldFake) Acquire(ctx context.Context, req locker.Request) (locker.Grant, error) {
	g, err := f.fake.Acquire(ctx, req)
	if k := f.keys[req.Name]; g.Hold != nil && k != nil && k.owner == req.Owner {
		k.until = time.Now().Add(max(req.TTL, req.MinHold))
	}
	return g, err
}

// Nobody has run the hourly job, and for an hour nobody could.
func TestALeftoverOfMinHoldIsTakenBackForAsLongAsItLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := minHoldFake{newFake()}
		f.before = func(n int, _ context.Context, req locker.Request) (locker.Grant, error, bool) {
			g, _ := f.acquire(req)
			return g, errDown, n == 1 // the reply is lost
		}
		down := time.Now().Add(5 * ttl)
		f.release = func(int, context.Context) error {
			if time.Now().Before(down) {
				return errDown
			}
			return nil
		}
		c := closing(t, locker.New(f, &locker.Options{TTL: ttl}))
		_, err := c.TryLock(t.Context(), "job", locker.MinHold(50*time.Minute))
		require.ErrorIs(t, err, locker.ErrUnavailable)
		time.Sleep(5*ttl + 2*time.Second)
		assert.Empty(t, f.owner("job"))
		assert.EqualValues(t, 1, c.Stats().TakenBack)
		assert.Zero(t, c.Stats().LeftBehind)
	})
}

// A leftover that is not there is not looked for for an hour: a late request is as
// late as without MinHold.
func TestALeftoverOfMinHoldThatIsNotThereIsNotLookedForForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := minHoldFake{newFake()}
		f.before = func(n int, _ context.Context, req locker.Request) (locker.Grant, error, bool) {
			return locker.Grant{Hold: f.hold(req)}, errDown, n == 1 // the request is lost
		}
		c := closing(t, locker.New(f, &locker.Options{TTL: ttl}))
		_, err := c.TryLock(t.Context(), "job", locker.MinHold(50*time.Minute))
		require.ErrorIs(t, err, locker.ErrUnavailable)
		time.Sleep(ttl + 2*time.Second)
		assert.Zero(t, c.Stats().Pending)
		assert.Zero(t, c.Stats().LeftBehind)
	})
}

func TestNothingIsPendingAfterCloseUnderMinHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := minHoldFake{newFake()}
		c, l := lease(t, f, locker.MinHold(5*time.Minute))
		require.NoError(t, l.Unlock(t.Context()))
		assert.Equal(t, 1, c.Stats().Pending)
		require.NoError(t, c.Close())
		assert.Zero(t, c.Stats().Pending)
		time.Sleep(4 * time.Minute)
		assert.NotEmpty(t, f.owner("job"))
		time.Sleep(2 * time.Minute)
		assert.Empty(t, f.owner("job"), "the lock of a session would stay")
	})
}

// Otherwise it waits on for an hour, with a service that may be closed.
func TestCloseEndsALockWhoseGrantCameTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.before = func(n int, _ context.Context, req locker.Request) (locker.Grant, error, bool) {
			if n == 1 {
				g, err := f.acquire(req)
				time.Sleep(2 * ttl)
				f.put("job", time.Hour) // somebody else, meanwhile
				return g, err, true
			}
			return locker.Grant{}, nil, false
		}
		c := locker.New(f, &locker.Options{TTL: ttl})
		locked := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _, err := c.Lock(ctx, "job"); locked <- err }()
		time.Sleep(3 * ttl)
		assert.Equal(t, 1, c.Stats().Waiting)
		require.Len(t, c.Waits(), 1)
		assert.Equal(t, 3*ttl, c.Waits()[0].Longest)
		require.NoError(t, c.Close())
		synctest.Wait()
		select {
		case err := <-locked:
			assert.ErrorIs(t, err, locker.ErrClosed)
		default:
			t.Error("Lock goes on after Close")
		}
		assert.Zero(t, c.Stats().Waiting)
	})
}

// MinHold is over when its take-back begins: a TTL later nothing can be left.
func TestATakeBackAfterMinHoldIsNotTriedForAnotherOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := minHoldFake{newFake()}
		f.release = func(int, context.Context) error { return errDown }
		c, l := lease(t, f, locker.MinHold(50*time.Minute))
		require.NoError(t, l.Unlock(t.Context()))
		time.Sleep(52 * time.Minute)
		assert.Zero(t, c.Stats().Pending)
		require.NoError(t, c.Close())
	})
}

func TestALostLeaseIsTakenBackOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.renew = func(int, context.Context) error { return locker.ErrLost }
		c, l := lease(t, f)
		<-l.Done()
		require.ErrorIs(t, l.Unlock(t.Context()), locker.ErrLost)
		synctest.Wait()
		assert.Empty(t, f.owner("job"), "its holder has stopped")
		time.Sleep(time.Minute)
		assert.EqualValues(t, 1, c.Stats().TakenBack)
		assert.Equal(t, 1, f.released())
		require.NoError(t, c.Close())
	})
}

// A caller whose context cannot end was told that it had ended.
func TestTheTimeOfAReleaseIsNotTheCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.release = func(n int, ctx context.Context) error {
			if n == 1 {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		c := closing(t, locker.New(f, nil))
		err := locker.Do(context.Background(), c, "job", func(context.Context, *locker.Lease) error { return nil })
		assert.ErrorIs(t, err, locker.ErrUnavailable)
		assert.NotErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestAnotherClientsCloseIsNotOurs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.put("job", time.Hour)
		other, c := locker.New(newFake(), nil), closing(t, locker.New(f, nil))
		outer, err := other.Lock(t.Context(), "outer")
		require.NoError(t, err)
		ctx, cancel := outer.Context(t.Context())
		defer cancel()
		time.AfterFunc(time.Second, func() { assert.NoError(t, other.Close()) })
		_, err = c.Lock(ctx, "job")
		assert.ErrorIs(t, err, context.Canceled)
		assert.ErrorIs(t, err, locker.ErrHeld)
	})
}

// A loss while another name was waited for looked like a cancelled context.
func TestLockAllTellsOfALossDuringItsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.put("b", time.Hour)
		f.renew = func(int, context.Context) error { return locker.ErrLost }
		c := closing(t, locker.New(f, &locker.Options{TTL: ttl}))
		_, err := locker.LockAll(t.Context(), c, []string{"a", "b"})
		assert.ErrorIs(t, err, locker.ErrLost)
		assert.NotErrorIs(t, err, context.Canceled)
	})
}

// It waited for as long as the call before it.
func TestNoPatienceBehindACallInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.before = func(n int, ctx context.Context, _ locker.Request) (locker.Grant, error, bool) {
			if n == 2 {
				<-ctx.Done()
			}
			return locker.Grant{}, errDown, true
		}
		c := closing(t, locker.New(f, nil))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		go func() { _, _ = c.Lock(ctx, "job") }()
		time.Sleep(time.Second)
		began := time.Now()
		_, err := c.Lock(t.Context(), "job", locker.Patience(locker.NoPatience))
		assert.ErrorIs(t, err, locker.ErrUnavailable)
		assert.Zero(t, time.Since(began))
		assert.Equal(t, 1, c.Stats().Waiting)
	})
}
