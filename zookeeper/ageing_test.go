package zookeeper_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/zkguard"
	"github.com/golockers/locker/internal/lab"
)

// Through what months bring to an ensemble, a holder whose session outlasts each step
// keeps its lease, a waiter keeps its place, and those who take turns are alone, with
// tokens that rise, as the guard of a resource sees it.
func TestAgeingOfAnEnsemble(t *testing.T) {
	lab.NeedProve(t)
	for _, a := range lab.Ageings() {
		if a.Service != "zookeeper" || !slices.Contains([]string{"versions", "members", "address"}, a.Thing) {
			continue
		}
		t.Run(a.Thing, func(t *testing.T) {
			is := a.Start(t)
			url := strings.Replace(is.URL, "ttl=4s", "ttl=40s", 1)
			require.NotEqual(t, is.URL, url)
			held, err := openURL(t, url).Lock(within(t, time.Minute), "held")
			require.NoError(t, err)
			first, _ := held.Token()
			waited := make(chan *locker.Lease, 1)
			waiter := openURL(t, url)
			go func() {
				l, err := waiter.Lock(within(t, 10*time.Minute), "held")
				assert.NoError(t, err)
				waited <- l
			}()
			turns := takeTurns(t, url)
			for _, step := range is.Steps {
				t.Log(step(t))
				now := turns.Load()
				require.Eventually(t, func() bool { return turns.Load() > now+20 }, time.Minute, 10*time.Millisecond,
					"locks go on")
				require.NoError(t, held.Err(), "a lease is lost")
				require.Empty(t, waited)
			}
			require.NoError(t, held.Unlock(within(t, soon)))
			next := <-waited
			require.NotNil(t, next)
			second, _ := next.Token()
			assert.Greater(t, second, first)
			require.NoError(t, next.Unlock(within(t, soon)))
			t.Logf("%d turns were taken", turns.Load())
		})
	}
}

func openURL(t testing.TB, url string) *locker.Client {
	t.Helper()
	c, err := open.Open(within(t, time.Minute), url, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// takeTurns has three clients take turns with one lock until the test ends, and tell
// the guard of a resource. It counts the turns.
func takeTurns(t testing.TB, url string) *atomic.Int64 {
	t.Helper()
	u, err := locker.ParseURL(url)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	var inside atomic.Int32
	var last atomic.Uint64
	turns := new(atomic.Int64)
	for range 3 {
		c := openURL(t, url)
		conn, done := dial(t, u.Hosts)
		guard, err := zkguard.New(conn, nil)
		require.NoError(t, err)
		all.Go(func() {
			defer done()
			for ctx.Err() == nil {
				l, err := c.Lock(ctx, "turns")
				if err != nil {
					continue // an outage, or the end
				}
				assert.EqualValues(t, 1, inside.Add(1), "two hold at once")
				token, _ := l.Token()
				assert.Greater(t, token, last.Swap(token), "tokens rise")
				err = guard.Raise(within(t, time.Minute), "resource", fencing.Token(token))
				var stale *fencing.StaleError
				assert.NotErrorAs(t, err, &stale, "a later holder wrote before")
				assert.NoError(t, l.Err(), "a lease is lost")
				inside.Add(-1)
				_ = l.Unlock(context.Background())
				turns.Add(1)
			}
		})
	}
	t.Cleanup(func() { cancel(); all.Wait() })
	return turns
}
