package locker

import (
	"context"
	"testing"
	"time"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/clock"
	"github.com/golockers/locker/internal/clocktest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// granting is a backend that grants everything.
type granting struct{}

func (granting) Guarantees() Guarantees {
	return Guarantees{Backend: "granting", MaxMinHold: time.Hour}
}
func (granting) Close() error { return nil }
func (granting) Acquire(_ context.Context, req driver.Request) (driver.Grant, error) {
	return driver.Grant{Hold: granting{}, Validity: driver.Validity{Since: time.Now(), TTL: req.TTL}}, nil
}
func (granting) Renew(context.Context) (driver.Validity, error) {
	return driver.Validity{}, ErrUnavailable
}
func (granting) Release(context.Context, time.Duration) error { return nil }
func (granting) Undo(context.Context) error                   { return nil }

// A lease held while the machine slept is over when it wakes, although no
// timer has run.
func TestLeaseIsOverAfterTheMachineSlept(t *testing.T) {
	c := must(New(granting{}, &Options{TTL: time.Hour}))
	defer func() { require.NoError(t, c.Close()) }()
	sleep := func(l *Lease) {
		l.mu.Lock()
		l.grant.Validity.Since = clocktest.WallBack(t, l.grant.Validity.Since, 2*time.Hour)
		l.mu.Unlock()
	}

	asked, err := c.Lock(t.Context(), "asked")
	require.NoError(t, err)
	sleep(asked)
	assert.ErrorIs(t, asked.Err(), ErrLost, "whoever asks is told at once")

	unlocked, err := c.Lock(t.Context(), "unlocked")
	require.NoError(t, err)
	sleep(unlocked)
	require.ErrorIs(t, unlocked.Unlock(t.Context()), ErrLost)

	told, err := c.Lock(t.Context(), "told")
	require.NoError(t, err)
	sleep(told)
	c.schedule.mu.Lock()
	c.schedule.clock = clocktest.WallBack(t, c.schedule.clock, 2*time.Hour)
	c.schedule.mu.Unlock()
	select {
	case <-told.Done():
	case <-time.After(20 * time.Second):
		t.Fatal("not told by the next look at the wall clock")
	}
	assert.ErrorIs(t, told.Err(), ErrLost)
}

// Who asks is who tells Trace, and may go on after its panic.
func TestAPanicWhereALossIsToldLeavesTheLine(t *testing.T) {
	c := must(New(granting{}, &Options{Trace: &Trace{Lost: func(context.Context, Event) { panic("Lost") }}}))
	l, err := c.Lock(t.Context(), "job")
	require.NoError(t, err)
	l.mu.Lock()
	l.grant.Validity.Since = clocktest.WallBack(t, l.grant.Validity.Since, 2*time.Hour)
	l.mu.Unlock()
	assert.Panics(t, func() { _ = l.Err() })
	assert.Equal(t, 1, c.Stats().Pending)
	_, err = c.TryLock(t.Context(), "job")
	require.NoError(t, err)
	require.NoError(t, c.Close())
}

// The next step is one from where the clock was set to: a machine that sleeps afterwards is told from one
// that does not.
func TestAClockThatWasSetBackIsLookedAtFromThere(t *testing.T) {
	var q schedule
	now := time.Now()
	q.clock = clocktest.WallBack(t, now, -2*time.Hour)
	q.run()
	assert.Less(t, clock.Stepped(q.clock, now).Abs(), time.Hour)
}

// MinHold is a time for which nobody else runs: a clock that is set must not make it
// shorter.
func TestMinHoldDoesNotEndWithAStepOfTheWallClock(t *testing.T) {
	var s crowd
	c := must(New(&s, nil))
	l, err := c.Lock(t.Context(), "job", MinHold(time.Hour))
	require.NoError(t, err)
	l.start = clocktest.WallBack(t, l.start, 2*time.Hour)
	require.NoError(t, l.Unlock(t.Context()))
	assert.InDelta(t, time.Hour+driver.Drift(time.Hour), s.kept.Load(), float64(time.Minute/4))
	require.NoError(t, c.Close())
}

// must is v of a function that cannot fail here.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
