package redisconn_test

import (
	"crypto/rand"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/redisconn"
)

func TestProveReplicasAreCounted(t *testing.T) {
	lab.NeedProve(t)
	lab.NeedPause(t)
	primary := lab.StartRedis(t)
	first := lab.StartRedis(t, lab.ReplicaOf(primary.Addr()))
	second := lab.StartRedis(t, lab.ReplicaOf(primary.Addr()))
	node := newAsker(t, redis.NewClient(&redis.Options{Addr: primary.Addr()}))
	const short, long = 200 * time.Millisecond, 2 * time.Second // long enough for replicas on a busy machine
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			name := strconv.Itoa(i)
			state, acked, err := node.replicated(t.Context(), name, "me", 2, long)
			assert.NoError(t, err)
			assert.Equal(t, redisconn.Mine, state)
			assert.Equal(t, 2, acked)
			for _, replica := range []*lab.Redis{first, second} {
				assert.Equal(t, "me", replica.MustDo(t, "GET", redisconn.LockKey(name)), "acknowledged, and not there")
			}
		})
	}
	all.Wait()

	second.Pause()
	begin := time.Now()
	_, acked, err := node.replicated(t.Context(), "one", "me", 1, long)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, acked, 1)
	state, acked, err := node.replicated(t.Context(), "both", "me", 2, short)
	require.NoError(t, err)
	assert.Equal(t, redisconn.Mine, state)
	assert.Equal(t, 1, acked)
	assert.GreaterOrEqual(t, time.Since(begin), short)
	second.Resume()
}

func TestProveSlowReplicasHoldUpNoOtherRequests(t *testing.T) {
	lab.NeedProve(t)
	_, node := setUp(t) // no replica will ever acknowledge
	load(t, node)
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			time.Sleep(time.Duration(i) * 10 * time.Millisecond) // together they would share a few batches
			_, _, err := node.replicated(t.Context(), rand.Text(), "me", 1, 3*time.Second)
			assert.NoError(t, err)
		})
	}
	begin := time.Now()
	for time.Since(begin) < 300*time.Millisecond {
		sent := time.Now()
		_, err := node.take(t.Context(), "n", "me")
		require.NoError(t, err)
		require.Less(t, time.Since(sent), 2*time.Second)
	}
	all.Wait()
}

func TestProveEachWaitsForReplicasAsLongAsItSaid(t *testing.T) {
	lab.NeedProve(t)
	_, node := setUp(t) // no replica will ever acknowledge
	wait := func(d time.Duration) time.Duration {
		begin := time.Now()
		_, _, err := node.replicated(t.Context(), rand.Text(), "me", 1, d)
		assert.NoError(t, err)
		return time.Since(begin)
	}
	wait(time.Millisecond)
	for range 3 {
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() { wait(20 * time.Millisecond) }) // the others meet in the queue behind these
		}
		time.Sleep(5 * time.Millisecond)
		all.Go(func() { assert.GreaterOrEqual(t, wait(2*time.Second), 2*time.Second) })
		for range 5 {
			all.Go(func() { assert.Less(t, wait(time.Millisecond), 1500*time.Millisecond) })
		}
		all.Wait()
	}
}

func TestServersTellAboutThemselves(t *testing.T) {
	server, node := setUp(t, lab.WithConfig("maxmemory", "100mb"),
		lab.WithConfig("maxmemory-policy", "allkeys-lru"))
	look := func() redisconn.Server {
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
}

func TestProveSentinelNamesTheNextMaster(t *testing.T) {
	lab.NeedProve(t)
	sentinel := lab.StartSentinel(t, 1)
	node := newAsker(t, redis.NewFailoverClient(&redis.FailoverOptions{MasterName: sentinel.Name,
		SentinelAddrs: sentinel.Addrs(), DialerRetries: 1}))
	b := node.subscribe(t, "n")
	_, acked, err := node.replicated(t.Context(), "before", "me", 1, time.Second)
	require.NoError(t, err)
	require.Equal(t, 1, acked)

	next := sentinel.KillPrimary(t)
	require.Eventually(t, func() bool {
		state, err := node.take(t.Context(), "after", "me")
		return err == nil && state == redisconn.Mine
	}, 30*time.Second, 50*time.Millisecond)
	for _, name := range []string{"before", "after"} { // the replica had the first
		assert.Equal(t, "me", next.MustDo(t, "GET", redisconn.LockKey(name)))
	}
	told(t, b, "the subscription was lost with the old master")
	drain(b)
	node.handOver(t, "n")
	told(t, b, "a release on the new master")
}
