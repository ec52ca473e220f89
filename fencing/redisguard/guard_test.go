package redisguard_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/redisguard"
	"github.com/golockers/locker/internal/guardtest"
)

var push = redisguard.NewScript("return redis.call('RPUSH', KEYS[1], ARGV[1])")

// writers are the ways to write; each writes the key {r}:x.
func writers(g *redisguard.Guard) map[string]func(ctx context.Context, token fencing.Token) error {
	return map[string]func(context.Context, fencing.Token) error{
		"Set": func(ctx context.Context, token fencing.Token) error {
			return g.Set(ctx, "r", token, "{r}:x", "by "+token.String(), 0)
		},
		"Del": func(ctx context.Context, token fencing.Token) error {
			_, err := g.Del(ctx, "r", token, "{r}:x", "{r}:y")
			return err
		},
		"Raise": func(ctx context.Context, token fencing.Token) error { return g.Raise(ctx, "r", token) },
		"Run": func(ctx context.Context, token fencing.Token) error {
			return g.Run(ctx, "r", token, push, []string{"{r}:x"}, token).Err()
		},
	}
}

func TestLowerTokenWritesNothing(t *testing.T) {
	server, g := newServer(t)
	for name, write := range writers(g) {
		t.Run(name, func(t *testing.T) {
			server.MustDo(t, "FLUSHALL")
			require.NoError(t, write(t.Context(), 7))
			assert.Equal(t, fencing.Token(7), mustMark(t, g, "r"))
			require.NoError(t, write(t.Context(), 7), "the same holder goes on")
			require.NoError(t, write(t.Context(), 9))
			assert.Equal(t, fencing.Token(9), mustMark(t, g, "r"))
			server.MustDo(t, "DEL", "{r}:x")
			server.MustDo(t, "SET", "{r}:x", "as it was")
			key, err := g.MarkKey("r")
			require.NoError(t, err)
			server.MustDo(t, "PEXPIRE", key, 60_000)

			before := everything(t, server)
			guardtest.Stale(t, write(t.Context(), 8), "r", 8, 9)
			guardtest.Stale(t, write(t.Context(), 7), "r", 7, 9)
			assert.ErrorIs(t, write(t.Context(), 0), fencing.ErrMissing)
			assert.Equal(t, before, everything(t, server))
			assert.LessOrEqual(t, server.MustDo(t, "PTTL", key), int64(60_000),
				"a refused token is no use of the mark")
		})
	}
}

// Lua's own numbers lose the ones above 2⁵³.
func TestTokensAreComparedExactly(t *testing.T) {
	_, g := newServer(t)
	for range 300 {
		a, b := fencing.Token(rand.Uint64()>>rand.IntN(64)|1), fencing.Token(rand.Uint64()>>rand.IntN(64)|1)
		resource := fmt.Sprint(a, b)
		require.NoError(t, g.Set(t.Context(), resource, a, resource, "", 0))
		err := g.Set(t.Context(), resource, b, resource, "", 0)
		if b < a {
			guardtest.Stale(t, err, resource, b, a)
		} else {
			assert.NoError(t, err, "%d after %d", b, a)
		}
	}
}

func TestSetSetsValueAndTTL(t *testing.T) {
	server, g := newServer(t)
	require.NoError(t, g.Set(t.Context(), "k", 1, "k", 4711, time.Hour))
	assert.Equal(t, "4711", server.MustDo(t, "GET", "k"))
	assert.InDelta(t, 3_600_000, server.MustDo(t, "PTTL", "k"), 60_000)
	require.NoError(t, g.Set(t.Context(), "k", 1, "k", []byte("\x00\xff"), 0))
	assert.Equal(t, "\x00\xff", server.MustDo(t, "GET", "k"))
	assert.Equal(t, int64(-1), server.MustDo(t, "PTTL", "k"))
	require.NoError(t, g.Set(t.Context(), "k", 2, "k", "", math.MaxInt64))
	assert.InDelta(t, math.MaxInt64/1_000_000, server.MustDo(t, "PTTL", "k"), 60_000)
	// A nanosecond must not become "for ever".
	require.NoError(t, g.Set(t.Context(), "k", 2, "k", "", 1))
	assert.Eventually(t, func() bool { return server.MustDo(t, "EXISTS", "k") == int64(0) }, patience,
		time.Millisecond)
}

