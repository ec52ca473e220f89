package fencing_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
)

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
