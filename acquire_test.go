package locker_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
)

func TestThousandWaitersCostWhatOneCosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &notifying{fake: newFake()}
		f.put("job", time.Hour)
		c := locker.New(f, nil)
		var order []int
		var mu sync.Mutex
		for i := range 1000 {
			go func() {
				l, err := c.Lock(t.Context(), "job")
				if err != nil {
					return
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				_ = l.Unlock(context.Background())
			}()
			synctest.Wait() // so that the order of asking is known
		}
		before := f.asked()
		time.Sleep(time.Minute)
		assert.Less(t, f.asked()-before, 20, "requests in a minute in which nothing changes")
		assert.Equal(t, 1000, c.Stats().Waiting)

		f.remove("job")
		require.Equal(t, 1, f.wake(), "one listener for all")
		synctest.Wait()
		require.Len(t, order, 1000)
		for i, n := range order {
			require.Equal(t, i, n, "first come, first served")
		}
		assert.Equal(t, 1000, f.released())
		require.NoError(t, c.Close())
	})
}

func TestEveryAttemptHasAnOwnerOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.put("job", 3*time.Second)
		c, l := lease(t, f)
		require.NoError(t, l.Unlock(t.Context()))
		seen := map[string]bool{}
		for _, r := range f.requests {
			assert.Len(t, r.Owner, 40)
			assert.False(t, seen[r.Owner], "an owner was used twice")
			seen[r.Owner] = true
		}
		assert.Greater(t, len(seen), 2)
		require.NoError(t, c.Close())
	})
}

func TestPollingIsNoLaterThanTheHoldersTTL(t *testing.T) {
	for name, b := range map[string]func(*fake) locker.Backend{
		"no notifier":      func(f *fake) locker.Backend { return f },
		"wake-up was lost": func(f *fake) locker.Backend { return &notifying{fake: f} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				f.put("job", 3*time.Second)
				start := time.Now()
				c, _ := lease(t, b(f))
				assert.InDelta(t, 3, time.Since(start).Seconds(), 0.2)
				require.NoError(t, c.Close())
			})
		})
	}
}

// A release between the refusal and the subscription is told to nobody.
func TestWaiterAsksAgainAfterItSubscribed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &notifying{fake: newFake()}
		f.put("job", time.Hour)
		f.subscribed = func() { f.remove("job") }
		start := time.Now()
		c, _ := lease(t, f)
		assert.Equal(t, start, time.Now())
		assert.Zero(t, f.wake(), "nobody listens any more")
		require.NoError(t, c.Close())
	})
}

func TestErrorsOfAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.put("job", time.Hour)
		c := closing(t, locker.New(f, nil))

		_, err := c.TryLock(t.Context(), "job")
		require.ErrorIs(t, err, locker.ErrHeld)
		var e *locker.Error
		require.ErrorAs(t, err, &e)
		assert.Equal(t, "trylock", e.Op)
		assert.Equal(t, "job", e.Name)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = c.Lock(ctx, "job")
		require.ErrorIs(t, err, locker.ErrHeld)
		require.ErrorIs(t, err, context.DeadlineExceeded)

		why := errors.New("shutting down")
		ctx, cancelCause := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancelCause(why) })
		_, err = c.Lock(ctx, "job")
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, why)

		asked := f.asked()
		_, err = c.Lock(ctx, "job")
		require.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, asked, f.asked(), "nothing is asked with a context that is over")
	})
}

// etcd's Mutex stayed for 20 s after a cancel.
func TestCancelReturnsWhateverTheBackendDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.before = func(n int, _ context.Context, req locker.Request) (locker.Grant, error, bool) {
			if n > 1 {
				return locker.Grant{}, nil, false
			}
			time.Sleep(3 * time.Second) // deaf to its context
			g, err := f.acquire(req)
			return g, err, true
		}
		c := locker.New(f, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := c.Lock(ctx, "job")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, locker.ErrUnavailable, "the service has not answered")
		assert.LessOrEqual(t, time.Since(start), 1100*time.Millisecond)

		// What was granted after that is given back.
		time.Sleep(3 * time.Second)
		assert.Empty(t, f.owner("job"))
		assert.EqualValues(t, 1, c.Stats().TakenBack)
		require.NoError(t, c.Close())
	})
}

func TestUnknownOutcomeIsTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		var late locker.Request
		f.before = func(n int, _ context.Context, req locker.Request) (locker.Grant, error, bool) {
			if n > 1 {
				return locker.Grant{}, nil, false
			}
			late = req
			return locker.Grant{Hold: f.hold(req)}, errDown, true
		}
		c := locker.New(f, &locker.Options{TTL: ttl})
		_, err := c.TryLock(t.Context(), "job")
		require.ErrorIs(t, err, locker.ErrUnavailable)

		// The request was only late: it arrives after the first take-backs.
		time.Sleep(ttl / 4)
		require.NotZero(t, f.released())
		_, err = f.acquire(late)
		require.NoError(t, err)
		time.Sleep(2 * time.Second)
		assert.Empty(t, f.owner("job"), "a ghost was left behind")
		require.NoError(t, c.Close())
	})
}

func TestTakeBackEndsWithTheTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.before = func(_ int, _ context.Context, req locker.Request) (locker.Grant, error, bool) {
			return locker.Grant{Hold: f.hold(req)}, errDown, true
		}
		f.release = func(int, context.Context) error { return errDown }
		var told error
		takenBack := func(_ context.Context, e locker.Event) { told = e.Err }
		c := locker.New(f, &locker.Options{TTL: ttl, Trace: &locker.Trace{TakenBack: takenBack}})
		_, err := c.TryLock(t.Context(), "job")
		require.ErrorIs(t, err, locker.ErrUnavailable)
		time.Sleep(2 * ttl)
		synctest.Wait()
		assert.Zero(t, c.Stats().Pending)
		assert.EqualValues(t, 1, c.Stats().TakenBack, "whatever it was has ended by then")
		assert.NoError(t, told)
		asked := f.released()
		time.Sleep(ttl)
		assert.Equal(t, asked, f.released())
		require.NoError(t, c.Close())
	})
}

func TestLockSitsAnOutageOutForItsPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		var down atomic.Bool
		f.before = func(int, context.Context, locker.Request) (locker.Grant, error, bool) {
			return locker.Grant{}, errDown, down.Load()
		}
		var waiting []locker.Event
		c := closing(t, locker.New(f, &locker.Options{TTL: ttl, Trace: &locker.Trace{
			Waiting: func(_ context.Context, e locker.Event) { waiting = append(waiting, e) },
		}}))
		// after returns how long a Lock takes if the service is back after outage.
		after := func(outage time.Duration, opts ...locker.Option) (time.Duration, error) {
			down.Store(true)
			back := time.AfterFunc(outage, func() { down.Store(false) })
			defer back.Stop()
			began := time.Now()
			l, err := c.Lock(t.Context(), "job", opts...)
			took := time.Since(began)
			if err == nil {
				require.NoError(t, l.Unlock(t.Context()))
			}
			return took, err
		}

		took, err := after(ttl / 2)
		require.NoError(t, err, "a caller who was never told anything, either")
		assert.InDelta(t, ttl/2, took, float64(2*time.Second))

		asked := f.asked()
		waiting = nil
		took, err = after(10 * ttl)
		require.ErrorIs(t, err, locker.ErrUnavailable)
		require.NotErrorIs(t, err, locker.ErrHeld)
		assert.ErrorContains(t, err, "gave up after 9s and ")
		assert.ErrorContains(t, err, "connection refused")
		assert.Equal(t, ttl, took, "one TTL by default")
		assert.Less(t, f.asked()-asked, 30)
		require.NotEmpty(t, waiting)
		for _, e := range waiting {
			assert.Equal(t, "job", e.Name)
			assert.ErrorIs(t, e.Err, locker.ErrUnavailable)
			assert.InDelta(t, ttl, e.Took+e.Left, float64(time.Millisecond))
		}

		took, err = after(ttl, locker.Patience(time.Second))
		require.ErrorIs(t, err, locker.ErrUnavailable)
		assert.Equal(t, time.Second, took)

		took, err = after(ttl, locker.Patience(locker.NoPatience))
		require.ErrorIs(t, err, locker.ErrUnavailable)
		assert.Zero(t, took)

		down.Store(true)
		began := time.Now()
		_, err = c.TryLock(t.Context(), "job")
		require.ErrorIs(t, err, locker.ErrUnavailable)
		assert.Zero(t, time.Since(began), "TryLock never waits")

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = c.Lock(ctx, "job")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, locker.ErrUnavailable)

		refused := errors.New("WRONGPASS")
		f.before = func(int, context.Context, locker.Request) (locker.Grant, error, bool) {
			return locker.Grant{}, refused, true
		}
		began = time.Now()
		_, err = c.Lock(t.Context(), "job")
		require.ErrorIs(t, err, refused)
		assert.Zero(t, time.Since(began), "what asking again does not mend is told at once")
	})
}

