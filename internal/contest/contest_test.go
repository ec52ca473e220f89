package contest_test

import (
	"context"
	"errors"
	"flag"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/golockers/locker/internal/contest"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/memory"
)

var contenders = contest.Contenders{Raw: nothing, HandOn: nothing, Theirs: nothing, Name: "theirs",
	Locker: func([]string, int) (contest.Op, func(), error) { return contest.OfBackend(memory.New(), nil) }}

func nothing([]string, int) (contest.Op, func(), error) {
	return func(context.Context, int, string) error { return nil }, func() {}, nil
}

func TestMain(m *testing.M) {
	lab.RunRole(lab.Roles{"contest": contenders.Role})
	goleak.VerifyTestMain(m)
}

func TestSpreadDoesEachOperationOnceOnGoroutinesOfTheirOwn(t *testing.T) {
	for _, of := range []struct{ operations, goroutines int }{{0, 3}, {1, 1}, {2, 5}, {1000, 7}} {
		var done, all atomic.Int64
		busy := make([]sync.Mutex, of.goroutines)
		require.NoError(t, contest.Spread(of.operations, of.goroutines, func(n int) error {
			if assert.True(t, busy[n].TryLock(), "two at a time on goroutine %d", n) {
				defer busy[n].Unlock()
			}
			done.Add(1)
			return nil
		}))
		assert.EqualValues(t, of.operations, done.Load())

		// All goroutines work at the same time: each waits for all others.
		var here sync.WaitGroup
		here.Add(of.goroutines)
		require.NoError(t, contest.Spread(of.goroutines, of.goroutines, func(int) error {
			here.Done()
			here.Wait()
			all.Add(1)
			return nil
		}))
		assert.EqualValues(t, of.goroutines, all.Load())
	}
	var done atomic.Int64
	assert.EqualError(t, contest.Spread(100, 4, func(int) error {
		if done.Add(1) <= 2 {
			return errors.New("on purpose")
		}
		return nil
	}), "on purpose")
	assert.EqualValues(t, 100, done.Load(), "it goes on after an error")
}

// The whole contest, on a service that costs nothing.
func TestContest(t *testing.T) {
	require.NoError(t, flag.Set("test.benchtime", "10x"))
	r := testing.Benchmark(func(b *testing.B) { contenders.Run(b, []string{"nowhere"}) })
	assert.NotZero(t, r.N)
}
