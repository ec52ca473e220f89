package locker_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/memory"
)

type caller struct{}

// Waits tells of the first in line and of those behind it, and of nobody who has a lock.
func TestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locker.New(memory.New(), &locker.Options{Prefix: "p/"})
		defer c.Close()
		held, err := c.Lock(t.Context(), "a")
		require.NoError(t, err)
		assert.Empty(t, c.Waits())
		for range 2 {
			go func() {
				if l, err := c.Lock(t.Context(), "a"); err == nil {
					time.Sleep(time.Second)
					_ = l.Unlock(t.Context())
				}
			}()
			time.Sleep(time.Minute)
		}
		assert.Equal(t, []locker.Wait{{Name: "a", Callers: 2, Longest: 2 * time.Minute}}, c.Waits())
		require.NoError(t, held.Unlock(t.Context()))
		time.Sleep(time.Millisecond)
		assert.Equal(t, []locker.Wait{{Name: "a", Callers: 1, Longest: time.Minute + time.Millisecond}},
			c.Waits())
		time.Sleep(time.Minute)
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
			r.events = append(r.events, fmt.Sprint(ctx.Value(caller{}), " ", kind, " ", e.Op, " ", e.Name,
				" ", e.Outcome()))
			r.last[kind] = e
		}
	}
	return &locker.Trace{
		LockDone: note("done"), Waiting: note("waiting"), Renewed: note("renewed"),
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

// Each event carries the values of its caller's context, such as the span that it
// is in, and every call has an end, whether or not it came to the service.
func TestTraceIsCompleteAndHasTheCallersContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r told
		locks := memory.NewExpiring()
		c := locker.New(locks, &locker.Options{TTL: ttl, Trace: r.trace()})
		as := func(name string) context.Context { return context.WithValue(t.Context(), caller{}, name) }

		l, err := c.Lock(as("a"), "job")
		require.NoError(t, err)
		time.Sleep(4 * time.Second)
		_, err = c.TryLock(as("b"), "job")
		require.ErrorIs(t, err, locker.ErrHeld)
		assert.Equal(t, []string{"a done lock job ok", "a renewed renew job ok", "b done trylock job held"},
			r.take())

		// One gives up in line behind a head of this client that waits in the queue.
		other := closing(t, locker.New(locks, nil))
		theirs, err := other.Lock(t.Context(), "theirs")
		require.NoError(t, err)
		for i, who := range []string{"head", "behind"} {
			ctx, cancel := context.WithTimeout(as(who), time.Duration(2-i)*time.Second)
			defer cancel()
			go func() { _, _ = c.Lock(ctx, "theirs") }()
			synctest.Wait()
		}
		time.Sleep(2500 * time.Millisecond)
		assert.Equal(t, []string{"head waiting lock theirs held", "behind done lock theirs held",
			"a renewed renew job ok", "head done lock theirs held"}, r.take())
		assert.Equal(t, 2*time.Second, r.last["done"].Took)
		require.NoError(t, theirs.Unlock(t.Context()))

		held := time.Now()
		_, err = c.Lock(as("bad"), "")
		require.ErrorIs(t, err, locker.ErrInvalid)
		over, cancel := context.WithCancel(as("over"))
		cancel()
		_, err = c.Lock(over, "x")
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, l.Unlock(as("unlock")))
		assert.Equal(t, []string{"bad done lock  invalid", "over done lock x canceled",
			"unlock released unlock job ok"}, r.take())
		assert.Equal(t, 6500*time.Millisecond, r.last["released"].Held)
		assert.Zero(t, time.Since(held))

		l, err = c.Lock(as("c"), "job")
		require.NoError(t, err)
		locks.Fail(errDown)
		_, err = c.Lock(as("d"), "other", locker.Patience(10*time.Millisecond))
		require.ErrorIs(t, err, locker.ErrUnavailable)
		assert.Equal(t, []string{"c done lock job ok", "d waiting lock other unavailable",
			"d done lock other unavailable"}, r.take())
		<-l.Done()
		locks.Fail(nil)
		events := r.take()
		assert.Contains(t, events, "c renewed renew job unavailable")
		assert.Equal(t, "c lost lease job lost", events[len(events)-1])
		assert.InDelta(t, ttl, r.last["lost"].Held, float64(time.Second))

		st := c.Stats()
		assert.EqualValues(t, 2, st.Acquired)
		assert.EqualValues(t, 3, st.Contended)
		assert.EqualValues(t, 1, st.Unavailable)
		assert.EqualValues(t, 1, st.GaveUp)
		assert.EqualValues(t, 1, st.Rejected)
		assert.Greater(t, st.WaitTime, 3*time.Second)
		assert.Zero(t, st.Waiting)
		require.NoError(t, c.Close())
	})
}