// The one before it in line may have more patience, or less.
func TestACallerInLineHasItsOwnPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.before = func(int, context.Context, locker.Request) (locker.Grant, error, bool) {
			return locker.Grant{}, errDown, true
		}
		c := closing(t, locker.New(f, &locker.Options{TTL: ttl}))
		began := time.Now()
		took := make(chan time.Duration)
		for _, patience := range []time.Duration{5 * ttl, time.Second, 3 * ttl} {
			go func() {
				_, err := c.Lock(t.Context(), "job", locker.Patience(patience))
				assert.ErrorIs(t, err, locker.ErrUnavailable)
				took <- time.Since(began)
			}()
			synctest.Wait()
		}
		assert.InDelta(t, time.Second, <-took, float64(2*time.Second), "the head asks every second")
		assert.Equal(t, 2, c.Stats().Waiting)
		assert.InDelta(t, 3*ttl, <-took, float64(2*time.Second))
		assert.Equal(t, 5*ttl, <-took)
		assert.Zero(t, c.Stats().Waiting)
	})
}

func TestAnOutageWhileALockIsHeldIsSatOutToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		var down atomic.Bool
		f.before = func(int, context.Context, locker.Request) (locker.Grant, error, bool) {
			return locker.Grant{}, errDown, down.Load()
		}
		c := closing(t, locker.New(f, &locker.Options{TTL: ttl}))
		f.put("job", time.Minute)
		time.AfterFunc(10*time.Second, func() { down.Store(true) })
		time.AfterFunc(15*time.Second, func() { down.Store(false) })
		got := make(chan error, 1)
		go func() {
			l, err := c.Lock(t.Context(), "job")
			if err == nil {
				err = l.Unlock(t.Context())
			}
			got <- err
		}()
		time.Sleep(12 * time.Second)
		_, err := c.TryLock(t.Context(), "job")
		require.ErrorIs(t, err, locker.ErrUnavailable, "behind a head that cannot reach the service")
		require.NotErrorIs(t, err, locker.ErrHeld)
		require.NoError(t, <-got)

		f.put("job", time.Minute)
		start := time.Now()
		time.AfterFunc(10*time.Second, func() { down.Store(true) })
		_, err = c.Lock(t.Context(), "job")
		require.ErrorIs(t, err, locker.ErrUnavailable, "longer than its patience")
		assert.InDelta(t, 19, time.Since(start).Seconds(), 2)
	})
}

func TestAnswerLaterThanTheLeaseIsNotALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.before = func(_ int, _ context.Context, req locker.Request) (locker.Grant, error, bool) {
			g, err := f.acquire(req)
			time.Sleep(ttl)
			return g, err, true
		}
		c := locker.New(f, &locker.Options{TTL: ttl})
		_, err := c.TryLock(t.Context(), "job")
		require.ErrorIs(t, err, locker.ErrUnavailable)
		synctest.Wait()
		assert.Equal(t, 1, f.released())
		assert.Zero(t, c.Stats().Held)
		require.NoError(t, c.Close())
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.put("theirs", time.Hour)
		c := locker.New(f, nil)
		mine, err := c.Lock(t.Context(), "mine")
		require.NoError(t, err)
		ctx, cancel := mine.Context(t.Context())
		defer cancel()
		callers := []context.Context{t.Context(), context.Background(), context.WithoutCancel(t.Context())}
		names := []string{"mine", "theirs", "theirs"}
		errs := make(chan error, len(callers)*len(names))
		for _, ctx := range callers {
			for _, name := range names {
				go func() {
					_, err := c.Lock(ctx, name)
					errs <- err
				}()
			}
		}
		synctest.Wait()
		require.NoError(t, c.Close())
		for range cap(errs) {
			require.ErrorIs(t, <-errs, locker.ErrClosed)
		}
		assert.ErrorIs(t, mine.Err(), locker.ErrClosed)
		assert.ErrorIs(t, context.Cause(ctx), locker.ErrClosed)
		assert.ErrorIs(t, mine.Unlock(t.Context()), locker.ErrClosed)
		assert.Empty(t, f.owner("mine"))
		assert.Zero(t, f.closed, "New was given the backend, its user closes it")
		require.NoError(t, c.Close())
		_, err = c.Lock(t.Context(), "mine")
		assert.ErrorIs(t, err, locker.ErrClosed)
		_, err = c.TryLock(t.Context(), "mine")
		assert.ErrorIs(t, err, locker.ErrClosed)
		assert.Zero(t, c.Stats().Held)
	})
}

