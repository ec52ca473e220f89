package zookeeper

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/clocktest"
)

// A lease is over, in each of the two clocks, when the session may be: also if
// the machine has slept, or its clock was set, since the session was proven (R4).
func TestLeaseEndsInBothClocksWithItsSession(t *testing.T) {
	const timeout = 40 * time.Second
	for what, one := range map[string]struct {
		proven, acked time.Duration // ago, by the monotonic clock
		step          time.Duration // of the wall clock since then
		asked         time.Duration // ago, on both clocks
	}{
		"no step":                {proven: 20 * time.Second, acked: time.Second},
		"asked before the proof": {proven: 2 * time.Second, acked: time.Second, asked: 5 * time.Second},
		"slept":                  {proven: 20 * time.Second, acked: time.Second, step: 6 * time.Second},
		"slept, asked a while ago": {proven: 15 * time.Second, acked: time.Second, step: 6 * time.Second,
			asked: 500 * time.Millisecond},
		"set back":             {proven: 20 * time.Second, acked: time.Second, step: -10 * time.Second},
		"set back, by an hour": {proven: 20 * time.Second, acked: time.Second, step: -time.Hour},
		"set back, asked before the step": {proven: 2 * time.Second, acked: time.Second,
			step: -10 * time.Second, asked: 5 * time.Second},
	} {
		s := &session{ctx: t.Context(), changed: make(chan struct{}), timeout: timeout}
		now := time.Now()
		s.proof.since = clocktest.WallBack(t, now.Add(-one.proven), one.step)
		s.proof.acked = clocktest.WallBack(t, now.Add(-one.acked), one.step)
		v, err := s.validity(t.Context(), now.Add(-one.asked))
		require.NoError(t, err, what)
		limit, until := s.proof.since.Add(timeout), v.Until()
		assert.True(t, until.Before(limit), "%s: by the monotonic clock %v too late", what, until.Sub(limit))
		assert.True(t, until.Round(0).Before(limit.Round(0)), "%s: by the wall clock %v too late", what,
			until.Round(0).Sub(limit.Round(0)))
		assert.True(t, until.After(now), "%s: something is left", what)
	}
}

// What is too old by one clock is not granted on: the next heartbeat is waited for.
func TestProofIsTooOldByEitherClock(t *testing.T) {
	const timeout = 40 * time.Second
	for what, one := range map[string]struct{ proven, acked, step time.Duration }{
		"the answer, monotonic":  {proven: 20 * time.Second, acked: 11 * time.Second},
		"the answer, by the day": {proven: 12 * time.Second, acked: time.Second, step: 10 * time.Second},
		"the proof, monotonic":   {proven: 31 * time.Second, acked: time.Second},
		"the proof, by the day":  {proven: 25 * time.Second, acked: time.Second, step: 7 * time.Second},
	} {
		s := &session{ctx: t.Context(), changed: make(chan struct{}), timeout: timeout}
		now := time.Now()
		s.proof.since = clocktest.WallBack(t, now.Add(-one.proven), one.step)
		s.proof.acked = clocktest.WallBack(t, now.Add(-one.acked), one.step)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := s.validity(ctx, now)
		assert.ErrorIs(t, err, driver.ErrUnavailable, what)
	}
}
