package zookeeper_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/zookeeper"
)

// A release whose caller leaves while it is under way returns, also where nothing fails.
func TestReleaseEndsWithItsContext(t *testing.T) {
	t.Parallel()
	z := lab.StartZooKeeper(t)
	c := newClient(t, []string{z.Addr()}, zookeeper.Options{})
	for range 30 {
		l, err := c.Lock(t.Context(), "a")
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(rand.N(time.Millisecond), cancel)
		returned := make(chan error, 1)
		go func() { returned <- l.Unlock(ctx) }()
		select {
		case <-returned: // whatever it says
		case <-time.After(5 * time.Second):
			require.FailNow(t, "Unlock does not return")
		}
	}
}