func TestCloseDoesNotWaitForAHangingService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c, _ := lease(t, f)
		f.release = func(_ int, ctx context.Context) error { time.Sleep(time.Minute); return ctx.Err() }
		start := time.Now()
		err := c.Close()
		require.ErrorIs(t, err, locker.ErrUnavailable)
		assert.LessOrEqual(t, time.Since(start), 10*time.Second)
		time.Sleep(2 * time.Minute)
	})
}

func TestCloseWaitsForTakeBacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.before = func(_ int, ctx context.Context, req locker.Request) (locker.Grant, error, bool) {
			g, _ := f.acquire(req)
			<-ctx.Done()
			time.Sleep(time.Second)
			return locker.Grant{Hold: g.Hold}, ctx.Err(), true
		}
		c := locker.New(f, nil)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, err := c.Lock(ctx, "job")
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, c.Close())
		assert.Empty(t, f.owner("job"))
	})
}

func TestBadInput(t *testing.T) {
	f := newFake()
	c := closing(t, locker.New(f, nil))
	for name, tc := range map[string]struct {
		name string
		opts []locker.Option
		want string
	}{
		"empty name": {"", nil, "the name is empty"},
		"long name":  {strings.Repeat("x", 513), nil, "513 bytes: the limit is 512"},
		"not UTF-8":  {"a\xff", nil, "not valid UTF-8"},
		"no TTL":     {"a", []locker.Option{locker.TTL(0)}, "from 100ms to 1h0m0s"},
		"TTL of 500 µs": {"a", []locker.Option{locker.TTL(500 * time.Microsecond)},
			"a TTL of 500µs is outside of what backend fake can do"},
		"TTL of 290 years": {"a", []locker.Option{locker.TTL(290 * 365 * 24 * time.Hour)},
			"from 100ms to 1h0m0s"},
		"no MaxHold":          {"a", []locker.Option{locker.MaxHold(0)}, "leave it out for no bound"},
		"negative MaxHold":    {"a", []locker.Option{locker.MaxHold(-1)}, "positive duration"},
		"MaxHold of a moment": {"a", []locker.Option{locker.MaxHold(time.Millisecond)}, "at least 10ms"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.Lock(t.Context(), tc.name, tc.opts...)
			assert.ErrorContains(t, err, tc.want)
			_, err = c.TryLock(t.Context(), tc.name, tc.opts...)
			assert.ErrorContains(t, err, tc.want)
			assert.ErrorIs(t, err, locker.ErrInvalid)
			assert.Equal(t, strings.Contains(name, "TTL"), errors.Is(err, errors.ErrUnsupported),
				"asked for more than the backend claims")
		})
	}
	for want, o := range map[string]locker.Options{
		"Options.TTL is -1s":        {TTL: -time.Second},
		"Options.MaxHold is -1s":    {MaxHold: -time.Second},
		"Options.Prefix has 129":    {Prefix: strings.Repeat("p", 129)},
		"Options.Prefix \"\\xff\"":  {Prefix: "\xff"},
		"Options.Label has 129":     {Label: strings.Repeat("l", 129)},
		"cannot be printed":         {Label: "a\nb"},
		"a TTL of 2h0m0s is outsid": {TTL: 2 * time.Hour},
		"so that no token overflow": {TokenBase: locker.MaxToken + 1},
	} {
		c := locker.New(f, &o)
		asked := f.asked()
		_, err := c.Lock(t.Context(), "a")
		assert.ErrorContains(t, err, want)
		assert.ErrorIs(t, err, locker.ErrInvalid)
		assert.Equal(t, asked, f.asked(), "found before the lock is granted")
		require.NoError(t, c.Close())
	}
	_, err := locker.New(nil, nil).Lock(t.Context(), "a")
	assert.ErrorContains(t, err, "no Backend")
	assert.Empty(t, f.owner("a"), "nothing is left behind")
}

func TestTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.put("job", time.Second)
		var events []string
		var mu sync.Mutex
		note := func(s string) {
			mu.Lock()
			defer mu.Unlock()
			if len(events) == 0 || events[len(events)-1] != s {
				events = append(events, s)
			}
		}
		c := locker.New(f, &locker.Options{TTL: ttl, Trace: &locker.Trace{
			Attempt: func(_ context.Context, e locker.Event) {
				if errors.Is(e.Err, locker.ErrHeld) {
					note("held")
				} else {
					note("granted")
				}
			},
			LockDone:  func(context.Context, locker.Event) { note("acquired") },
			Renewed:   func(context.Context, locker.Event) { note("renewed") },
			Lost:      func(context.Context, locker.Event) { note("lost") },
			Released:  func(context.Context, locker.Event) { note("released") },
			TakenBack: func(context.Context, locker.Event) { note("taken back") },
		}})
		l, err := c.Lock(t.Context(), "job")
		require.NoError(t, err)
		time.Sleep(ttl)
		require.NoError(t, l.Unlock(t.Context()))
		l, err = c.Lock(t.Context(), "job", locker.NoRenew())
		require.NoError(t, err)
		<-l.Done()
		time.Sleep(time.Second)
		require.NoError(t, c.Close())
		assert.Equal(t, []string{"held", "granted", "acquired", "renewed", "released", "granted",
			"acquired", "lost", "taken back"}, events)
		s := c.Stats()
		assert.EqualValues(t, 2, s.Acquired)
		assert.EqualValues(t, 1, s.Lost)
		assert.EqualValues(t, 1, s.Released)
		assert.Equal(t, s.Attempts, s.Refused+2)
		assert.InDelta(t, 1, s.WaitTime.Seconds(), 0.1)
	})
}

// A lease that is held has a heap entry, and no goroutine.
func TestTenThousandLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 10_000
		f := newFake()
		c := locker.New(f, &locker.Options{TTL: ttl})
		names := make([]string, n)
		for i := range names {
			names[i] = "lease " + strconv.Itoa(i)
			f.keys[names[i]] = &fakeKey{} // what the service itself keeps is not the engine's
		}
		f.requests = make([]locker.Request, 0, n)
		leases := make([]*locker.Lease, n)
		goroutines := runtime.NumGoroutine()
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i, name := range names {
			l, err := c.Lock(t.Context(), name)
			require.NoError(t, err)
			leases[i] = l
		}
		synctest.Wait()
		f.requests = nil
		runtime.GC()
		runtime.ReadMemStats(&after)
		each := (after.HeapAlloc - before.HeapAlloc) / n
		t.Logf("%d bytes of heap for each lease, the fake service's keys included", each)
		assert.Less(t, each, uint64(1024))

		time.Sleep(2 * ttl)
		synctest.Wait()
		// A few may be the runtime's own, such as the one that runs finalizers.
		assert.Less(t, runtime.NumGoroutine(), goroutines+10, "held leases have no goroutines")
		assert.InDelta(t, 6.2*n, c.Stats().Renewed, n)
		for _, l := range leases {
			require.NoError(t, l.Err())
		}
		require.NoError(t, c.Close())
	})
}

// Renewals that are due at about the same time are made at the same time, so
// that a backend can send them together.
func TestRenewalsAreMadeTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		var mu sync.Mutex
		moments := map[time.Time]int{}
		f.renew = func(int, context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			moments[time.Now()]++
			return nil
		}
		c := locker.New(f, &locker.Options{TTL: 30 * time.Second})
		for i := range 1000 {
			_, err := c.Lock(t.Context(), strconv.Itoa(i))
			require.NoError(t, err)
			time.Sleep(9 * time.Millisecond)
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		renewals := int(c.Stats().Renewed)
		assert.Greater(t, renewals, 3000)
		assert.Less(t, len(moments), renewals/5, "moments at which there were renewals")
		assert.Greater(t, len(moments), 100, "they are not made in one crowd")
		require.NoError(t, c.Close())
	})
}

