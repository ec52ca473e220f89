package clock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golockers/locker/internal/clock"
	"github.com/golockers/locker/internal/clocktest"
	"github.com/stretchr/testify/assert"
)

func TestADeadlineHoldsInBothClocks(t *testing.T) {
	now := time.Now()
	assert.False(t, clock.Passed(now.Add(time.Second), now))
	assert.True(t, clock.Passed(now, now))
	slept := clocktest.WallBack(t, now, time.Hour)
	assert.True(t, clock.Passed(slept.Add(time.Minute), now), "by the wall clock: the machine has slept")
	assert.True(t, clock.Passed(clocktest.WallBack(t, now, -time.Hour), now),
		"by the monotonic clock: the wall clock was set back")
	assert.Equal(t, time.Hour, clock.Stepped(slept, now).Round(time.Second))
	assert.Zero(t, clock.Stepped(now, now.Add(time.Hour)))
	assert.Equal(t, time.Hour, clock.Elapsed(slept, now).Round(time.Second))
	assert.Equal(t, -59*time.Minute, clock.Left(slept.Add(time.Minute), now).Round(time.Second))
}

func TestSleepEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		assert.NoError(t, clock.Sleep(t.Context(), time.Second))
		assert.Equal(t, time.Second, time.Since(began))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.ErrorIs(t, clock.Sleep(ctx, time.Hour), context.DeadlineExceeded)
		assert.Equal(t, 2*time.Second, time.Since(began))
		assert.ErrorIs(t, clock.Sleep(ctx, 0), context.DeadlineExceeded)
	})
}

func TestBackOffDoublesUpToItsBound(t *testing.T) {
	var got []time.Duration
	for n := range 5 {
		got = append(got, clock.BackOff(n, 10, 70))
	}
	assert.Equal(t, []time.Duration{10, 20, 40, 70, 70}, got)
	assert.Equal(t, time.Duration(70), clock.BackOff(1<<30, 10, 70))
	for range 100 {
		d := clock.Jitter(100)
		assert.True(t, 50 <= d && d < 150)
	}
	assert.Zero(t, clock.UpTo(-1))
}

func TestALimitedContextIsOne(t *testing.T) {
	type key struct{}
	for _, c := range []struct {
		how  string
		end  func(parent context.CancelFunc, l *clock.Limited)
		want error
	}{
		{"its time", func(context.CancelFunc, *clock.Limited) { time.Sleep(time.Second) },
			context.DeadlineExceeded},
		{"its parent", func(parent context.CancelFunc, _ *clock.Limited) { parent() }, context.Canceled},
		{"Cancel", func(_ context.CancelFunc, l *clock.Limited) { l.Cancel() }, context.Canceled},
	} {
		for _, early := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				parent, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "v"))
				defer cancel()
				l := clock.Within(parent, time.Second)
				defer l.Cancel()
				end, ok := l.Deadline()
				assert.True(t, ok)
				assert.Equal(t, time.Second, time.Until(end))
				if early {
					child, stop := context.WithCancel(l)
					defer stop()
					assert.NoError(t, l.Err())
					assert.NoError(t, child.Err())
					assert.Equal(t, "v", child.Value(key{}))
					defer func() { assert.ErrorIs(t, child.Err(), c.want, c.how) }()
				}
				c.end(cancel, l)
				synctest.Wait()
				assert.ErrorIs(t, l.Err(), c.want, c.how)
				<-l.Done()
			})
		}
	}
	l := clock.Within(t.Context(), time.Minute)
	defer l.Cancel()
	parent, limit := clock.Parts(l)
	assert.Equal(t, t.Context(), parent)
	assert.InDelta(t, time.Minute, limit, float64(10*time.Second))
	parent, limit = clock.Parts(parent)
	assert.Equal(t, t.Context(), parent)
	assert.Zero(t, limit)
	soon, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	want, _ := soon.Deadline()
	got, _ := clock.Within(soon, time.Hour).Deadline()
	assert.Equal(t, want, got)
}
