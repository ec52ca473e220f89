package redisnode_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/internal/redisnode"
)

func onCluster(t *testing.T, cluster *lab.Cluster) *asker {
	t.Helper()
	return newAsker(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()}))
}

func TestProveACluster(t *testing.T) {
	lab.NeedProve(t)
	cluster := lab.StartCluster(t)
	node := onCluster(t, cluster)

	t.Run("wakes by shard channels only", func(t *testing.T) {
		before := make([]lab.Commands, len(cluster.Nodes))
		for i, n := range cluster.Nodes {
			before[i] = n.Commands(t)
		}
		bells := map[string]chan struct{}{}
		for i := range 30 {
			name := fmt.Sprint("wake ", i)
			bells[name], _ = node.subscribe(t, name)
		}
		for name, b := range bells {
			node.handOver(t, name)
			told(t, b, "release of "+name)
		}
		for i, n := range cluster.Nodes {
			used := n.Commands(t).Since(before[i])
			assert.Zero(t, used["publish"], "PUBLISH goes to every node")
			assert.NotZero(t, used["spublish"])
			assert.Equal(t, 1, listening(t, n), "one connection per shard")
		}
	})

	t.Run("says that a list is not whole", func(t *testing.T) {
		for i := range 30 { // so that each master has some
			_, err := node.take(t.Context(), fmt.Sprint("list ", i), "me")
			require.NoError(t, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		err := node.Names(ctx, "list ", func([]string) bool { cancel(); return true })
		require.ErrorIs(t, err, context.Canceled)
	})

	t.Run("makes lost subscriptions again", func(t *testing.T) {
		bells := map[string]chan struct{}{}
		for i := range 10 {
			name := fmt.Sprint("lost ", i)
			bells[name], _ = node.subscribe(t, name)
		}
		for _, n := range cluster.Nodes {
			n.MustDo(t, "CLIENT", "KILL", "TYPE", "pubsub")
		}
		for name, b := range bells {
			told(t, b, "messages for "+name+" may have been lost")
		}
		for name, b := range bells {
			drain(b)
			node.handOver(t, name)
			told(t, b, "release of "+name)
		}
	})

	t.Run("follows a slot that moves", func(t *testing.T) {
		const name = "moves"
		b, _ := node.subscribe(t, name)
		// Others of its shard must not lose their subscriptions for good, nor keep it on theirs.
		stays := map[string]chan struct{}{}
		for i := range 10 {
			other := fmt.Sprint("stays ", i)
			stays[other], _ = node.subscribe(t, other)
		}
		warm(t, node)
		for range 3 {
			moveSlot(t, cluster, redisnode.LockKey(name))
			_, err := node.take(t.Context(), name, "holder") // not another: a copy of the last take may come late
			require.NoError(t, err)
			_, err = node.drop(t.Context(), name, "holder")
			require.NoError(t, err)
			told(t, b, "the subscription was lost with the slot")
			require.Eventually(t, func() bool {
				drain(b)
				node.handOver(t, name)
				select {
				case <-b:
					return true
				case <-time.After(100 * time.Millisecond):
					return false
				}
			}, soon, time.Millisecond, "a release after the move wakes")
		}
		for other, b := range stays {
			drain(b)
			node.handOver(t, other)
			told(t, b, "release of "+other)
		}
		for _, n := range cluster.Nodes {
			require.Eventually(t, func() bool {
				before := n.Commands(t)
				time.Sleep(1600 * time.Millisecond) // longer than the longest pause between two attempts
				return n.Commands(t).Since(before)["ssubscribe"] == 0
			}, 3*soon, time.Millisecond, "each has found its shard for good")
		}
	})
}

// moveSlot gives the slot of a key to the next node, without its keys.
func moveSlot(t *testing.T, cluster *lab.Cluster, key string) {
	t.Helper()
	slot := cluster.Nodes[0].MustDo(t, "CLUSTER", "KEYSLOT", key)
	from := -1
	for i, n := range cluster.Nodes {
		if reply, err := n.Do("EXISTS", key); err == nil {
			from = i
			n.MustDo(t, "DEL", key, key+":wait")
			keys, ok := n.MustDo(t, "CLUSTER", "GETKEYSINSLOT", slot, 100).([]any)
			require.True(t, ok, "%v", reply)
			for _, k := range keys {
				n.MustDo(t, "DEL", k)
			}
		}
	}
	require.GreaterOrEqual(t, from, 0)
	to := cluster.Nodes[(from+1)%len(cluster.Nodes)]
	id := to.MustDo(t, "CLUSTER", "MYID")
	to.MustDo(t, "CLUSTER", "SETSLOT", slot, "NODE", id)
	to.MustDo(t, "CLUSTER", "BUMPEPOCH")
	for _, n := range cluster.Nodes {
		n.MustDo(t, "CLUSTER", "SETSLOT", slot, "NODE", id)
	}
}

func TestProveAShardThatHangsHoldsUpNoOther(t *testing.T) {
	lab.NeedProve(t)
	lab.NeedPause(t)
	cluster := lab.StartCluster(t, lab.WithConfig("cluster-node-timeout", "60000"))
	node := onCluster(t, cluster)
	names := map[*lab.Redis]string{}
	for i := 0; len(names) < len(cluster.Nodes); i++ {
		name := fmt.Sprint(i)
		names[cluster.NodeOf(t, redisnode.LockKey(name))] = name
	}
	for _, name := range names {
		_, err := node.inspect(t.Context(), name)
		require.NoError(t, err)
	}
	hung := cluster.Nodes[0]
	hung.Pause()
	ctx := locktest.Within(t, 4*time.Second)
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			_, err := node.inspect(ctx, names[hung])
			assert.ErrorIs(t, err, context.DeadlineExceeded)
		})
	}
	for _, n := range cluster.Nodes[1:] {
		for range 20 {
			begin := time.Now()
			_, err := node.inspect(t.Context(), names[n])
			require.NoError(t, err)
			require.Less(t, time.Since(begin), 2*time.Second)
		}
	}
	all.Wait()
	hung.Resume()
}

func TestAClusterThatCannotBeFoundIsNotWaitedFor(t *testing.T) {
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1", "127.0.0.1:2"},
		DialerRetries: 1})
	node := newAsker(t, client)
	ctx := locktest.Within(t, soon)
	e := try(t, ctx, node)
	assert.False(t, e.Unknown)
	assert.False(t, e.Refused)
	assert.True(t, strings.HasPrefix(e.Error(), "redis cluster 127.0.0.1:1,127.0.0.1:2: acquire: "), e.Error())
	_, err := node.Subscribe(ctx, "n", func() {})
	require.Error(t, err)
	require.NoError(t, ctx.Err())
}
