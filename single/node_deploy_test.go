package single_test

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/redisconn"
	"github.com/golockers/locker/single"
)

// rightsOfANode are the ACL rules that doc.go names.
var rightsOfANode = []string{
	"on", ">secret", "resetkeys", "resetchannels", "~locker:1:*", "&locker:1:*", "-@all",
	"+evalsha", "+eval", "+mget", "+set", "+del", "+exists", "+time", "+pttl", "+pexpire", "+publish",
	"+spublish",
	"+subscribe", "+unsubscribe", "+ssubscribe", "+sunsubscribe", "+ping", "+wait",
}

func TestTheRightsThatTheDocumentationNamesAreEnough(t *testing.T) {
	server := lab.StartRedis(t, lab.WithUser("default", "off"), lab.WithUser("locker", rightsOfANode...))
	for _, protocol := range []int{2, 3} {
		client := newClient(t, &redis.Options{Addr: server.Addr(), Username: "locker", Password: "secret",
			Protocol: protocol})
		node := newNode(t, client, nil)
		name := "protocol " + strconv.Itoa(protocol)
		b := newBell()
		subscribe(t, node, name, b)
		handOver(t, node, name)
		b.rings(t, "release")
		r := single.Request{Name: name, Value: "me", TTL: ttl, Replicas: 1, ReplicaTimeout: time.Millisecond}
		require.True(t, acquire(t, node, r).Granted)
		_, err := node.Renew(t.Context(), name, "me", ttl)
		require.NoError(t, err)
		_, err = node.TakeBack(t.Context(), name, "me", ttl)
		require.NoError(t, err)
		_, err = node.Inspect(t.Context(), name)
		require.NoError(t, err)
		server.MustDo(t, "SCRIPT", "FLUSH")
		server.MustDo(t, "CLIENT", "KILL", "TYPE", "pubsub")
		b.rings(t, "the connection was lost")
		_, err = node.Servers(t.Context())
		assert.True(t, asError(t, err).Refused, "INFO is not among them, and that is no failure")
	}
}

func TestProveTheRightsThatTheDocumentationNamesForAClusterAreEnough(t *testing.T) {
	lab.NeedProve(t)
	rights := append(rightsOfANode[:len(rightsOfANode):len(rightsOfANode)], "+cluster|slots", "+asking")
	cluster := lab.StartCluster(t, lab.WithUser("default", "off"), lab.WithUser("locker", rights...))
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), Username: "locker",
		Password: "secret"})
	t.Cleanup(func() { _ = client.Close() })
	node := newNode(t, client, nil)
	for i := range 10 {
		name := strconv.Itoa(i)
		b := newBell()
		subscribe(t, node, name, b)
		handOver(t, node, name)
		b.rings(t, "release")
		r := single.Request{Name: name, Value: "me", TTL: ttl, Replicas: 1, ReplicaTimeout: time.Millisecond}
		require.True(t, acquire(t, node, r).Granted)
	}
	for _, n := range cluster.Nodes {
		denied, ok := n.MustDo(t, "ACL", "LOG", 1000).([]any)
		require.True(t, ok)
		for _, entry := range denied {
			assert.NotContains(t, fmt.Sprint(entry), "object command ", "the list of commands was asked for")
		}
	}
}

// Each right is needed: without it, what it is for is refused and says so, and takes nothing.
func TestEachRightIsNeeded(t *testing.T) {
	server := lab.StartRedis(t, lab.WithUser("locker", rightsOfANode...))
	node := newNode(t, newClient(t, &redis.Options{Addr: server.Addr(), Username: "locker",
		Password: "secret"}), nil)
	load(t, node)
	for _, command := range []string{"evalsha", "mget", "set", "time"} {
		server.MustDo(t, "ACL", "SETUSER", "locker", "-"+command)
		e := try(t, t.Context(), node)
		assert.True(t, e.Refused, command)
		assert.False(t, e.Unknown, command)
		server.MustDo(t, "ACL", "SETUSER", "locker", "+"+command)
		assert.Equal(t, int64(0), server.MustDo(t, "EXISTS", redisconn.LockKey("n")),
			"%s: refused, and yet taken", command)
	}
	acquire(t, node, single.Request{Name: "n", Value: "me", TTL: ttl})
	for _, command := range []string{"del", "exists", "pexpire", "pttl"} {
		server.MustDo(t, "ACL", "SETUSER", "locker", "-"+command)
		var err error
		switch command {
		case "del":
			_, err = node.Release(t.Context(), "n", "me")
		case "exists":
			_, err = node.Release(t.Context(), "gone", "me")
		case "pexpire":
			_, err = node.Renew(t.Context(), "n", "me", ttl)
		case "pttl":
			_, err = node.Inspect(t.Context(), "n")
		}
		e := asError(t, err)
		assert.True(t, e.Refused, command)
		assert.False(t, e.Unknown, command)
		server.MustDo(t, "ACL", "SETUSER", "locker", "+"+command)
	}
	server.MustDo(t, "ACL", "SETUSER", "locker", "-wait")
	_, err := node.Acquire(t.Context(), single.Request{Name: "w", Value: "me", TTL: ttl, Replicas: 1,
		ReplicaTimeout: time.Millisecond})
	e := asError(t, err)
	assert.True(t, e.Refused, "wait")
	assert.True(t, e.Unknown, "the lock was granted all the same, and is to be taken back")
	assert.Equal(t, "wait for replicas", e.Op)
}

