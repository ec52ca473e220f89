package fencingproof_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/golockers/locker"
	"github.com/golockers/locker/etcd"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/redlock"
	"github.com/golockers/locker/single"
	"github.com/golockers/locker/zookeeper"
)

func TestMain(m *testing.M) {
	lab.RunRole(lab.Roles{"holder": holderRole})
	goleak.VerifyTestMain(m)
}

// patience is for machines that are busy: nothing here takes that long.
const patience = 30 * time.Second

var openers = locker.Openers{"redis": single.Open, "redlock": redlock.Open, "etcd": etcd.Open,
	"zookeeper": zookeeper.Open}

// open returns a client of the lock service at url, closed with the test.
func open(t *testing.T, url string, opts *locker.Options) *locker.Client {
	t.Helper()
	ctx := locktest.Within(t, patience)
	c, err := openers.Open(ctx, url, opts)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// lock waits for name, also while the service is away, or the machine too busy for it.
func lock(t *testing.T, c *locker.Client, name string) *locker.Lease {
	t.Helper()
	ctx := locktest.Within(t, patience)
	for {
		lease, err := c.Lock(ctx, name)
		if err == nil {
			return lease
		}
		require.True(t, errors.Is(err, locker.ErrUnavailable) && ctx.Err() == nil, "%v", err)
	}
}
