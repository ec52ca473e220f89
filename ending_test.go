package locker_test

import (
	"context"
	"errors"
	"io/fs"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/memory"
)

// minHoldFake is a fake whose locks can outlive their clients. It keeps the lock
// of a request with MinHold for the longer of TTL and MinHold.
type minHoldFake struct{ *fake }

func (f minHoldFake) Guarantees() locker.Guarantees {
	g := f.fake.Guarantees()
	g.MaxMinHold = time.Hour
	return g
}

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

// A leftover that is not there may still arrive, and would stay for its MinHold: it is looked for for so
// long, and less and less often.
func TestALeftoverOfMinHoldThatIsNotThereIsLookedForSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := minHoldFake{newFake()}
		f.before = func(n int, _ context.Context, req locker.Request) (locker.Grant, error, bool) {
			return locker.Grant{Hold: f.hold(req)}, errDown, n == 1 // the request is lost
		}
		c := closing(t, locker.New(f, &locker.Options{TTL: ttl}))
		_, err := c.TryLock(t.Context(), "job", locker.MinHold(50*time.Minute))
		require.ErrorIs(t, err, locker.ErrUnavailable)
		time.Sleep(time.Hour)
		assert.Zero(t, c.Stats().Pending)
		assert.Zero(t, c.Stats().LeftBehind)
		assert.Less(t, f.released(), 100)
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

// What ended the caller's context may have been another lock: an error of this one says
// nothing of that.
func TestTheCauseOfAContextIsNoStateOfThisLock(t *testing.T) {
	synctest.Test(t, causes)
}

func causes(t *testing.T) {
	own := errors.New("my own reason")
	for _, cause := range []error{
		locker.ErrHeld, &locker.Error{Op: "lease", Name: "outer", Err: locker.ErrLost}, locker.ErrUnavailable, own,
		&fs.PathError{Op: "open", Err: fs.ErrNotExist},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		f := newFake()
		f.release = func(int, context.Context) error { time.Sleep(time.Millisecond); return nil }
		c := locker.New(f, nil)
		l, err := c.Lock(t.Context(), "job")
		require.NoError(t, err)
		cancel(cause)
		unlockErr := l.Unlock(ctx)
		_, lockErr := c.Lock(ctx, "other")
		for _, err := range []error{unlockErr, lockErr} {
			require.ErrorIs(t, err, context.Canceled)
			assert.ErrorContains(t, err, cause.Error())
			for _, s := range []error{locker.ErrHeld, locker.ErrLost, locker.ErrUnavailable} {
				assert.NotErrorIs(t, err, s)
			}
			assert.Equal(t, cause == own, errors.Is(err, own)) //nolint:errorlint // which of the table
			var path, want *fs.PathError
			assert.Equal(t, errors.As(cause, &want), errors.As(err, &path))
		}
		require.NoError(t, c.Close())
	}
}

// A server that recovers the panics of its requests goes on with the same Client.
func TestAPanicLeavesNothingBehind(t *testing.T) {
	for _, where := range []string{"Acquire", "Release", "Attempt", "Waiting", "LockDone", "Released"} {
		t.Run(where, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				armed := true
				fail := func(at string) {
					if armed && at == where {
						armed = false
						panic(at)
					}
				}
				tell := func(at string) func(context.Context, locker.Event) {
					return func(context.Context, locker.Event) { fail(at) }
				}
				f := &prompt{newFake()}
				f.before = func(n int, _ context.Context, _ locker.Request) (locker.Grant, error, bool) {
					fail("Acquire")
					return locker.Grant{}, errDown, where == "Waiting" && n == 1
				}
				f.release = func(int, context.Context) error { fail("Release"); return nil }
				c := locker.New(f, &locker.Options{TTL: ttl, Trace: &locker.Trace{Attempt: tell("Attempt"),
					Waiting: tell("Waiting"), LockDone: tell("LockDone"), Released: tell("Released")}})
				func() {
					defer func() { assert.NotNil(t, recover()) }()
					l, err := c.Lock(t.Context(), "job")
					require.NoError(t, err)
					_ = l.Unlock(t.Context())
				}()
				ctx, cancel := context.WithTimeout(t.Context(), ttl/2)
				defer cancel()
				l, err := c.Lock(ctx, "job")
				require.NoError(t, err)
				require.NoError(t, l.Unlock(ctx))
				began := time.Now()
				require.NoError(t, c.Close())
				assert.Zero(t, time.Since(began))
				assert.Empty(t, f.owner("job"))
			})
		})
	}
}

