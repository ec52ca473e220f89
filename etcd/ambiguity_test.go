package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
)

// request is what the engine would ask.
func request(name string, ttl time.Duration, wait bool) locker.Request {
	requests.Lock()
	defer requests.Unlock()
	requests.n++
	return locker.Request{
		Name:  name,
		Owner: fmt.Sprintf("%040x", requests.n),
		Label: "test",
		TTL:   ttl,
		Wait:  wait,
		Lost:  func() {},
	}
}

var requests struct {
	sync.Mutex
	n int
}

var within, eventually = locktest.Within, locktest.Eventually

func locksIn(t testing.TB, c *clientv3.Client, name string) (keys []string) {
	t.Helper()
	for _, k := range all(t, c) {
		if strings.HasPrefix(k, queue(name)) && !strings.HasPrefix(k, queue(name)+"~") {
			keys = append(keys, k)
		}
	}
	return keys
}

// Each request of an acquire in turn is held back, or carried out without an
// answer, and the caller gives up then.
func TestGivingUpAtEveryStepLeavesNothing(t *testing.T) {
	s := lab.StartEtcd(t, 1)
	admin := dial(t, s.Addrs())
	other := client(t, s.Addrs(), time.Minute)
	faults := map[string]func(*lab.Link){
		"request held": func(l *lab.Link) { l.Requests(lab.Hold) },
		"reply lost":   func(l *lab.Link) { l.Replies(lab.Drop) },
		"reset":        func(l *lab.Link) { l.Reset() },
		"no fault":     func(*lab.Link) {},
	}
	for fault, cause := range faults {
		// 1: the transaction for the first place, 2: for the last one, 3: the read of the queue, 4: the
		// watch.
		for step := 1; step <= 4; step++ {
			for _, how := range []string{"cancel", "deadline"} {
				name := fmt.Sprintf("%s at %d, %s", fault, step, how)
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					holder, err := other.Lock(t.Context(), name)
					require.NoError(t, err)
					network := lab.StartProxy(t)
					b := backend(t, s.Addrs(), through(network))
					c := locker.New(b, &locker.Options{TTL: time.Minute, Patience: -1})
					warm, err := c.Lock(t.Context(), "warm "+name)
					require.NoError(t, err)

					ctx, cancel := context.WithCancel(t.Context())
					wants := context.Canceled
					if how == "deadline" {
						ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
						wants = context.DeadlineExceeded
					}
					defer cancel()
					seen := 0
					var mu sync.Mutex
					var broken *lab.Link
					var count func(l *lab.Link)
					count = func(l *lab.Link) {
						if seen++; seen < step {
							network.OnRequest(queue(name), count)
							return
						}
						mu.Lock()
						broken = l
						mu.Unlock()
						cause(l)
						if how == "cancel" {
							time.AfterFunc(10*time.Millisecond, cancel)
						}
					}
					network.OnRequest(queue(name), count)
					began := time.Now()
					_, err = c.Lock(ctx, name)
					require.Error(t, err)
					if !errors.Is(err, locker.ErrUnavailable) {
						require.ErrorIs(t, err, wants)
					}
					require.Less(t, time.Since(began), 2*time.Second)
					// What is held arrives now; a connection that has lost bytes
					// is noticed by the driver's pings, which take longer.
					mu.Lock()
					if broken != nil {
						broken.Requests(lab.Pass)
						time.Sleep(20 * time.Millisecond)
						broken.Reset()
					}
					mu.Unlock()
					eventually(t, 30*time.Second, "only the holder is left",
						func() bool { return len(locksIn(t, admin, name)) == 1 })
					require.NoError(t, holder.Unlock(t.Context()))
					next, err := other.Lock(within(t, 10*time.Second), name) // what arrives only now is taken back
					require.NoError(t, err)
					require.NoError(t, next.Unlock(t.Context()))
					require.NoError(t, warm.Unlock(t.Context()))
					require.NoError(t, c.Close())
					require.NoError(t, b.Close())
					require.Empty(t, locksIn(t, admin, name))
				})
			}
		}
	}
}

func TestTryLockLeavesNoKeyWhenRefused(t *testing.T) {
	s := lab.StartEtcd(t, 1)
	admin := dial(t, s.Addrs())
	a, b := client(t, s.Addrs(), time.Minute), client(t, s.Addrs(), time.Minute)
	l, err := a.TryLock(t.Context(), "n")
	require.NoError(t, err)
	_, err = b.TryLock(t.Context(), "n") // it opens a session
	require.ErrorIs(t, err, locker.ErrHeld)
	before, err := admin.Get(t.Context(), "x")
	require.NoError(t, err)
	for range 10 {
		_, err = b.TryLock(t.Context(), "n")
		require.ErrorIs(t, err, locker.ErrHeld)
	}
	after, err := admin.Get(t.Context(), "x")
	require.NoError(t, err)
	assert.Equal(t, before.Header.Revision, after.Header.Revision, "a refusal writes nothing")
	require.NoError(t, l.Unlock(t.Context()))
}