// A waiter who gives up at the moment at which it becomes the head hands the
// place on: otherwise nobody of this client gets the name any more.
func TestCancelAtTheMomentOfTheTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c := locker.New(f, nil)
		for range 200 {
			l, err := c.Lock(t.Context(), "job")
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			got := make(chan struct{})
			go func() {
				defer close(got)
				if l, err := c.Lock(ctx, "job"); err == nil {
					_ = l.Unlock(context.Background())
				}
			}()
			synctest.Wait()
			cancel()
			require.NoError(t, l.Unlock(context.Background()))
			<-got
			l, err = c.TryLock(t.Context(), "job")
			require.NoError(t, err)
			require.NoError(t, l.Unlock(t.Context()))
		}
		require.NoError(t, c.Close())
	})
}

// What a deadline cuts short keeps an answer that it had already.
func TestDeadlineDoesNotHideARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		refused := errors.New("NOPERM")
		f.before = func(_ int, ctx context.Context, _ locker.Request) (locker.Grant, error, bool) {
			<-ctx.Done()
			return locker.Grant{}, refused, true
		}
		c := closing(t, locker.New(f, nil))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Lock(ctx, "job")
		require.ErrorIs(t, err, refused)
	})
}

func TestHangingServiceDoesNotPileUpGoroutines(t *testing.T) {
	require.Eventually(t, func() bool { return runtime.NumGoroutine() < 100 }, 30*time.Second, 10*time.Millisecond,
		"those of the test before")
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.renew = func(_ int, ctx context.Context) error { return hang(ctx) }
		var back atomic.Bool
		var takeBacks atomic.Int64
		f.release = func(_ int, ctx context.Context) error {
			if back.Load() {
				return nil
			}
			takeBacks.Add(1)
			defer takeBacks.Add(-1)
			return hang(ctx)
		}
		c := locker.New(f, &locker.Options{TTL: ttl})
		for i := range 2000 {
			_, err := c.Lock(t.Context(), strings.Repeat("x", i%500+1)+string(rune('a'+i/500)))
			require.NoError(t, err)
		}
		most := 0
		for c.Stats().Held > 0 {
			most = max(most, runtime.NumGoroutine())
			time.Sleep(100 * time.Millisecond)
		}
		assert.Less(t, most, 2010, "one for each lease")
		assert.EqualValues(t, 2000, c.Stats().Lost, "every one is told")
		for range 20 {
			time.Sleep(time.Second)
			synctest.Wait()
			assert.LessOrEqual(t, takeBacks.Load(), int64(512)) // NumGoroutine counts some that have ended
		}
		back.Store(true)
		time.Sleep(time.Minute)
		require.NoError(t, c.Close())
	})
}

// R21: a server that hangs with more leases than requests are under way at once
// costs the leases of another server nothing.
func TestAServerThatHangsCostsOthersNoRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		var hung atomic.Int32
		f.renew = func(_ int, ctx context.Context) error {
			if hung.Add(1) <= 2000 {
				return hang(ctx)
			}
			return nil
		}
		c := locker.New(f, &locker.Options{TTL: ttl})
		for i := range 2000 {
			_, err := c.Lock(t.Context(), fmt.Sprint("hanging/", i))
			require.NoError(t, err)
		}
		time.Sleep(time.Second) // so that those come first
		l, err := c.Lock(t.Context(), "well")
		require.NoError(t, err)
		until := l.Until()
		time.Sleep(ttl/3 + time.Second/100)
		assert.True(t, l.Until().After(until), "renewed in time")
		assert.Equal(t, int32(2001), hung.Load())
		_ = c.Close()
	})
}

// A Notify that hangs keeps neither its caller nor Close.
func TestHangingNotifyIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &notifying{fake: newFake(),
			subscribed: func() { time.Sleep(time.Second) }} // deaf to its context
		f.put("job", time.Hour)
		c := locker.New(f, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := c.Lock(ctx, "job")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, locker.ErrHeld)
		assert.Less(t, time.Since(start), 200*time.Millisecond)
		time.Sleep(2 * time.Second)
		assert.Zero(t, f.wake(), "the subscription that came late was ended")

		errs := make(chan error, 1)
		go func() { _, err := c.Lock(t.Context(), "job"); errs <- err }()
		time.Sleep(10 * time.Millisecond)
		go func() { _ = c.Close() }()
		start = time.Now()
		require.ErrorIs(t, <-errs, locker.ErrClosed)
		assert.Less(t, time.Since(start), 200*time.Millisecond)
		time.Sleep(10 * time.Second)
	})
}
