package locker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/memory"
)

// A loss is being told while its client is closed.
func TestCloseWaitsForALossThatIsBeingTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		slow := func(context.Context, locker.Event) { time.Sleep(100 * time.Millisecond) }
		c := locktest.Must(locker.New(b, &locker.Options{Trace: &locker.Trace{Lost: slow}}))
		l := locktest.Lock(t, c, "job", locker.MaxHold(time.Second))
		<-l.Done()
		require.NoError(t, c.Close())
		st, err := b.Inspect(t.Context(), "job")
		require.NoError(t, err)
		assert.False(t, st.Held)
	})
}

// Callers of other names waited for 6.9 s while 100,000 left: each looked for its place
// in the whole line, under the mutex of all lines. With -race, half as many took 22 s.
func TestManyCallersLeaveALineAtOnce(t *testing.T) {
	const callers = 100_000
	c := locktest.Client(t, newScripted(), &locker.Options{TTL: time.Hour})
	l := locktest.Lock(t, c, "job")
	ctx, cancel := context.WithCancel(t.Context())
	began := time.Now()
	for range callers {
		go func() { _, _ = c.Lock(ctx, "job") }()
	}
	for c.Stats().Waiting < callers {
		time.Sleep(time.Millisecond)
	}
	came := time.Since(began)
	began = time.Now()
	cancel()
	for c.Stats().Waiting > 0 {
		time.Sleep(time.Millisecond)
	}
	left := time.Since(began)
	t.Logf("%d callers came in %v and left in %v", callers, came, left)
	assert.Less(t, left, max(20*time.Second, 10*came))
	require.NoError(t, l.Unlock(t.Context()))
}
