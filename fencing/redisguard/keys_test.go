package redisguard_test

import (
	"strconv"
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
		_, advice, _ := strings.Cut(err.Error(), "as in ")
		advice, _, _ = strings.Cut(advice, ", or set")
		key, err := strconv.Unquote(advice)
		require.NoError(t, err)
		assert.Equal(t, slot(mark), slot(key), "%q", resource)
		assert.NoError(t, set(t.Context(), g, resource, 1, key, ""), "%q", resource)
	}
}

func TestKeysOutsideOfTheSlotAreRefusedAtOnce(t *testing.T) {
	g := newGuard(t, nowhere(t), nil)
	assert.EqualError(t, set(t.Context(), g, "orders/42", 1, "total", ""),
		`redisguard: invalid argument: "total" is not in the hash slot of the mark of "orders/42", `+
			`so that a Cluster could not write both in one step: put {orders/42} into the key, as in `+
			`"{orders/42}:total", or set Options.Unclustered if there will never be a Cluster`)
	assert.ErrorIs(t, g.Run(t.Context(), "r", 1, push, []string{"{r}:a", "{x}{r}"}).Err(), locker.ErrInvalid)
}

func TestMarksAreWrittenByTheGuardAlone(t *testing.T) {
	server := lab.StartRedis(t)
	client := newClient(t, &redis.Options{Addr: server.Addr()})
	for _, unclustered := range []bool{false, true} {
		g := newGuard(t, client, &redisguard.Options{Unclustered: unclustered})
		for _, other := range []string{"{t}a", "{t}b"} { // its own mark, and one that shares its hash slot
			mark, err := g.MarkKey(other)
			require.NoError(t, err)
			assert.ErrorIs(t, set(t.Context(), g, "{t}a", 5, mark, "1"), locker.ErrInvalid)
		}
		if unclustered {
			require.NoError(t, set(t.Context(), g, "night job", 7, "report", "x"))
			guardtest.Stale(t, set(t.Context(), g, "night job", 6, "report:2", "y"), "night job", 6, 7)
			assert.Equal(t, int64(1), server.MustDo(t, "EXISTS", "report", "report:2"))
		}
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
		"pipeline":    {client: client.Pipeline()},
		"transaction": {client: client.TxPipeline()},
		"ring":        {client: ring},
		"prefix":      {client, redisguard.Options{Prefix: "{a}"}},
		"long prefix": {client, redisguard.Options{Prefix: strings.Repeat("x", 257)}},
		"short":       {client, redisguard.Options{Keep: time.Millisecond}},
		"negative":    {client, redisguard.Options{Keep: -time.Hour}},
		"cluster":     {cluster, redisguard.Options{Unclustered: true}},
	} {
		g, err := redisguard.New(try.client, &try.opts)
		assert.ErrorIs(t, err, locker.ErrInvalid, what)
		assert.Nil(t, g, what)
	}
}
