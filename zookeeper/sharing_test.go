package zookeeper_test

import (
	"strconv"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/zookeeper"
)

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
	_, err := c.TryLock(t.Context(), name, locker.Shared())
	require.ErrorIs(t, err, driver.ErrRefused)
	require.ErrorContains(t, err, "4096 share")
	eventuallyLen(t, z.Addr(), name, driver.MaxSharers)
	st, err := c.Inspect(t.Context(), name)
	require.NoError(t, err)
	assert.Equal(t, driver.MaxSharers, st.Sharers)
	require.NoError(t, first.Unlock(t.Context()))
	last, err := c.TryLock(t.Context(), name, locker.Shared())
	require.NoError(t, err)
	require.NoError(t, last.Unlock(t.Context()))
}
