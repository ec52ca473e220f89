package locker_test

import (
	"context"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
)

// lineBehindALease starts n callers behind a lease of their own client, and lets
// go of it while the service is out of reach for so long.
func lineBehindALease(t *testing.T, queue bool, n int, outage time.Duration) (got int,
	failed []time.Duration) {
	t.Helper()
	var down atomic.Bool
	f := newFake()
	f.queue = queue
	f.before = func(int, context.Context, locker.Request) (locker.Grant, error, bool) {
		return locker.Grant{}, errDown, down.Load()
	}
	f.release = func(int, context.Context) error {
		if down.Load() {
			return errDown
		}
		return nil
	}
	c, l := lease(t, f)
	type end struct {
		err  error
		when time.Time
	}
	ends := make(chan end, n)
	for range n {
		go func() {
			l, err := c.Lock(context.Background(), "job")
			ends <- end{err, time.Now()}
			if err == nil {
				assert.NoError(t, l.Unlock(context.Background()))
			}
		}()
	}
	synctest.Wait()
	down.Store(true)
	began := time.Now()
	time.AfterFunc(outage, func() { down.Store(false) })
	require.ErrorIs(t, l.Unlock(t.Context()), locker.ErrUnavailable)
	for range n {
		e := <-ends
		if e.err == nil {
			got++
			continue
		}
		assert.ErrorIs(t, e.err, locker.ErrUnavailable)
		assert.NotErrorIs(t, e.err, locker.ErrHeld)
		failed = append(failed, e.when.Sub(began))
	}
	time.Sleep(outage) // so that what could not be released is gone
	require.NoError(t, c.Close())
	return got, failed
}

func TestAnOutageDoesNotSendAWholeLineAway(t *testing.T) {
	for _, queue := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			got, failed := lineBehindALease(t, queue, 100, time.Second)
			assert.Equal(t, 100, got)
			assert.Empty(t, failed)
		})
	}
}

func TestALineSitsOutOneTTLTogetherAndNotOneEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got, failed := lineBehindALease(t, false, 100, 100*ttl)
		assert.Zero(t, got)
		for _, after := range failed {
			assert.InDelta(t, ttl, after, float64(2*time.Second))
		}
	})
}

// R17: what has not answered has not said "held".
func TestAServiceThatHangsIsNotHeldForThoseInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.before = func(_ int, ctx context.Context, _ locker.Request) (locker.Grant, error, bool) {
			return locker.Grant{}, hang(ctx), true
		}
		c := locker.New(f, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		errs := make(chan error, 3)
		for range cap(errs) {
			go func() { _, err := c.Lock(ctx, "job"); errs <- err }()
			synctest.Wait()
		}
		for range cap(errs) {
			err := <-errs
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.NotErrorIs(t, err, locker.ErrHeld)
		}
		require.NoError(t, c.Close())
	})
}

func TestThoseInLineBehindAQueueAreToldHeld(t *testing.T) {
	for _, tell := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			f.queue = true
			f.before = func(_ int, ctx context.Context, req locker.Request) (locker.Grant, error, bool) {
				if tell {
					req.Queued()
				}
				<-ctx.Done()
				return locker.Grant{}, ctx.Err(), true
			}
			c := locker.New(f, nil)
			head, end := context.WithCancel(t.Context())
			defer end()
			go func() { _, _ = c.Lock(head, "job") }()
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := c.Lock(ctx, "job")
			require.ErrorIs(t, err, context.DeadlineExceeded)
			if tell {
				require.ErrorIs(t, err, locker.ErrHeld)
			} else {
				require.NotErrorIs(t, err, locker.ErrHeld)
			}
			end()
			synctest.Wait()
			require.NoError(t, c.Close())
		})
	}
}

// deafNotify hangs in Notify until its context ends, as a connection does on
// which nobody answers.
type deafNotify struct{ *fake }

func (deafNotify) Notify(ctx context.Context, _ string, _ func()) (func(), error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// R14: progress never rests on being told.
func TestPollingGoesOnWhileNotifyHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.put("job", 3*time.Second)
		began := time.Now()
		c, _ := lease(t, deafNotify{f})
		assert.Less(t, time.Since(began), 4*time.Second)
		require.NoError(t, c.Close())
	})
}

func TestAHolderThatStaysForEverIsNotPolledWithoutPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.before = func(int, context.Context, locker.Request) (locker.Grant, error, bool) {
			return locker.Grant{}, &locker.HeldError{Remaining: math.MaxInt64}, true
		}
		c := locker.New(f, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := c.Lock(ctx, "job")
		require.ErrorIs(t, err, locker.ErrHeld)
		assert.Less(t, f.asked(), 600)
		require.NoError(t, c.Close())
	})
}

// Callers of other names waited for 6.9 s while 100,000 left: each looked for its place
// in the whole line, under the mutex of all lines. With -race, half as many took 22 s.
func TestManyCallersLeaveALineAtOnce(t *testing.T) {
	const callers = 100_000
	c := closing(t, locker.New(newFake(), &locker.Options{TTL: time.Hour}))
	l, err := c.Lock(t.Context(), "job")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	began := time.Now()
	for range callers {
		go func() { _, _ = c.Lock(ctx, "job") }()
	}
	for c.Stats().Waiting < callers {
		time.Sleep(time.Millisecond)
	}
	came := time.Since(began)
	began = time.Now()
	cancel()
	for c.Stats().Waiting > 0 {
		time.Sleep(time.Millisecond)
	}
	left := time.Since(began)
	t.Logf("%d callers came in %v and left in %v", callers, came, left)
	assert.Less(t, left, 20*time.Second)
	require.NoError(t, l.Unlock(t.Context()))
}
