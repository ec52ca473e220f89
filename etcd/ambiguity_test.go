package etcd_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
)

// request is what the engine would ask.
func request(name string, ttl time.Duration, wait bool) driver.Request {
	requests.Lock()
	defer requests.Unlock()
	requests.n++
	return driver.Request{
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

func TestTryLockLeavesNoKeyWhenRefused(t *testing.T) {
	s := lab.StartEtcd(t, 1)
	admin := dial(t, s.Addrs())
	a, b := client(t, s.Addrs(), time.Minute), client(t, s.Addrs(), time.Minute)
	l, err := a.TryLock(t.Context(), "n")
	require.NoError(t, err)
	_, err = b.TryLock(t.Context(), "n") // it opens a session
	require.ErrorIs(t, err, driver.ErrHeld)
	before, err := admin.Get(t.Context(), "x")
	require.NoError(t, err)
	for range 10 {
		_, err = b.TryLock(t.Context(), "n")
		require.ErrorIs(t, err, driver.ErrHeld)
	}
	after, err := admin.Get(t.Context(), "x")
	require.NoError(t, err)
	assert.Equal(t, before.Header.Revision, after.Header.Revision, "a refusal writes nothing")
	require.NoError(t, l.Unlock(t.Context()))
}
