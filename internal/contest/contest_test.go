package contest_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/golockers/locker/internal/contest"
	"github.com/golockers/locker/internal/lab"
)

func TestMain(m *testing.M) {
	lab.RunRole(lab.Roles{"work": work})
	goleak.VerifyTestMain(m)
}

// work is a program that leaves a line in a file for each operation.
func work(p *lab.Parent) {
	f, err := os.OpenFile(p.Args[0], os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		err = contest.Serve(p, func(n int) error {
			if p.Args[1] == "fail" {
				return errors.New("on purpose")
			}
			_, err := fmt.Fprintln(f, n)
			return err
		})
	}
	panic(err)
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
}

func TestSpreadReturnsAnErrorAndGoesOn(t *testing.T) {
	var done atomic.Int64
	op := func(int) error {
		if done.Add(1) <= 2 {
			return errors.New("on purpose")
		}
		return nil
	}
	assert.EqualError(t, contest.Spread(100, 4, op), "on purpose")
	assert.EqualValues(t, 100, done.Load())
	assert.NoError(t, contest.On(op)(10, 2))
	assert.EqualValues(t, 110, done.Load())
}

func TestProgramsShareTheOperations(t *testing.T) {
	file := t.TempDir() + "/done"
	done := func() []string {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		return strings.Fields(string(text))
	}
	programs := contest.Start(t, 3, "work", file, "")
	op := contest.Told(t, programs)
	require.NoError(t, op(9, 3))
	assert.Equal(t, strings.Fields(strings.Repeat("0 ", 9)), done(), "one goroutine each")
	require.NoError(t, op(10, 6))
	assert.Len(t, done(), 9+12, "each has done as many")
	for _, n := range done() {
		assert.Contains(t, []string{"0", "1"}, n)
	}
}

func TestProgramThatFailsEndsWithItsError(t *testing.T) {
	c := contest.Start(t, 1, "work", t.TempDir()+"/done", "fail")[0]
	c.Send(t, "4 2")
	assert.Equal(t, 2, c.Wait(t, 30*time.Second))
	assert.Contains(t, c.Log(), "on purpose")
}
