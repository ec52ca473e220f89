package zookeeper_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/zookeeper"
)

// Tokens are raised by a writer while a reader and the next writer wait: that one has
// watched the reader alone.
func testTokensRaisedBeforeReaders(t *testing.T, z *lab.ZooKeeper) {
	const name = "raised-before-readers"
	var clients []*locker.Client
	for range 3 {
		clients = append(clients, newClient(t, []string{z.Addr()}, zookeeper.Options{}))
		warm(t, clients[len(clients)-1], "warm")
	}
	first := locktest.Lock(t, clients[0], name)
	reader := lock(t, clients[1], name, locker.Shared())
	eventuallyLen(t, z.Addr(), name, 2)
	writer := lock(t, clients[2], name)
	eventuallyLen(t, z.Addr(), name, 3)
	token, _ := first.Token()
	require.NoError(t, first.RaiseToken(t.Context(), token+1000))
	require.NoError(t, first.Unlock(t.Context()))
	l := <-reader
	none, ok := l.Token()
	assert.False(t, ok, none)
	require.NoError(t, l.Unlock(t.Context()))
	l = <-writer
	raised, _ := l.Token()
	assert.Greater(t, raised, token+1000)
	require.NoError(t, l.Unlock(t.Context()))
}

func testNoMoreShareANameThanThereMayBe(t *testing.T, z *lab.ZooKeeper) {
	const name = "crowd"
	c := newClient(t, []string{z.Addr()}, zookeeper.Options{})
	first := locktest.Lock(t, c, name, locker.Shared())
	admin := adminOf(t, z.Addr())
	for n := 1; n < driver.MaxSharers; {
		var some []any
		for ; len(some) < 512 && n < driver.MaxSharers; n++ {
			some = append(some, &zk.CreateRequest{Path: "/locker/" + name + "/" + strconv.Itoa(n) + "-read-",
				Acl: zk.WorldACL(zk.PermAll), Flags: zk.FlagEphemeral | zk.FlagSequence})
		}
		_, err := admin.Multi(some...)
		require.NoError(t, err)
	}
	began := time.Now()
	_, err := c.TryLock(t.Context(), name, locker.Shared())
	require.ErrorIs(t, err, driver.ErrRefused)
	require.ErrorContains(t, err, "4096 share")
	t.Logf("refused after %v", time.Since(began))
	eventuallyLen(t, z.Addr(), name, driver.MaxSharers)
	st, err := c.Inspect(t.Context(), name)
	require.NoError(t, err)
	assert.Equal(t, driver.MaxSharers, st.Sharers)
	require.NoError(t, first.Unlock(t.Context()))
	last, err := c.TryLock(t.Context(), name, locker.Shared())
	require.NoError(t, err)
	require.NoError(t, last.Unlock(t.Context()))
}