type prompt struct{ *fake }

func (prompt) Prompt() bool { return true }

// Nobody waits for a release once the caller's context is over.
func TestLockAllReturnsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.release = func(_ int, ctx context.Context) error { return hang(ctx) }
		f.before = func(n int, ctx context.Context, _ locker.Request) (locker.Grant, error, bool) {
			if n == 1 {
				return locker.Grant{}, nil, false
			}
			return locker.Grant{}, hang(ctx), true
		}
		c := locker.New(f, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := locker.LockAll(ctx, c, []string{"a", "b"})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.LessOrEqual(t, time.Since(began), 1100*time.Millisecond)
		_ = c.Close()
		time.Sleep(time.Minute) // until the last release has given up
	})
}

// A renewal that finds the lock unlocked has not failed.
func TestAnUnlockThatOvertakesARenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.renew = func(int, context.Context) error { time.Sleep(time.Second); return nil }
		var r told
		c := closing(t, locker.New(f, &locker.Options{TTL: ttl, Trace: r.trace()}))
		l, err := c.Lock(t.Context(), "job")
		require.NoError(t, err)
		for f.renewed() == 0 {
			time.Sleep(time.Millisecond)
		}
		require.NoError(t, l.Unlock(t.Context()))
		time.Sleep(2 * time.Second)
		assert.Zero(t, c.Stats().RenewFailed)
		for _, e := range r.take() {
			assert.NotContains(t, e, "renewed")
		}
	})
}

func (f *fake) renewed() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.renewals
}

// A Client that is closed asks for nothing any more: neither does it release what a
// MinHold keeps, nor does it ask for an operator.
func TestAClosedClientAsksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := minHoldFake{newFake()}
		c := locker.New(f, nil)
		l, err := c.Lock(t.Context(), "job", locker.MinHold(time.Hour))
		require.NoError(t, err)
		require.NoError(t, l.Unlock(t.Context()))
		require.NoError(t, c.Close())
		time.Sleep(2 * time.Hour)
		assert.Zero(t, f.released())

		locks := memory.New()
		c = locker.New(locks, nil)
		require.NoError(t, c.Close())
		_, err = c.Inspect(t.Context(), "job")
		require.ErrorIs(t, err, locker.ErrClosed)
		require.ErrorIs(t, c.Break(t.Context(), locker.State{Name: "job"}), locker.ErrClosed)
		require.ErrorIs(t, listError(t.Context(), c), locker.ErrClosed)
		_, err = c.Check(t.Context())
		require.Error(t, err)
	})
}

// keepingFake is a minHoldFake whose session keeps a lock for as long as the backend lives.
type keepingFake struct{ minHoldFake }

func (f keepingFake) Acquire(ctx context.Context, req locker.Request) (locker.Grant, error) {
	g, err := f.minHoldFake.Acquire(ctx, req)
	if g.Hold != nil {
		g.Session = true
		f.keys[req.Name].until = time.Now().Add(24 * time.Hour)
	}
	return g, err
}

// A backend that outlives its client has a session that would keep what MinHold kept.
func TestASessionLetsGoAfterMinHoldAlthoughItsClientIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := keepingFake{minHoldFake{newFake()}}
		c := locker.New(f, nil)
		l, err := c.Lock(t.Context(), "job", locker.MinHold(time.Hour))
		require.NoError(t, err)
		require.NoError(t, l.Unlock(t.Context()))
		require.NoError(t, c.Close())
		time.Sleep(59 * time.Minute)
		assert.NotEmpty(t, f.owner("job"))
		time.Sleep(2 * time.Minute)
		assert.Empty(t, f.owner("job"))
	})
}
