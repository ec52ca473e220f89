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
	"github.com/golockers/locker/memory"
)

var contenders = contest.Contenders{Raw: nothing, Theirs: nothing, Name: "theirs",
	Locker: func([]string, int) (contest.Op, func(), error) { return contest.OfBackend(memory.New(), nil) }}

func nothing([]string, int) (contest.Op, func(), error) {
	return func(context.Context, int, string) error { return nil }, func() {}, nil
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSpreadDoesEachOperationOnceOnGoroutinesOfTheirOwn(t *testing.T) {
	var done atomic.Int64
	busy := make([]sync.Mutex, 7)
	assert.EqualError(t, contest.Spread(1000, len(busy), func(n int) error {
		if assert.True(t, busy[n].TryLock(), "two at a time on goroutine %d", n) {
			defer busy[n].Unlock()
		}
		if done.Add(1) <= 2 {
			return errors.New("on purpose")
		}
		return nil
	}), "on purpose")
	assert.EqualValues(t, 1000, done.Load(), "it goes on after an error")
	var here sync.WaitGroup // all goroutines work at the same time: each waits for all others
	here.Add(len(busy))
	require.NoError(t, contest.Spread(len(busy), len(busy), func(int) error {
		here.Done()
		here.Wait()
		return nil
	}))
}

// The whole contest, on a service that costs nothing.
func TestContest(t *testing.T) {
	require.NoError(t, flag.Set("test.benchtime", "10x"))
	failed := true
	r := testing.Benchmark(func(b *testing.B) {
		defer func() { failed = b.Failed() }()
		contenders.Run(b, []string{"nowhere"})
	})
	assert.False(t, failed)
	assert.NotZero(t, r.N)
}
