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

// passing is a fake whose holds can be passed on.
type passing struct {
	*fake
	others bool // other clients wait
	yields []bool
	passed []locker.Request
	before func(ctx context.Context) error // asked before a Pass is carried out
	after  func(ctx context.Context) error // and after
}

func (f *passing) Acquire(ctx context.Context, req locker.Request) (locker.Grant, error) {
	g, err := f.fake.Acquire(ctx, req)
	if g.Hold != nil {
		g.Hold = &passingHold{g.Hold.(*fakeHold), f}
	}
	return g, err
}

type passingHold struct {
	*fakeHold
	p *passing
}

func (h *passingHold) Pass(ctx context.Context, next locker.Request, yield bool) (locker.Grant, error) {
	h.f.mu.Lock()
	h.p.yields, h.p.passed = append(h.p.yields, yield), append(h.p.passed, next)
	h.f.mu.Unlock()
	unknown := locker.Grant{Hold: &passingHold{h.f.hold(next), h.p}}
	if h.p.before != nil {
		if err := h.p.before(ctx); err != nil {
			return unknown, err
		}
	}
	if err := h.Release(ctx); err != nil || yield && h.p.others {
		return locker.Grant{}, err
	}
	g, err := h.f.acquire(next)
	if err == nil && h.p.after != nil {
		err = h.p.after(ctx)
	}
	if err != nil {
		return unknown, err
	}
	g.Hold = &passingHold{g.Hold.(*fakeHold), h.p}
	return g, nil
}

func newPassing() *passing { return &passing{fake: newFake()} }

// inLine is a caller who waits behind a lease.
type inLine struct {
	lease  *locker.Lease
	err    error
	done   chan struct{}
	cancel context.CancelFunc
}

// ended reports whether its Lock has returned.
func (w *inLine) ended() bool {
	synctest.Wait()
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

func waitInLine(t *testing.T, c *locker.Client, opts ...locker.Option) *inLine {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w := inLine{done: make(chan struct{}), cancel: cancel}
	t.Cleanup(cancel)
	go func() {
		w.lease, w.err = c.Lock(ctx, "job", opts...)
		close(w.done)
	}()
	synctest.Wait()
	return &w
}

// Releasing and acquiring for the next in line are one request, and the next in
// line is a holder like any other: settings, owner and token of its own.
func TestTheNextInLineGetsTheLockWithTheRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newPassing()
		c, l := lease(t, f)
		defer closing(t, c)
		next := waitInLine(t, c, locker.TTL(time.Minute))
		require.NoError(t, l.Unlock(t.Context()))
		synctest.Wait()
		require.True(t, next.ended())
		require.NoError(t, next.err)
		assert.Equal(t, 1, f.asked(), "Acquire was called for the first only")
		require.Len(t, f.passed, 1)
		assert.Equal(t, f.passed[0].Owner, f.owner("job"))
		assert.NotEqual(t, f.requests[0].Owner, f.passed[0].Owner, "R10")
		assert.Equal(t, time.Minute, f.passed[0].TTL)
		first, _ := l.Token()
		second, _ := next.lease.Token()
		assert.Greater(t, second, first, "R13")
		require.ErrorIs(t, l.Err(), locker.ErrUnlocked)
		require.NoError(t, l.Unlock(t.Context()), "the answer is repeated")
		s := c.Stats()
		assert.Equal(t, []uint64{2, 2, 1, 1}, []uint64{s.Attempts, s.Acquired, s.Released, uint64(s.Held)})

		time.Sleep(25 * time.Second) // it is renewed
		require.NoError(t, next.lease.Err())
		require.NoError(t, next.lease.Unlock(t.Context()))
		assert.Empty(t, f.owner("job"))
	})
}

// A validity counts from before the request was sent, also if the answer takes its time (R1).
func TestALeaseThatWasPassedOnCountsFromTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newPassing()
		f.after = func(context.Context) error { time.Sleep(2 * ttl); return nil }
		c, l := lease(t, f)
		defer closing(t, c)
		next := waitInLine(t, c)
		_ = l.Unlock(context.Background())
		f.after = nil
		time.Sleep(time.Second)
		if next.ended() && next.err == nil {
			assert.True(t, next.lease.Until().After(time.Now()))
		}
		assert.EqualValues(t, 1, c.Stats().Failed, "the first answer came when it was over")
	})
}

func TestAVisitEndsAfterAWhile(t *testing.T) {
	for _, v := range []struct {
		others bool
		holds  time.Duration
		yields []bool
		asked  int
	}{
		{false, time.Millisecond, []bool{false, true, true, true, true, true}, 1}, // while nobody else waits it goes on
		{true, 300 * time.Microsecond, []bool{false, false, false, false, false, false}, 1},
		{true, time.Millisecond, []bool{false, true, false, true, false, true}, 4},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newPassing()
			f.others = v.others
			c, l := lease(t, f)
			defer closing(t, c)
			line := make(chan *locker.Lease)
			for range 6 {
				go func() {
					l, err := c.Lock(context.Background(), "job")
					assert.NoError(t, err)
					line <- l
				}()
			}
			for range 6 {
				time.Sleep(v.holds)
				require.NoError(t, l.Unlock(t.Context()))
				l = <-line
			}
			require.NoError(t, l.Unlock(t.Context()))
			assert.Equal(t, v.yields, f.yields)
			assert.Equal(t, v.asked, f.asked())
		})
	}
}

