package fencing_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/internal/guardtest"
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
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, locker.ErrLost)
		defer cancel()
		refused := func() {
			err := guard.Do(ctx, "r", 2, func() error { t.Error("written in another's turn"); return nil })
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorIs(t, err, locker.ErrLost)
		}
		refused()
		require.NoError(t, guard.Do(t.Context(), "other", 1, nil), "another resource does not wait")
		close(release)
		synctest.Wait()
		refused()
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

func TestSuite(t *testing.T) {
	var guard fencing.Guard
	var mu sync.Mutex
	state := map[string]string{}
	guardtest.Run(t, func(*testing.T) guardtest.Store {
		return guardtest.Store{
			Write: func(ctx context.Context, r string, token fencing.Token, value string) error {
				return guard.Do(ctx, r, token, func() error {
					mu.Lock()
					defer mu.Unlock()
					state[r] = value
					return nil
				})
			},
			Raise: guard.Raise,
			Read: func(_ context.Context, r string) (string, error) {
				mu.Lock()
				defer mu.Unlock()
				return state[r], nil
			},
			Mark: func(_ context.Context, r string) (fencing.Token, error) {
				mark, _ := guard.Mark(r)
				return mark, nil
			},
			Forget: func(_ context.Context, r string) error { guard.Forget(r); return nil },
		}
	})
}

func TestFailedSaysWhatIsKnownOfARequest(t *testing.T) {
	live := t.Context()
	cancelled, cancel := context.WithCancel(live)
	cancel()
	late, cancel := context.WithTimeout(live, -time.Second)
	defer cancel()
	broken := errors.New("broken\n pipe")
	all := []error{broken, locker.ErrUnavailable, fencing.ErrUnknown, context.Canceled, context.DeadlineExceeded}
	for what, c := range map[string]struct {
		ctx  context.Context
		err  error
		o    fencing.Outcome
		want []error
	}{
		"refused":            {live, broken, fencing.Refused, []error{broken}},
		"refused, late":      {late, broken, fencing.Refused, []error{broken}},
		"not sent":           {live, broken, fencing.Unsent, []error{broken, locker.ErrUnavailable}},
		"no answer":          {live, broken, fencing.Unknown, []error{broken, locker.ErrUnavailable, fencing.ErrUnknown}},
		"given up":           {cancelled, broken, fencing.Unknown, []error{broken, context.Canceled, fencing.ErrUnknown}},
		"given up, not sent": {cancelled, context.Canceled, fencing.Unsent, []error{context.Canceled}},
		"late": {late, broken, fencing.Unknown,
			[]error{broken, context.DeadlineExceeded, locker.ErrUnavailable, fencing.ErrUnknown}},
		"a driver's own deadline": {live, fmt.Errorf("dial: %w", context.DeadlineExceeded), fencing.Unsent,
			[]error{locker.ErrUnavailable}},
	} {
		err := fencing.Failed(c.ctx, `store: write to "r"`, c.err, c.o)
		for _, target := range all {
			wanted := false
			for _, w := range c.want {
				wanted = wanted || w == target //nolint:errorlint // the very one
			}
			assert.Equal(t, wanted, errors.Is(err, target), "%s: %v: %v", what, target, err)
		}
		assert.NotContains(t, err.Error(), "\n")
		assert.Contains(t, err.Error(), `store: write to "r": `)
	}
	require.NoError(t, fencing.Failed(late, "", nil, fencing.Unknown))
	require.ErrorIs(t, fencing.Check("", 1), locker.ErrInvalid)
	require.ErrorIs(t, fencing.Check("r", 0), fencing.ErrMissing)
}
