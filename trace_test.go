package locker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"runtime"
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
	"github.com/golockers/locker/memory"
)

type caller struct{}

// Waits tells of those who wait in a line, and of nobody who has a lock.
func TestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locker.New(newScripted(), &locker.Options{Prefix: "p/"})
		_, err := c.Lock(t.Context(), "a")
		require.NoError(t, err)
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

// Whoever passes the end of a lease on to others must see the new one when a renewal is told.
func TestRenewedIsToldWhenTheLeaseHasItsNewEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lease atomic.Pointer[locker.Lease]
		left := make(chan time.Duration, 10)
		c := locker.New(newScripted(), &locker.Options{TTL: 30 * time.Second, Trace: &locker.Trace{
			Renewed: func(context.Context, locker.Event) { left <- time.Until(lease.Load().Until()) },
		}})
		l, err := c.Lock(t.Context(), "a")
		require.NoError(t, err)
		lease.Store(l)
		assert.Greater(t, <-left, 25*time.Second)
		require.NoError(t, c.Close())
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
			acquire: down; a locks patience 10ms: unavailable
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
		s := newScripted()
		c := closing(t, locker.New(s.backend(), &locker.Options{TTL: ttl, Trace: r.trace()}))
		s.set("1s")
		l, err := c.Lock(t.Context(), "job", locker.NoRenew())
		require.NoError(t, err)
		assert.Equal(t, time.Second, r.last["done"].Took)
		assert.Equal(t, time.Second, c.Stats().WaitTime)
		time.Sleep(2 * time.Second)
		require.NoError(t, l.Unlock(t.Context()))
		assert.Equal(t, time.Second, r.last["released"].Took)
		assert.Equal(t, 2*time.Second, r.last["released"].Held)
		l, err = c.Lock(t.Context(), "job", locker.NoRenew())
		require.NoError(t, err)
		<-l.Done()
		synctest.Wait()
		assert.Equal(t, 7908*time.Millisecond, r.last["lost"].Held)
		s.set("down")
		_, err = c.Lock(t.Context(), "job")
		require.ErrorIs(t, err, locker.ErrUnavailable)
		assert.Equal(t, ttl, r.last["waiting"].Took+r.last["waiting"].Left)
		s.set("ok")
	})
}

// A function of Trace may end its goroutine, as FailNow does, or close the client: no call hangs, nothing is left
// behind, and Close returns soon, and says so.
func TestATraceThatDoesNotReturn(t *testing.T) {
	for where, history := range map[string]string{
		"Attempt": "", "LockDone": "",
		"Waiting": "queue", // of the service: in a goroutine of the backend
		"Renewed": "", "Lost": "watches", "Released": "passes", "TakenBack": "lasts",
	} {
		for what, do := range map[string]func(c *locker.Client){
			"ends": func(*locker.Client) { runtime.Goexit() },
			"closes": func(c *locker.Client) {
				began := time.Now()
				assert.NoError(t, c.Close())
				assert.LessOrEqual(t, time.Since(began), time.Second/2)
			},
		} {
			t.Run(where+" "+what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { doesNotReturn(t, where, history, do) })
			})
		}
	}
}

func doesNotReturn(t *testing.T, where, traits string, do func(*locker.Client)) {
	s, trace := newScripted(strings.Fields(traits)...), locker.Trace{}
	var c *locker.Client
	var unarmed atomic.Bool
	reflect.ValueOf(&trace).Elem().FieldByName(where).Set(reflect.ValueOf(func(context.Context, locker.Event) {
		if !unarmed.Swap(true) {
			do(c)
		}
	}))
	c = locker.New(s.backend(), &locker.Options{TTL: ttl, Trace: &trace})
	call := func(f func()) { // it may end its goroutine
		var done sync.WaitGroup
		done.Go(f)
		done.Wait()
	}
	if where == "Waiting" {
		g, err := s.Backend.Acquire(t.Context(), driver.Request{Name: "job", TTL: time.Hour, Lost: func() {}})
		require.NoError(t, err)
		time.AfterFunc(time.Second, func() { _ = g.Hold.Release(t.Context()) })
	}
	call(func() {
		l, err := c.Lock(t.Context(), "job")
		if err != nil {
			return
		}
		go func() { _, _ = c.Lock(t.Context(), "job") }() // the next in line
		synctest.Wait()
		switch where {
		case "Renewed":
			_ = l.Renew(t.Context())
		case "Lost", "TakenBack":
			s.Delete("job")
			_ = l.Renew(t.Context())
		}
		_ = l.Unlock(t.Context())
	})
	time.Sleep(time.Minute) // renewals go on
	assert.True(t, unarmed.Load())
	_, err := c.TryLock(t.Context(), "other")
	assert.True(t, err == nil || errors.Is(err, locker.ErrClosed), "%v", err)
	require.NoError(t, c.Close())
	synctest.Wait()
	assert.False(t, s.held("job"))
	assert.Zero(t, c.Stats().Held+c.Stats().Waiting+c.Stats().Pending)
}

// records are what a Logger was told.
type records struct {
	mu   sync.Mutex
	text strings.Builder
}

func (r *records) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

func (r *records) take() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.text.Reset()
	return r.text.String()
}

// 500 leases wrote 20,000 records in an outage of 30 s.
func TestRecordsOfAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const leases = 100
		var said records
		locks := memory.NewExpiring()
		c := closing(t, locker.New(locks, &locker.Options{Logger: slog.New(slog.NewTextHandler(&said, nil))}))
		for i := range leases {
			_, err := c.Lock(t.Context(), fmt.Sprint(i))
			require.NoError(t, err)
		}
		outage := func(d time.Duration, want map[string]int) {
			_ = said.take()
			locks.Fail(fmt.Errorf("connection refused: %w", locker.ErrUnavailable))
			time.Sleep(d)
			locks.Fail(nil)
			time.Sleep(10 * time.Second)
			all := said.take()
			for text, n := range want {
				assert.Equal(t, n, strings.Count(all, text), text)
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
			c = locker.New(s, &locker.Options{TTL: ttl, Trace: &locker.Trace{Attempt: func(ctx context.Context, _ locker.Event) {
				ctx, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				_, err := c.TryLock(ctx, "job")
				errs = append(errs, err)
			}}})
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
