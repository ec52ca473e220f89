package cas_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/conformance"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/locktest"
)

// minHolds are a lock that is held alone and one of a sharer, each for an hour, with a MinHold.
func minHolds() []driver.Request {
	req := driver.Request{Name: "n", Owner: "me", Label: "me", TTL: time.Hour, MinHold: time.Minute}
	shared := req
	shared.Shared = true
	return []driver.Request{req, shared}
}

// What is kept keeps others out for exactly that long, whatever is late; then it is gone, also for
// those who have just begun to look.
func TestAKeptLockEndsInTime(t *testing.T) {
	const keep = 10 * time.Second
	for _, req := range minHolds() {
		synctest.Test(t, func(t *testing.T) {
			s := newService(true)
			b, _ := connect(t, s)
			g := locktest.Acquire(t, b, req)
			before, err := b.(driver.Operator).Inspect(t.Context(), "n")
			require.NoError(t, err)
			time.Sleep(time.Minute / 2)
			require.NoError(t, g.Hold.Release(t.Context(), keep))
			began := time.Now()
			time.Sleep(keep / 2)
			for _, late := range []time.Duration{keep, 1} {
				require.NoError(t, g.Hold.Release(t.Context(), late))
			}
			_, err = g.Hold.Renew(t.Context())
			require.ErrorIs(t, err, driver.ErrLost)
			require.ErrorIs(t, g.Hold.(driver.TokenRaiser).RaiseToken(t.Context(), 100), driver.ErrLost)
			_, err = locktest.Ask(t.Context(), b, req)
			require.ErrorIs(t, err, driver.ErrHeld, "a copy of the request")
			after, err := b.(driver.Operator).Inspect(t.Context(), "n")
			require.NoError(t, err)
			assert.LessOrEqual(t, after.Remaining, keep/2)
			after.Remaining = before.Remaining
			assert.Equal(t, before, after)

			time.Sleep(time.Until(began.Add(keep - 10*time.Millisecond)))
			fresh, _ := connect(t, s)
			refused, err := fresh.Acquire(t.Context(), driver.Request{Name: "n", Owner: "other", TTL: ttl})
			require.NoError(t, err)
			require.NotNil(t, refused.Refused)
			assert.LessOrEqual(t, refused.Refused.Remaining, 10*time.Millisecond)
			time.Sleep(20 * time.Millisecond)
			fresh, _ = connect(t, s)
			mustHave(t, fresh, driver.Request{})
			require.ErrorIs(t, g.Hold.Release(t.Context(), keep), driver.ErrLost)
		})
	}
}

// What is kept can be removed, and then it is free.
func TestAKeptLockIsRemoved(t *testing.T) {
	for what, remove := range map[string]func(b driver.Backend, h driver.Hold, st driver.State) error{
		"Release": func(_ driver.Backend, h driver.Hold, _ driver.State) error { return h.Release(t.Context(), 0) },
		"Undo":    func(_ driver.Backend, h driver.Hold, _ driver.State) error { return h.Undo(t.Context()) },
		"Break": func(b driver.Backend, _ driver.Hold, st driver.State) error {
			return b.(driver.Operator).Break(t.Context(), st)
		},
	} {
		for _, req := range minHolds() {
			b, _ := connect(t, newService(true))
			g := locktest.Acquire(t, b, req)
			st, err := b.(driver.Operator).Inspect(t.Context(), "n")
			require.NoError(t, err)
			require.NoError(t, g.Hold.Release(t.Context(), time.Minute))
			require.NoError(t, remove(b, g.Hold, st), what)
			mustHave(t, b, driver.Request{})
			require.ErrorIs(t, g.Hold.Release(t.Context(), time.Minute), driver.ErrLost, "one that is late")
		}
	}
}

// A sharer that is kept keeps writers out, and no sharers; it goes while others stay.
func TestASharerIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(true)
		b, _ := connect(t, s)
		other, _ := connect(t, s)
		g := locktest.Acquire(t, b, minHolds()[1])
		beside := mustHave(t, other, driver.Request{Shared: true})
		require.NoError(t, g.Hold.Release(t.Context(), ttl))
		mustHave(t, other, driver.Request{Shared: true})
		time.Sleep(ttl / 2)
		_, err := beside.Renew(t.Context())
		require.NoError(t, err)
		time.Sleep(ttl/2 + time.Millisecond)
		st, err := other.(driver.Operator).Inspect(t.Context(), "n")
		require.NoError(t, err)
		assert.Equal(t, 1, st.Sharers)
		require.NoError(t, beside.Release(t.Context(), 0))
		mustHave(t, b, driver.Request{})
	})
}

// A release that keeps, and has no answer, is a request for that time: while the store is out of reach,
// it is settled when that has passed.
func TestUndoWaitsForAReleaseThatKeeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, cut := connect(t, newService(true))
		req := minHolds()[0]
		req.TTL = ttl
		g := locktest.Acquire(t, b, req)
		time.Sleep(time.Minute / 2)
		cut.Requests(conformance.Drop)
		require.Error(t, g.Hold.Release(t.Context(), time.Minute/2))
		answered := time.Now()
		time.Sleep(time.Minute * 3 / 4)
		require.Error(t, g.Hold.Undo(t.Context()))
		for g.Hold.Undo(t.Context()) != nil {
		}
		assert.Less(t, time.Since(answered), time.Minute*6/5)
	})
}
