package zookeeper

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/clocktest"
	lasting "github.com/golockers/locker/internal/session"
)

// By each of the two clocks, a lease ends before the session can, even if the machine has slept or its clock was set
// since the session was proven (R4). If the proof is too old by either clock, nothing is granted before the next
// heartbeat.
func TestLeaseEndsInBothClocksWithItsSession(t *testing.T) {
	const timeout = 40 * time.Second
	for what, one := range map[string]struct {
		proven time.Duration // ago, by the monotonic clock
		step   time.Duration // of the wall clock since then
		asked  time.Duration // ago, on both clocks
		old    bool
	}{
		"no step":                         {proven: 20 * time.Second},
		"asked before the proof":          {proven: 2 * time.Second, asked: 5 * time.Second},
		"slept":                           {proven: 20 * time.Second, step: 6 * time.Second},
		"slept, asked a while ago":        {proven: 15 * time.Second, step: 6 * time.Second, asked: 500 * time.Millisecond},
		"set back":                        {proven: 20 * time.Second, step: -10 * time.Second},
		"set back, by an hour":            {proven: 20 * time.Second, step: -time.Hour},
		"set back, asked before the step": {proven: 2 * time.Second, step: -10 * time.Second, asked: 5 * time.Second},
		"too old by the monotonic clock":  {proven: 31 * time.Second, old: true},
		"too old by the wall clock":       {proven: 25 * time.Second, step: 7 * time.Second, old: true},
	} {
		s := &session{Session: lasting.New(time.Hour)}
		now := time.Now()
		since := clocktest.WallBack(t, now.Add(-one.proven), one.step)
		s.Open(since, timeout, terms(timeout))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		v, err := s.validity(ctx, now.Add(-one.asked))
		if one.old {
			assert.ErrorIs(t, err, driver.ErrUnavailable, what)
			continue
		}
		require.NoError(t, err, what)
		limit, until := since.Add(timeout), v.Until()
		assert.True(t, until.Before(limit), "%s: by the monotonic clock %v too late", what, until.Sub(limit))
		assert.True(t, until.Round(0).Before(limit.Round(0)), "%s: by the wall clock %v too late", what,
			until.Round(0).Sub(limit.Round(0)))
		assert.True(t, until.After(now), "%s: something is left", what)
	}
}
