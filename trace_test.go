package locker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/internal/memlock"
)

type caller struct{}

// Waits tells of those who wait in a line, and of nobody who has a lock.
func TestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locktest.Must(locker.New(newScripted(), &locker.Options{Prefix: "p/"}))
		locktest.Lock(t, c, "a")
		assert.Empty(t, c.Waits())
		for range 2 {
			go func() { _, _ = c.Lock(t.Context(), "a") }()
			time.Sleep(time.Minute)
		}
		assert.Equal(t, []locker.Wait{{Name: "a", Callers: 2, Longest: 2 * time.Minute}}, c.Waits())
		require.NoError(t, c.Close())
		synctest.Wait()
		assert.Empty(t, c.Waits())
	})
}

// told collects what a Trace is told, with the caller's value.
type told struct {
	mu     sync.Mutex
	events []string
	last   map[string]locker.Event
}

func (r *told) trace() *locker.Trace {
	r.last = map[string]locker.Event{}
	note := func(kind string) func(context.Context, locker.Event) {
		return func(ctx context.Context, e locker.Event) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.events = append(r.events, fmt.Sprint(ctx.Value(caller{}), " ", kind, " ", e.Outcome()))
			r.last[kind] = e
			if kind != "done" && ctx.Done() != nil {
				r.events = append(r.events, "whose context ends")
			}
		}
	}
	return &locker.Trace{
		LockDone: note("done"), Waiting: note("waiting"), Attempt: note("attempt"), Renewed: note("renewed"),
		Lost: note("lost"), Released: note("released"), TakenBack: note("taken back"),
	}
}

func (r *told) take() []string {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.events
	r.events = nil
	return e
}

// Each event carries the values of its caller's context, such as the span that it is in, and every call has an
// end, whether or not it came to the service.
func TestWhatTraceIsTold(t *testing.T) {
	play(t, map[string]string{
		"of a lease": `
			a locks; 4s; b tries: held; told: a attempt ok, a done ok, a renewed ok, b done held; a unlocks
			told: a released ok
			count Acquired 1 Contended 1 Attempts 1 Renewed 1 Released 1`,
		"of a wait": `
			service queue; others hold job 1h; a locks until 2s: waits; b locks until 1s: waits
			a: held deadline
			told: a waiting held, b done held, a attempt held, a done held; count Contended 2 Refused 1`,
		"once, however often the queue says so": `
			service queue; acquire: queued queued hangs; a locks until 2s: held deadline
			told: a waiting held, a attempt held, a done held`,
		"and again of the next attempt": `
			service queue; acquire: queued down then queued hangs; a locks until 2s: held deadline
			told: a waiting held, a attempt unavailable, a waiting unavailable, a waiting held, a attempt held, a done held`,
		"and not when it is over": `
			service queue; acquire: later; a locks; 2s; told: a attempt ok, a done ok; b tries: held; a unlocks`,
		"of a wait that follows an outage": `
			service notifies; others hold job 1h; acquire: down then ok; a locks until 2s: held deadline
			told: a attempt unavailable, a waiting unavailable, a attempt held, a waiting held, a attempt held, a done held`,
		"of one that is in vain": `
			a locks until 0s: deadline; b tries minhold -1s: invalid; told: a done canceled, b done invalid
			count GaveUp 1 Rejected 1 Attempts 0`,
		"of a client that is closed": `
			others hold job 1h; a locks: waits; client closes; a: closed; b tries: closed
			told: a attempt held, a waiting held, a done closed, b done closed`,
		"of an outage": `
			service outage=10ms; acquire: down; a locks: unavailable
			told: a attempt unavailable, a waiting unavailable, a attempt unavailable, a done unavailable
			count Unavailable 1 Failed 2`,
		"of a loss": `
			renew: down then gone; a locks; a ends: lost in 2s-6s; 9s
			told: a attempt ok, a done ok, a renewed unavailable, a renewed lost, a lost lost, a taken back ok
			count RenewFailed 2 Lost 1 TakenBack 1`,
		"and so does the service, whether or not the context can end": `
			a locks; a unlocks; b locks endless; b unlocks endless
			count acquire-of-a 1 release-of-a 1 acquire-of-b 1 release-of-b 1`,
		"of a release that fails": `
			release: down then ok; a locks; a unlocks: unavailable; 1s
			told: a attempt ok, a done ok, a released unavailable, a taken back ok
			count Released 0 TakenBack 1`,
	})
}

func TestTimesOfEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r told
		var l *locker.Lease
		var left time.Duration
		s, trace := newScripted(), r.trace()
		trace.Renewed = func(context.Context, locker.Event) { left = time.Until(l.Until()) }
		c := locktest.Client(t, s.backend(), &locker.Options{TTL: ttl, Trace: trace})
		s.set("1s")
		l = locktest.Lock(t, c, "job", locker.NoRenew())
		assert.Equal(t, time.Second, r.last["done"].Took)
		assert.Equal(t, time.Second, c.Stats().WaitTime)
		require.NoError(t, l.Renew(t.Context()))
		assert.Equal(t, 7908*time.Millisecond, left, "the lease has its new end when a renewal is told")
		time.Sleep(2 * time.Second)
		require.NoError(t, l.Unlock(t.Context()))
		assert.Equal(t, time.Second, r.last["released"].Took)
		assert.Equal(t, 3*time.Second, r.last["released"].Held)
		l = locktest.Lock(t, c, "job", locker.NoRenew())
		<-l.Done()
		synctest.Wait()
		assert.Equal(t, 7908*time.Millisecond, r.last["lost"].Held)
		s.set("down")
		_, err := c.Lock(t.Context(), "job")
		require.ErrorIs(t, err, locker.ErrUnavailable)
		assert.Equal(t, ttl, r.last["waiting"].Took+r.last["waiting"].Left)
		_, err = c.Lock(t.Context(), "job", locker.MaxWait(time.Second))
		require.ErrorIs(t, err, locker.ErrUnavailable)
		assert.Equal(t, time.Second, r.last["waiting"].Took+r.last["waiting"].Left)
		s.set("ok")
	})
}

// A function of Trace may end its goroutine, as FailNow does, panic where the caller recovers, or close the client:
// no call hangs, nothing is left behind, and Close returns soon, and says so. The backend may panic, too.
func TestATraceThatDoesNotReturn(t *testing.T) {
	ends := func(*locker.Client) { runtime.Goexit() }
	closes := func(c *locker.Client) {
		began := time.Now()
		assert.NoError(t, c.Close())
		assert.LessOrEqual(t, time.Since(began), time.Second/2)
	}
	play := func(where, what, traits string, do func(*locker.Client)) {
		t.Run(where+" "+what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { doesNotReturn(t, where, what, traits, do) })
		})
	}
	for where, traits := range map[string]string{
		"Attempt": "", "LockDone": "",
		"Waiting": "queue", // of the service: in a goroutine of the backend
		"Renewed": "", "Lost": "watches", "Released": "passes", "TakenBack": "lasts",
	} {
		play(where, "ends", traits, ends)
		play(where, "closes", traits, closes)
	}
	for _, where := range []string{"Attempt", "Waiting", "LockDone", "Released", "acquire", "release"} {
		play(where, "panics", "prompt", func(*locker.Client) { panic(where) })
	}
}