func TestDelCountsWhatWasThere(t *testing.T) {
	server, g := newServer(t)
	server.MustDo(t, "MSET", "{k}a", 1, "{k}b", 2)
	n, err := g.Del(t.Context(), "k", 1, "{k}a", "{k}b", "{k}c")
	require.NoError(t, err)
	assert.Equal(t, int64(2), n)
	assert.Equal(t, int64(0), server.MustDo(t, "EXISTS", "{k}a", "{k}b"))
	n, err = g.Del(t.Context(), "k", 3)
	require.NoError(t, err)
	assert.Zero(t, n)
	assert.Equal(t, fencing.Token(3), mustMark(t, g, "k"))
}

func TestMarkIsKeptAfterItsLastUse(t *testing.T) {
	server, g := newServer(t)
	require.NoError(t, g.Set(t.Context(), "k", 1, "k", "", 0))
	key, err := g.MarkKey("k")
	require.NoError(t, err)
	thirtyDays := 30 * 24 * time.Hour.Milliseconds()
	assert.InDelta(t, thirtyDays, server.MustDo(t, "PTTL", key), 60_000)
	server.MustDo(t, "PEXPIRE", key, 60_000)
	require.NoError(t, g.Set(t.Context(), "k", 1, "k", "", 0))
	assert.InDelta(t, thirtyDays, server.MustDo(t, "PTTL", key), 60_000, "an equal token is a use")

	client := newClient(t, &redis.Options{Addr: server.Addr()})
	forEver := newGuard(t, client, &redisguard.Options{Keep: redisguard.ForEver})
	require.NoError(t, forEver.Set(t.Context(), "k", 2, "k", "", 0))
	assert.Equal(t, int64(-1), server.MustDo(t, "PTTL", key))

	short := newGuard(t, client, &redisguard.Options{Keep: time.Second, Prefix: "short"})
	require.NoError(t, short.Set(t.Context(), "k", 9, "k", "", 0))
	require.ErrorIs(t, short.Set(t.Context(), "k", 8, "k", "", 0), fencing.ErrStale)
	assert.Eventually(t, func() bool { return mustMark(t, short, "k") == 0 }, patience, 10*time.Millisecond)
	assert.NoError(t, short.Set(t.Context(), "k", 1, "k", "", 0))
	assert.Equal(t, fencing.Token(2), mustMark(t, g, "k"), "another prefix, another mark")
}

func TestSomethingElseInThePlaceOfAMarkIsNeverPermission(t *testing.T) {
	server, g := newServer(t)
	key, err := g.MarkKey("r")
	require.NoError(t, err)
	for _, value := range []string{"", "0", "007", "x", "1e3", "-1", "1.5", " 1", "1\n",
		"18446744073709551616", "99999999999999999999", "100000000000000000000"} {
		server.MustDo(t, "FLUSHALL")
		server.MustDo(t, "SET", key, value)
		before := everything(t, server)
		for name, write := range writers(g) {
			err := write(t.Context(), math.MaxUint64)
			require.Error(t, err, "%s %q", name, value)
			assert.NotErrorIs(t, err, fencing.ErrStale)
			assert.NotErrorIs(t, err, locker.ErrUnavailable)
			assert.Contains(t, err.Error(), key)
		}
		_, err := g.Mark(t.Context(), "r")
		assert.ErrorContains(t, err, key)
		assert.Equal(t, before, everything(t, server), "%q", value)
	}
	server.MustDo(t, "FLUSHALL")
	server.MustDo(t, "RPUSH", key, "1")
	before := everything(t, server)
	for name, write := range writers(g) {
		assert.ErrorContains(t, write(t.Context(), 1), "WRONGTYPE", name)
	}
	assert.Equal(t, before, everything(t, server))
}