// Whoever leaves while the request is under way leaves at once, and what was granted for it goes back.
func TestWhoLeavesWhileItIsPassedTheLockLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newPassing()
		f.after = func(context.Context) error { time.Sleep(100 * time.Millisecond); return nil }
		c, l := lease(t, f)
		defer closing(t, c)
		next, behind := waitInLine(t, c), waitInLine(t, c)
		unlocked := make(chan error, 1)
		go func() { unlocked <- l.Unlock(context.Background()) }()
		synctest.Wait()
		next.cancel()
		synctest.Wait()
		require.True(t, next.ended(), "R8: it waits for the request of another")
		require.ErrorIs(t, next.err, context.Canceled)
		require.NoError(t, <-unlocked)
		f.after = nil
		time.Sleep(time.Second)
		require.True(t, behind.ended())
		require.NoError(t, behind.err)
		require.NoError(t, behind.lease.Unlock(t.Context()))
		assert.Empty(t, f.owner("job"))
		assert.EqualValues(t, 1, c.Stats().TakenBack)
	})
}

// The reply is lost, after the request was carried out or before: nothing of either is left.
func TestAPassWhoseOutcomeIsUnknownLeavesNothing(t *testing.T) {
	for _, carriedOut := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newPassing()
			lost := func(context.Context) error { return errDown }
			if carriedOut {
				f.after = lost
			} else {
				f.before = lost
			}
			c, l := lease(t, f)
			defer closing(t, c)
			next := waitInLine(t, c)
			require.ErrorIs(t, l.Unlock(t.Context()), locker.ErrUnavailable)
			f.before, f.after = nil, nil
			time.Sleep(time.Second)
			require.True(t, next.ended())
			require.NoError(t, next.err)
			assert.NotEqual(t, f.passed[0].Owner, f.owner("job"),
				"it asks for itself, with an owner of its own")
			require.NoError(t, next.lease.Unlock(t.Context()))
			assert.Empty(t, f.owner("job"))
		})
	}
}

func TestALostHoldIsNotPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newPassing()
		c, l := lease(t, f)
		defer closing(t, c)
		f.put("job", time.Second)
		next := waitInLine(t, c)
		require.ErrorIs(t, l.Unlock(t.Context()), locker.ErrLost)
		synctest.Wait()
		assert.False(t, next.ended())
		time.Sleep(2 * time.Second)
		require.True(t, next.ended())
		require.NoError(t, next.err)
		require.NoError(t, next.lease.Unlock(t.Context()))
	})
	synctest.Test(t, func(t *testing.T) {
		f := newPassing()
		c, l := lease(t, f, locker.NoRenew())
		defer closing(t, c)
		next := waitInLine(t, c)
		time.Sleep(2 * ttl)
		require.ErrorIs(t, l.Unlock(t.Context()), locker.ErrLost)
		assert.Empty(t, f.passed, "a lease that is over is not passed on")
		synctest.Wait()
		require.True(t, next.ended())
		require.NoError(t, next.lease.Unlock(t.Context()))
	})
}

func TestAHoldUnderMinHoldIsNotPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newPassing()
		c, l := lease(t, minHolding{f}, locker.MinHold(ttl/2))
		defer closing(t, c)
		next := waitInLine(t, c)
		require.NoError(t, l.Unlock(t.Context()))
		synctest.Wait()
		assert.Empty(t, f.passed)
		assert.False(t, next.ended())
		time.Sleep(2 * ttl)
		require.True(t, next.ended())
		require.NoError(t, next.lease.Unlock(t.Context()))
	})
}

type minHolding struct{ *passing }

func (f minHolding) Guarantees() locker.Guarantees {
	g := f.passing.Guarantees()
	g.MaxMinHold = time.Hour
	return g
}

func TestCloseWhileALockIsPassedOn(t *testing.T) {
	for _, late := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newPassing()
			slow := func(context.Context) error { time.Sleep(time.Second); return nil }
			if late {
				f.before = slow
			} else {
				f.after = slow
			}
			c, l := lease(t, f)
			next, behind := waitInLine(t, c), waitInLine(t, c)
			unlocked := make(chan error, 1)
			go func() { unlocked <- l.Unlock(context.Background()) }()
			synctest.Wait()
			require.NoError(t, c.Close())
			require.NoError(t, <-unlocked)
			require.True(t, next.ended() && behind.ended())
			require.ErrorIs(t, next.err, locker.ErrClosed)
			require.ErrorIs(t, behind.err, locker.ErrClosed)
			assert.Empty(t, f.owner("job"), "something is left behind")
		})
	}
}
