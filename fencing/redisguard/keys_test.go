package redisguard_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/redisguard"
	"github.com/golockers/locker/internal/guardtest"
	"github.com/golockers/locker/internal/lab"
)

// nowhere is a client that no test of arguments gets to use.
func nowhere(t *testing.T) *redis.Client {
	return newClient(t, &redis.Options{Addr: "127.0.0.1:1"})
}

func TestMarkKeysDoNotMeet(t *testing.T) {
	client := nowhere(t)
	seen := map[string]string{}
	for _, prefix := range []string{"", "fencing:1:", "other"} {
		g := newGuard(t, client, &redisguard.Options{Prefix: prefix})
		for _, name := range guardtest.Names {
			key, err := g.MarkKey(name)
			require.NoError(t, err)
			other, used := seen[key]
			assert.False(t, used, "%q and %q have the same key %q", name, other, key)
			seen[key] = name
		}
	}
}

func TestMarkKeysAreAsDocumented(t *testing.T) {
	g := newGuard(t, nowhere(t), nil)
	for resource, want := range map[string]string{
		"orders/42":     "fencing:1:{orders/42}",
		"{user:7}:cart": "fencing:1:={user:7}:cart",
		"odd}name":      "fencing:1:%{odd%7Dname}",
	} {
		key, err := g.MarkKey(resource)
		require.NoError(t, err)
		assert.Equal(t, want, key)
	}
}

// The keys that the error tells to write are in the slot of the mark, by what
// a Cluster says.
func TestMarkAndKeysShareASlot(t *testing.T) {
	cluster := lab.StartCluster(t)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	t.Cleanup(func() { _ = client.Close() })
	g := newGuard(t, client, nil)
	slot := func(key string) any { return cluster.Nodes[0].MustDo(t, "CLUSTER", "KEYSLOT", key) }
	for _, resource := range guardtest.Names {
		mark, err := g.MarkKey(resource)
		require.NoError(t, err)
		if !strings.Contains(mark, "%{") {
			assert.Equal(t, slot(mark), slot(resource), "%q", resource)
			assert.NoError(t, set(t.Context(), g, resource, 1, resource, ""), "%q", resource)
		}
		err = set(t.Context(), g, resource, 1, "elsewhere", "")
		require.ErrorIs(t, err, locker.ErrInvalid, "%q", resource)
		_, advice, ok := strings.Cut(err.Error(), "as in ")
		require.True(t, ok, err)
		var key string
		advice, _, _ = strings.Cut(advice, ", or set")
		require.NoError(t, unquote(advice, &key))
		assert.Equal(t, slot(mark), slot(key), "%q", resource)
		assert.NoError(t, set(t.Context(), g, resource, 1, key, ""), "%q", resource)
	}
}

func TestKeysOutsideOfTheSlotAreRefusedAtOnce(t *testing.T) {
	g := newGuard(t, nowhere(t), nil)
	err := set(t.Context(), g, "orders/42", 1, "total", "")
	assert.ErrorIs(t, err, locker.ErrInvalid)
	assert.EqualError(t, err,
		`redisguard: invalid argument: "total" is not in the hash slot of the mark of "orders/42", `+
			`so that a Cluster could not write both in one step:`+
			` put {orders/42} into the key, as in "{orders/42}:total", or set `+
			`Options.Unclustered if there will never be a Cluster`)
	assert.ErrorIs(t, g.Run(t.Context(), "r", 1, push, []string{"{r}:a", "{x}{r}"}).Err(), locker.ErrInvalid)

	mark, err := g.MarkKey("r")
	require.NoError(t, err)
	assert.ErrorIs(t, set(t.Context(), g, "r", 1, mark, ""), locker.ErrInvalid, "a guard's own key")
}

func TestUnclusteredTakesEveryKey(t *testing.T) {
	server := lab.StartRedis(t)
	g := newGuard(t, newClient(t, &redis.Options{Addr: server.Addr()}),
		&redisguard.Options{Unclustered: true})
	require.NoError(t, set(t.Context(), g, "night job", 7, "report", "x"))
	guardtest.Stale(t, set(t.Context(), g, "night job", 6, "report:2", "y"), "night job", 6, 7)
	assert.Equal(t, int64(1), server.MustDo(t, "EXISTS", "report", "report:2"))
	mark, err := g.MarkKey("night job")
	require.NoError(t, err)
	assert.ErrorIs(t, set(t.Context(), g, "night job", 7, mark, ""), locker.ErrInvalid)
}

func TestMarksOfOtherResourcesAreNotWritten(t *testing.T) {
	_, clustered := newServer(t)
	server := lab.StartRedis(t)
	unclustered := newGuard(t, newClient(t, &redis.Options{Addr: server.Addr()}),
		&redisguard.Options{Unclustered: true})
	for _, g := range []*redisguard.Guard{clustered, unclustered} {
		const other = "{t}b" // its mark shares the hash slot of {t}a
		mark, err := g.MarkKey(other)
		require.NoError(t, err)
		require.NoError(t, set(t.Context(), g, other, 9, other, ""))
		assert.ErrorIs(t, set(t.Context(), g, "{t}a", 5, mark, "1"), locker.ErrInvalid)
		guardtest.Stale(t, set(t.Context(), g, other, 8, other, ""), other, 8, 9)
	}
}

func TestBadArgumentsAreFoundAtOnce(t *testing.T) {
	client := nowhere(t)
	g := newGuard(t, client, nil)
	assert.ErrorIs(t, set(t.Context(), g, "k", 0, "k", ""), fencing.ErrMissing)
	assert.ErrorIs(t, g.Run(t.Context(), "k", 1, nil, nil).Err(), locker.ErrInvalid)

	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	t.Cleanup(func() { _ = cluster.Close() })
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	t.Cleanup(func() { _ = ring.Close() })
	for what, try := range map[string]struct {
		client redisguard.Client
		opts   redisguard.Options
	}{
		"nil":         {},
		"nil client":  {client: (*redis.Client)(nil)},
		"pipeline":    {client: client.Pipeline()},
		"transaction": {client: client.TxPipeline()},
		"ring":        {client: ring},
		"prefix":      {client, redisguard.Options{Prefix: "{a}"}},
		"long prefix": {client, redisguard.Options{Prefix: strings.Repeat("x", 257)}},
		"short":       {client, redisguard.Options{Keep: time.Millisecond}},
		"negative":    {client, redisguard.Options{Keep: -time.Hour}},
		"too long":    {client, redisguard.Options{Keep: 1<<63 - 1}},
		"cluster":     {cluster, redisguard.Options{Unclustered: true}},
	} {
		g, err := redisguard.New(try.client, &try.opts)
		assert.ErrorIs(t, err, locker.ErrInvalid, what)
		assert.Nil(t, g, what)
	}
}