func TestProveReplicasAreCounted(t *testing.T) {
	lab.NeedProve(t)
	lab.NeedPause(t)
	primary := lab.StartRedis(t)
	first := lab.StartRedis(t, lab.ReplicaOf(primary))
	second := lab.StartRedis(t, lab.ReplicaOf(primary))
	node := newNode(t, newClient(t, &redis.Options{Addr: primary.Addr()}), nil)
	const short, long = 200 * time.Millisecond, 2 * time.Second // long enough for replicas on a busy machine
	request := func(name string, replicas int, timeout time.Duration) single.Request {
		return single.Request{Name: name, Value: "me", TTL: ttl, Replicas: replicas, ReplicaTimeout: timeout}
	}
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			name := strconv.Itoa(i)
			a, err := node.Acquire(t.Context(), request(name, 2, long))
			assert.NoError(t, err)
			assert.True(t, a.Granted)
			assert.Equal(t, 2, a.Replicas)
			for _, replica := range []*lab.Redis{first, second} {
				assert.Equal(t, "me", owned(t, replica, name), "acknowledged, and not there")
			}
		})
	}
	all.Wait()

	second.Pause()
	begin := time.Now()
	a := acquire(t, node, request("one", 1, long))
	assert.GreaterOrEqual(t, a.Replicas, 1)
	a = acquire(t, node, request("both", 2, short))
	assert.True(t, a.Granted)
	assert.Equal(t, 1, a.Replicas)
	assert.GreaterOrEqual(t, time.Since(begin), short)
	a, err := node.Acquire(t.Context(), single.Request{Name: "both", Value: "other", TTL: ttl, Replicas: 2,
		ReplicaTimeout: time.Millisecond})
	require.NoError(t, err)
	assert.False(t, a.Granted)
	assert.Zero(t, a.Replicas)
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
			_, err := node.Acquire(t.Context(), single.Request{Name: owner(), Value: "me", TTL: ttl, Replicas: 1,
				ReplicaTimeout: 3 * time.Second})
			assert.NoError(t, err)
		})
	}
	begin := time.Now()
	for time.Since(begin) < 300*time.Millisecond {
		sent := time.Now()
		_, err := node.Renew(t.Context(), "n", "me", ttl)
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
		_, err := node.Acquire(t.Context(), single.Request{Name: owner(), Value: "me", TTL: ttl, Replicas: 1,
			ReplicaTimeout: d})
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
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: sentinel.Name,
		SentinelAddrs: sentinel.Addrs(), DialerRetries: 1})
	t.Cleanup(func() { _ = client.Close() })
	node := newNode(t, client, nil)
	b := newBell()
	subscribe(t, node, "n", b)
	before := acquire(t, node, single.Request{Name: "before", Value: "me", TTL: ttl, Replicas: 1,
		ReplicaTimeout: time.Second})
	require.Equal(t, 1, before.Replicas)

	next := sentinel.KillPrimary(t)
	var after single.Answer
	require.Eventually(t, func() bool {
		var err error
		after, err = node.Acquire(t.Context(), single.Request{Name: "after", Value: "me", TTL: ttl})
		return err == nil
	}, 20*time.Second, 50*time.Millisecond)
	assert.True(t, after.Granted)
	assert.Equal(t, "me", owned(t, next, "after"))
	state, err := node.Renew(t.Context(), "before", "me", ttl)
	require.NoError(t, err)
	assert.Equal(t, redisconn.Mine, state, "the replica had it")
	b.rings(t, "the subscription was lost with the old master")
	for len(b.rung) > 0 {
		<-b.rung
	}
	handOver(t, node, "n")
	b.rings(t, "a release on the new master")
}
