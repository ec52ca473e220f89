package single_test

import (
	crand "crypto/rand"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/redisnode"
)

// A Cluster moves the keys of a slot one after the other: a sharer that renews in between has lost nothing.
func TestSharerRenewsWhileItsSlotMoves(t *testing.T) {
	t.Parallel()
	c := lab.StartCluster(t)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	t.Cleanup(func() { _ = client.Close() })
	g, err := backend(t, client, nil).Acquire(t.Context(), driver.Request{Name: "n", Owner: crand.Text(),
		TTL: time.Minute, Shared: true})
	require.NoError(t, err)
	key := redisnode.LockKey("n")
	slot := c.Nodes[0].MustDo(t, "CLUSTER", "KEYSLOT", key)
	i := slices.IndexFunc(c.Nodes, func(n *lab.Redis) bool {
		_, err := n.Do("EXISTS", key)
		return err == nil
	})
	from, to := c.Nodes[i], c.Nodes[(i+1)%len(c.Nodes)]
	id := to.MustDo(t, "CLUSTER", "MYID")
	to.MustDo(t, "CLUSTER", "SETSLOT", slot, "IMPORTING", from.MustDo(t, "CLUSTER", "MYID"))
	from.MustDo(t, "CLUSTER", "SETSLOT", slot, "MIGRATING", id)
	host, port, err := net.SplitHostPort(to.Addr())
	require.NoError(t, err)
	for _, key := range []string{key, key + ":shared"} {
		from.MustDo(t, "MIGRATE", host, port, key, 0, 1000)
		_, err := g.Hold.Renew(t.Context())
		require.NotErrorIs(t, err, driver.ErrLost, "%s has moved", key)
	}
	to.MustDo(t, "CLUSTER", "SETSLOT", slot, "NODE", id) // and the others learn of it
	require.Eventually(t, func() bool {
		_, err := g.Hold.Renew(t.Context())
		require.NotErrorIs(t, err, driver.ErrLost)
		return err == nil
	}, 30*time.Second, 20*time.Millisecond)
}
