package redisnode_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/redisnode"
)

func TestServersTellAboutThemselves(t *testing.T) {
	server, node := setUp(t, lab.WithConfig("maxmemory", "100mb"),
		lab.WithConfig("maxmemory-policy", "allkeys-lru"))
	look := func() redisnode.Server {
		t.Helper()
		servers, err := node.Servers(t.Context())
		require.NoError(t, err)
		require.Len(t, servers, 1)
		return servers[0]
	}
	info := server.Info(t, "server")
	s := look()
	assert.Equal(t, server.Addr(), s.Addr)
	assert.Equal(t, info["run_id"], s.RunID)
	assert.Equal(t, info["redis_version"], s.Version)
	assert.Equal(t, "redis", s.Product)
	assert.Equal(t, "master", s.Role)
	assert.Equal(t, int64(100<<20), s.MaxMemory)
	assert.Equal(t, "allkeys-lru", s.Eviction)
	assert.True(t, s.MayEvict())
	server.MustDo(t, "CONFIG", "SET", "maxmemory-policy", "noeviction")
	assert.False(t, look().MayEvict())
	server.MustDo(t, "CONFIG", "SET", "maxmemory-policy", "volatile-ttl")
	assert.True(t, look().MayEvict())
	server.MustDo(t, "CONFIG", "SET", "maxmemory", "0")
	assert.False(t, look().MayEvict(), "without a limit nothing is evicted")
	server.MustDo(t, "REPLICAOF", "127.0.0.1", "1")
	assert.Equal(t, "slave", look().Role)
}

func TestProveSentinelNamesTheNextMaster(t *testing.T) {
	lab.NeedProve(t)
	sentinel := lab.StartSentinel(t, 1)
	node := newAsker(t, redis.NewFailoverClient(&redis.FailoverOptions{MasterName: sentinel.Name,
		SentinelAddrs: sentinel.Addrs(), DialerRetries: 1}))
	b, _ := node.subscribe(t, "n")
	node.mustTake(t, "before", "me")
	sentinel.Servers[0].MustDo(t, "PERSIST", redisnode.LockKey("before")) // however long the fail-over takes
	require.Eventually(t, func() bool {
		replica := sentinel.Servers[1]
		return replica.MustDo(t, "GET", redisnode.LockKey("before")) == "0000000000000000 me" &&
			replica.TTL(t, redisnode.LockKey("before")) < 0
	}, 30*time.Second, time.Millisecond, "the replica has it")
	next := sentinel.KillPrimary(t)
	require.Eventually(t, func() bool {
		state, err := node.take(t.Context(), "after", "me")
		return err == nil && state == redisnode.Done
	}, 30*time.Second, 50*time.Millisecond)
	for _, name := range []string{"before", "after"} { // the replica had the first
		assert.Equal(t, "0000000000000000 me", next.MustDo(t, "GET", redisnode.LockKey(name)))
	}
	told(t, b, "the subscription was lost with the old master")
	drain(b)
	node.handOver(t, "n")
	told(t, b, "a release on the new master")
}
