package zookeeper_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/testserver"
	"github.com/golockers/locker/zookeeper"
)

func TestFirst(t *testing.T) {
	z := testserver.StartZooKeeper(t)
	c := newClient(t, []string{z.Addr()}, zookeeper.Options{})
	began := time.Now()
	l, err := c.Lock(within(t, soon), "a")
	require.NoError(t, err)
	t.Log(time.Since(began), time.Until(l.Until()))
	_, err = c.TryLock(within(t, soon), "a")
	require.ErrorIs(t, err, locker.ErrHeld)
	time.Sleep(6 * time.Second)
	t.Log(time.Since(began), time.Until(l.Until()))
	require.NoError(t, l.Unlock(within(t, soon)))
	for range 3 {
		began = time.Now()
		l, err := c.Lock(within(t, soon), "a")
		require.NoError(t, err)
		got := time.Since(began)
		require.NoError(t, l.Unlock(within(t, soon)))
		t.Log(got, time.Since(began))
	}
}
