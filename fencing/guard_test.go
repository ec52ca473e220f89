package fencing_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/fencing"
)

func TestTheMarkMovesWithTheWriteOrNotAtAll(t *testing.T) {
	var guard fencing.Guard
	require.NoError(t, guard.Do(t.Context(), "r", 5, nil))
	failed := errors.New("disk full")
	require.ErrorIs(t, guard.Do(t.Context(), "r", 9, func() error { return failed }), failed)
	mark, _ := guard.Mark("r")
	assert.Equal(t, fencing.Token(5), mark, "nothing was written")
	require.NoError(t, guard.Do(t.Context(), "r", 6, nil))

	assert.Panics(t, func() { _ = guard.Do(t.Context(), "r", 9, func() error { panic("half written?") }) })
	require.ErrorIs(t, guard.Do(t.Context(), "r", 8, nil), fencing.ErrStale, "what a panic left is not known")
	require.NoError(t, guard.Do(t.Context(), "r", 9, nil), "and the guard goes on")
	guard.Forget("r")
	require.ErrorIs(t, guard.Do(t.Context(), "r", 9, func() error { return failed }), failed)
	assert.Zero(t, guard.Marks(), "nothing is kept of what was never written")
}

func TestWaitingForATurnEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var guard fencing.Guard
		release := make(chan struct{})
		go func() { assert.NoError(t, guard.Do(t.Context(), "r", 1, func() error { <-release; return nil })) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := guard.Do(ctx, "r", 2, func() error { t.Error("written in another's turn"); return nil })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, guard.Do(t.Context(), "other", 1, nil), "another resource does not wait")
		close(release)
		require.NoError(t, guard.Do(t.Context(), "r", 2, nil))
	})
}

func TestMarksAreForgottenAfterKeepAndNotBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := fencing.Guard{Keep: time.Hour}
		require.NoError(t, guard.Do(t.Context(), "r", 9, nil))
		time.Sleep(time.Hour)
		require.ErrorIs(t, guard.Do(t.Context(), "r", 8, nil), fencing.ErrStale)
		require.NoError(t, guard.Do(t.Context(), "r", 9, nil), "used: its time begins again")
		time.Sleep(time.Hour)
		require.ErrorIs(t, guard.Do(t.Context(), "r", 8, nil), fencing.ErrStale)
		time.Sleep(time.Second)
		_, ok := guard.Mark("r")
		assert.False(t, ok)
		require.NoError(t, guard.Do(t.Context(), "r", 8, nil), "as documented: a token of any age passes then")
	})
}

func TestMarksDoNotGrowForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard := fencing.Guard{Keep: time.Second}
		release := make(chan struct{})
		go func() { assert.NoError(t, guard.Do(t.Context(), "r", 1, func() error { <-release; return nil })) }()
		most := 0
		for i := range 100_000 {
			require.NoError(t, guard.Do(t.Context(), strconv.Itoa(i), 1, nil))
			most = max(most, guard.Marks())
			time.Sleep(time.Millisecond)
		}
		assert.Less(t, most, 4*1000, "some times the thousand that are in use within Keep")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, guard.Raise(ctx, "r", 2), context.DeadlineExceeded, "one write goes on meanwhile")
		close(release)
	})
}
