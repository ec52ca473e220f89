package single_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/redisconn"
)

// Five fail-overs one after the other: each may lose a lock, as the documentation
// says, but no token ever falls, everybody goes on, and nothing is left behind.
func TestAgeingFiveFailOvers(t *testing.T) {
	lab.NeedProve(t)
	const failOvers = 5
	s := lab.StartSentinel(t, failOvers)
	u := "redis+sentinel://" + strings.Join(s.Addrs(), ",") + "?master_name=" + s.Name
	w := watch(t, u, 4*time.Second)
	for range failOvers {
		w.goesOn(t)
		s.KillPrimary(t)
	}
	w.goesOn(t)
	overlaps, lost := w.end(t)
	assert.LessOrEqual(t, overlaps, failOvers, "two held at once, and not since a fail-over lost the lock")
	t.Logf("%d overlaps, %d leases lost in %d fail-overs", overlaps, lost, failOvers)
	nothingLeft(t, s.Primary(t))
}

// The slots of all locks move from server to server, again and again. That costs
// nobody a lease.
func TestAgeingSlotsThatMove(t *testing.T) {
	lab.NeedProve(t)
	c := lab.StartCluster(t)
	w := watch(t, "redis+cluster://"+strings.Join(c.Addrs(), ","), 3*time.Second)
	for round := range 9 {
		w.goesOn(t)
		for _, name := range []string{"hot", "long"} {
			slot := c.Nodes[0].MustDo(t, "CLUSTER", "KEYSLOT", redisconn.LockKey(name)).(int64)
			from := c.NodeOf(t, redisconn.LockKey(name))
			at := 0
			for i, n := range c.Nodes {
				if n == from {
					at = (i + round) % len(c.Nodes)
				}
			}
			c.Move(t, slot, c.Nodes[at], c.Nodes[(at+1)%len(c.Nodes)])
		}
	}
	w.goesOn(t)
	overlaps, lost := w.end(t)
	assert.Zero(t, overlaps, "two held at once")
	assert.Zero(t, lost, "a lease was lost")
	nothingLeft(t, c.Nodes...)
}

// watched is a resource that four clients change, each under the lock, and a lease
// that a fifth keeps.
type watched struct {
	stop  context.CancelFunc
	works sync.WaitGroup
	close []func() error
	long  *locker.Lease

	times atomic.Int64 // how often the resource was changed

	mu       sync.Mutex
	inside   int
	last     uint64 // the highest token
	overlaps int
	lost     int
}

func watch(t *testing.T, url string, ttl time.Duration) *watched {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &watched{stop: cancel}
	for i := range 5 {
		c, err := openers.Open(ctx, url, &locker.Options{TTL: ttl, Patience: time.Minute})
		require.NoError(t, err)
		w.close = append(w.close, c.Close)
		if i == 0 {
			w.long, err = c.Lock(ctx, "long")
			require.NoError(t, err)
			continue
		}
		w.works.Go(func() { w.work(t, ctx, c) })
	}
	return w
}

func (w *watched) work(t *testing.T, ctx context.Context, c *locker.Client) {
	for ctx.Err() == nil {
		l, err := c.Lock(ctx, "hot")
		if err != nil {
			assert.ErrorIs(t, err, context.Canceled, "a waiter waits")
			continue
		}
		token, _ := l.Token()
		w.enter(t, token)
		time.Sleep(5 * time.Millisecond)
		w.leave(l.Err() == nil)
		_ = l.Unlock(context.Background()) // in a fail-over it may be lost
	}
}

func (w *watched) enter(t *testing.T, token uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.inside++; w.inside > 1 {
		w.overlaps++
	}
	assert.Greater(t, token, w.last, "the resource has seen a higher token")
	w.last = max(w.last, token)
	w.times.Add(1)
}

func (w *watched) leave(valid bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inside--
	if !valid {
		w.lost++
	}
}

// goesOn waits until the lock was handed on ten times more.
func (w *watched) goesOn(t *testing.T) {
	t.Helper()
	until := w.times.Load() + 10
	require.Eventually(t, func() bool { return w.times.Load() >= until }, 40*time.Second,
		10*time.Millisecond, "nobody gets the lock any more")
}

// end ends all, and returns how often two were in at once, and how many leases were lost.
func (w *watched) end(t *testing.T) (overlaps, lost int) {
	t.Helper()
	w.stop()
	w.works.Wait()
	if w.long.Err() != nil {
		w.lost++
	}
	_ = w.long.Unlock(context.Background())
	for _, f := range w.close {
		if err := f(); err != nil { // what a fail-over keeps from being removed ends with its TTL
			assert.ErrorIs(t, err, locker.ErrUnavailable)
		}
	}
	return w.overlaps, w.lost
}

func nothingLeft(t *testing.T, servers ...*lab.Redis) {
	t.Helper()
	require.Eventually(t, func() bool {
		for _, r := range servers {
			for _, name := range []string{"hot", "long"} {
				if len(r.MustDo(t, "KEYS", redisconn.LockKey(name)).([]any)) > 0 {
					return false
				}
			}
		}
		return true
	}, 10*time.Second, 50*time.Millisecond, "a lock is left behind")
}
