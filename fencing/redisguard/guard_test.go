package redisguard_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/redisguard"
	"github.com/golockers/locker/internal/guardtest"
	"github.com/golockers/locker/internal/lab"
)

func TestMarkIsKeptAfterItsLastUse(t *testing.T) {
	server, g := newServer(t)
	key, err := g.MarkKey("k")
	require.NoError(t, err)
	thirtyDays := 30 * 24 * time.Hour.Milliseconds()
	for range 2 { // an equal token is a use
		require.NoError(t, set(t.Context(), g, "k", 2, "k", ""))
		assert.InDelta(t, thirtyDays, server.MustDo(t, "PTTL", key), 60_000)
		server.MustDo(t, "PEXPIRE", key, 60_000)
	}
	require.ErrorIs(t, g.Raise(t.Context(), "k", 1), fencing.ErrStale)
	assert.LessOrEqual(t, server.MustDo(t, "PTTL", key), int64(60_000), "what is refused is none")

	client := newClient(t, &redis.Options{Addr: server.Addr()})
	short := newGuard(t, client, &redisguard.Options{Keep: time.Second, Prefix: "short"})
	lab.Again(t, func() bool { // a machine that stalls for a second
		began := time.Now()
		require.NoError(t, set(t.Context(), short, "k", 9, "k", ""))
		err := set(t.Context(), short, "k", 8, "k", "")
		if time.Since(began) >= time.Second {
			return false
		}
		require.ErrorIs(t, err, fencing.ErrStale)
		return true
	})
	assert.Eventually(t, func() bool { return server.MustDo(t, "GET", "short:1:{k}") == nil }, patience, 10*time.Millisecond)
	assert.NoError(t, set(t.Context(), short, "k", 1, "k", ""))
	assert.Equal(t, "2", server.MustDo(t, "GET", "fencing:1:{k}"), "another prefix, another mark")
}

func TestSomethingElseInThePlaceOfAMarkIsNeverPermission(t *testing.T) {
	server, g := newServer(t)
	key, err := g.MarkKey("r")
	require.NoError(t, err)
	for _, value := range []string{"", "0", "007", "x", "1e3", "-1", "1.5", " 1", "1\n",
		"18446744073709551616", "99999999999999999999", "100000000000000000000", "a list"} {
		server.MustDo(t, "FLUSHALL")
		want := key
		if value == "a list" {
			want = "WRONGTYPE"
			server.MustDo(t, "RPUSH", key, "1")
		} else {
			server.MustDo(t, "SET", key, value)
		}
		before := everything(t, server)
		for _, err := range []error{g.Raise(t.Context(), "r", math.MaxUint64),
			g.Run(t.Context(), "r", math.MaxUint64, push, []string{"{r}:x"}, 1).Err()} {
			require.ErrorContains(t, err, want, value)
			assert.NotErrorIs(t, err, fencing.ErrStale)
			assert.NotErrorIs(t, err, locker.ErrUnavailable)
		}
		assert.Equal(t, before, everything(t, server), "%q", value)
	}
}

// Mark and write reach the disk and the replicas as one transaction.
func TestMarkAndWriteAreOneTransaction(t *testing.T) {
	server, g := newServer(t, lab.WithAppendOnly())
	replica := lab.StartRedis(t, lab.ReplicaOf(server.Addr()))
	require.NoError(t, set(t.Context(), g, "k", 7, "k", "v"))
	require.Eventually(t, func() bool { return replica.MustDo(t, "GET", "k") == "v" }, patience, time.Millisecond)
	assert.Equal(t, "7", replica.MustDo(t, "GET", "fencing:1:{k}"))
	server.Restart(t)
	assert.Equal(t, "v", server.MustDo(t, "GET", "k"))
	guardtest.Stale(t, set(t.Context(), g, "k", 6, "k", "lower"), "k", 6, 7)
}

func TestSuite(t *testing.T) {
	server := lab.StartRedis(t)
	guardtest.Run(t, func(t *testing.T) guardtest.Store {
		s := storeOn(t, newClient(t, &redis.Options{Addr: server.Addr()}))
		s.State = func() any { return everything(t, server) }
		return s
	})
	guardtest.Faults(t, func(t *testing.T) guardtest.Proxied {
		server := lab.StartRedis(t)
		p := lab.StartProxy(t, server.Addr())
		through := newClient(t, &redis.Options{Addr: p.Addr(), ContextTimeoutEnabled: true})
		direct := newClient(t, &redis.Options{Addr: server.Addr()})
		s := storeOn(t, through)
		s.Read = storeOn(t, direct).Read
		return guardtest.Proxied{Store: s, Proxy: p, Later: storeOn(t, direct).Write, Deadlines: true}
	})
}

func TestProveSuiteOnACluster(t *testing.T) {
	lab.NeedProve(t)
	cluster := lab.StartCluster(t)
	guardtest.Run(t, func(t *testing.T) guardtest.Store {
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
		t.Cleanup(func() { _ = client.Close() })
		return storeOn(t, client)
	})
}

func storeOn(t *testing.T, client redis.UniversalClient) guardtest.Store {
	g := newGuard(t, client, nil)
	return guardtest.Store{
		Write: func(ctx context.Context, r string, token fencing.Token, value string) error {
			return set(ctx, g, r, token, r, value)
		},
		Raise: g.Raise,
		Read: func(ctx context.Context, r string) (string, error) {
			value, err := client.Get(ctx, r).Result()
			if errors.Is(err, redis.Nil) {
				err = nil
			}
			return value, err
		},
		Mark: func(ctx context.Context, r string) (fencing.Token, error) {
			key, err := g.MarkKey(r)
			if err != nil {
				return 0, err
			}
			token, err := client.Get(ctx, key).Uint64()
			if errors.Is(err, redis.Nil) {
				err = nil
			}
			return fencing.Token(token), err
		},
		AnyName: true,
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var setKey = redisguard.NewScript("return redis.call('SET', KEYS[1], ARGV[1])")

func set(ctx context.Context, g *redisguard.Guard, resource string, token fencing.Token, key string, value any) error {
	return g.Run(ctx, resource, token, setKey, []string{key}, value).Err()
}

var push = redisguard.NewScript("return redis.call('RPUSH', KEYS[1], ARGV[1])")

const patience = 20 * time.Second

// newClient returns a client that is closed with the test.
func newClient(t testing.TB, opts *redis.Options) *redis.Client {
	t.Helper()
	client := redis.NewClient(opts)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func newGuard(t testing.TB, client redisguard.Client, opts *redisguard.Options) *redisguard.Guard {
	t.Helper()
	g, err := redisguard.New(client, opts)
	require.NoError(t, err)
	return g
}

// newServer returns a Redis, and a guard on it.
func newServer(t testing.TB, opts ...lab.Option) (*lab.Redis, *redisguard.Guard) {
	t.Helper()
	server := lab.StartRedis(t, opts...)
	return server, newGuard(t, newClient(t, &redis.Options{Addr: server.Addr()}), nil)
}

// everything returns all keys of a server with their dumps: equal before and
// after if nothing was written.
func everything(t testing.TB, server *lab.Redis) map[any]any {
	t.Helper()
	all := map[any]any{}
	for _, key := range server.MustDo(t, "KEYS", "*").([]any) {
		all[key] = server.MustDo(t, "DUMP", key)
	}
	return all
}
