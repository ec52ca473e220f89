package locker

import (
	"cmp"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/driver"
)

// The caller is in line when Close begins, and asks when Close is through.
func TestWhoComesToAskAfterCloseDoesNotAsk(t *testing.T) {
	c := must(New(&crowd{asked: func() { t.Error("it asks") }}, nil))
	cl := &call{client: c, name: "job", settings: settings{Asked: Asked{TTL: DefaultTTL}}, cancel: func(error) {}}
	require.NoError(t, c.lines.enter(t.Context(), "job", cl))
	require.NoError(t, c.Close())
	_, err := cl.attempt(t.Context())
	require.ErrorIs(t, err, ErrClosed)
}

// What comes when Close has given up waiting is asked for once more, and counted
// if that fails.
func TestATakeBackAfterCloseIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []error
		c := must(New(&crowd{}, &Options{Trace: &Trace{TakenBack: func(_ context.Context, e Event) {
			told = append(told, e.Err)
		}}}))
		require.NoError(t, c.Close())
		closed := &crowd{release: func(ctx context.Context) error { return cmp.Or(ctx.Err(), ErrUnavailable) }}
		l := &Lease{client: c, name: "job", values: t.Context(), grant: driver.Grant{Hold: closed},
			settings: settings{Asked: Asked{TTL: DefaultTTL}}}
		l.takeBack(unused)
		synctest.Wait()
		require.Len(t, told, 1)
		require.ErrorIs(t, told[0], ErrUnavailable)
		assert.Equal(t, uint64(1), c.Stats().LeftBehind)
	})
}

func (f *inFlight) count() int { return int(f.n.Load()) }

// Otherwise Close could come between: it leaves a lease that has ended to who
// has ended it.
func TestAnUnlockIsCountedBeforeItEndsTheLease(t *testing.T) {
	c := must(New(granting{}, nil))
	l, err := c.Lock(t.Context(), "job")
	require.NoError(t, err)
	counted := 0
	var probe context.CancelCauseFunc = func(error) { counted = c.busy.count() }
	l.mu.Lock()
	l.ends = map[*context.CancelCauseFunc]struct{}{&probe: {}}
	l.mu.Unlock()
	require.Eventually(t, func() bool { return c.busy.count() == 0 }, 30*time.Second, time.Millisecond,
		"the request is over")
	require.NoError(t, l.Unlock(t.Context()))
	assert.Equal(t, 1, counted)
	require.NoError(t, c.Close())
}