func doesNotReturn(t *testing.T, where, what, traits string, do func(*locker.Client)) {
	s, trace := newScripted(strings.Fields(traits)...), locker.Trace{}
	var c *locker.Client
	var l *locker.Lease
	var did atomic.Bool
	if slices.Contains(kinds, where) {
		s.script(where, "panics then ok")
	} else {
		reflect.ValueOf(&trace).Elem().FieldByName(where).Set(reflect.ValueOf(func(context.Context, locker.Event) {
			if !did.Swap(true) {
				do(c)
			}
		}))
	}
	c = locktest.Must(locker.New(s.backend(), &locker.Options{TTL: ttl, Trace: &trace}))
	if where == "Waiting" {
		g, err := s.Backend.Acquire(t.Context(), driver.Request{Name: "job", TTL: time.Hour, Lost: func() {}})
		require.NoError(t, err)
		time.AfterFunc(time.Second, func() { _ = g.Hold.Release(t.Context(), 0) })
	}
	call := func() {
		defer func() {
			if recover() != nil {
				did.Store(true)
			}
		}()
		var opts []locker.Option
		if what == "panics" && (where == "Attempt" || where == "LockDone") {
			opts = append(opts, locker.MinHold(time.Hour)) // it must not keep what nobody was given
		}
		var err error
		if l, err = c.Lock(t.Context(), "job", opts...); err != nil {
			return
		}
		if what != "panics" {
			go func() { _, _ = c.Lock(t.Context(), "job") }() // the next in line
			synctest.Wait()
		}
		switch where {
		case "Renewed":
			_ = l.Renew(t.Context())
		case "Lost", "TakenBack":
			s.Lose("job")
			_ = l.Renew(t.Context())
		}
		_ = l.Unlock(t.Context())
	}
	var done sync.WaitGroup // it may end its goroutine
	done.Go(call)
	done.Wait()
	if what == "panics" {
		if where == "Released" {
			require.NoError(t, l.Unlock(t.Context()), "the service has confirmed the release")
			assert.Zero(t, c.Stats().TakenBack)
		}
		ctx, cancel := context.WithTimeout(t.Context(), ttl/2)
		defer cancel()
		l, err := c.Lock(ctx, "job")
		require.NoError(t, err)
		require.NoError(t, l.Unlock(ctx))
	}
	time.Sleep(time.Minute) // renewals go on
	assert.True(t, did.Load())
	_, err := c.TryLock(t.Context(), "other")
	assert.True(t, err == nil || errors.Is(err, locker.ErrClosed), "%v", err)
	require.NoError(t, c.Close())
	synctest.Wait()
	assert.False(t, s.held("job"))
	assert.Zero(t, c.Stats().Held+c.Stats().Waiting+c.Stats().Pending)
}

// 500 leases wrote 20,000 records in an outage of 30 s.
func TestRecordsOfAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const leases = 100
		var said bytes.Buffer
		locks := memlock.New(true)
		c := locktest.Client(t, locks, &locker.Options{Logger: slog.New(slog.NewTextHandler(&said, nil))})
		for i := range leases {
			locktest.Lock(t, c, fmt.Sprint(i))
		}
		outage := func(d time.Duration, want map[string]int) {
			said.Reset()
			locks.Fail(fmt.Errorf("connection refused: %w", locker.ErrUnavailable))
			time.Sleep(d)
			locks.Fail(nil)
			time.Sleep(10 * time.Second)
			synctest.Wait()
			for text, n := range want {
				assert.Equal(t, n, strings.Count(said.String(), text), text)
			}
		}
		want := map[string]int{"level=": 2 * leases, "renewal failed": leases, "connection refused": 1, "renewed again": leases}
		outage(15*time.Second, want)
		outage(15*time.Second, want)
		outage(time.Minute, map[string]int{"level=": 2 * leases, "renewal failed": leases, "connection refused": 1,
			"lease lost": leases})
	})
}

// A TryLock of the same name in Attempt waits for the answer of the call before it, which is there already.
func TestATryLockInAttempt(t *testing.T) {
	for answer, want := range map[string]error{"held": locker.ErrHeld, "down": locker.ErrUnavailable, "ok": locker.ErrHeld} {
		synctest.Test(t, func(t *testing.T) {
			s, errs := newScripted("prompt"), []error(nil)
			var c *locker.Client
			c = locktest.Must(locker.New(s, &locker.Options{TTL: ttl, Trace: &locker.Trace{Attempt: func(ctx context.Context, _ locker.Event) {
				ctx, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				_, err := c.TryLock(ctx, "job")
				errs = append(errs, err)
			}}}))
			if answer == "held" {
				_, err := s.Backend.Acquire(t.Context(), driver.Request{Name: "job", TTL: time.Hour, Lost: func() {}})
				require.NoError(t, err)
			} else {
				s.script("acquire", answer)
			}
			_, _ = c.TryLock(t.Context(), "job")
			require.Len(t, errs, 1, answer)
			require.ErrorIs(t, errs[0], want, answer)
			require.NotErrorIs(t, errs[0], context.DeadlineExceeded, answer)
			require.NoError(t, c.Close())
		})
	}
}
