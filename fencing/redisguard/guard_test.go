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
		"Raise": func(ctx context.Context, token fencing.Token) error { return g.Raise(ctx, "r", token) },
		"Run": func(ctx context.Context, token fencing.Token) error {
			return g.Run(ctx, "r", token, push, []string{"{r}:x"}, token.String()).Err()
		},
	}
}

// Lua's own numbers lose the ones above 2⁵³.
func TestTokensAreComparedExactly(t *testing.T) {
	_, g := newServer(t)
	for range 300 {
		a, b := fencing.Token(rand.Uint64()>>rand.IntN(64)|1), fencing.Token(rand.Uint64()>>rand.IntN(64)|1)
		resource := fmt.Sprint(a, b)
		require.NoError(t, set(t.Context(), g, resource, a, resource, ""))
		err := set(t.Context(), g, resource, b, resource, "")
		if b < a {
			guardtest.Stale(t, err, resource, b, a)
		} else {
			assert.NoError(t, err, "%d after %d", b, a)
		}
	}
}

func TestMarkIsKeptAfterItsLastUse(t *testing.T) {
	server, g := newServer(t)
	require.NoError(t, set(t.Context(), g, "k", 1, "k", ""))
	key, err := g.MarkKey("k")
	require.NoError(t, err)
	thirtyDays := 30 * 24 * time.Hour.Milliseconds()
	assert.InDelta(t, thirtyDays, server.MustDo(t, "PTTL", key), 60_000)
	server.MustDo(t, "PEXPIRE", key, 60_000)
	require.NoError(t, set(t.Context(), g, "k", 1, "k", ""))
	assert.InDelta(t, thirtyDays, server.MustDo(t, "PTTL", key), 60_000, "an equal token is a use")
	server.MustDo(t, "PEXPIRE", key, 60_000)
	require.ErrorIs(t, g.Run(t.Context(), "k", 0, push, nil).Err(), fencing.ErrMissing)
	require.ErrorIs(t, set(t.Context(), newGuard(t, newClient(t, &redis.Options{Addr: server.Addr()}), nil),
		"other", 1, "{k}", ""), locker.ErrInvalid)
	assert.LessOrEqual(t, server.MustDo(t, "PTTL", key), int64(60_000), "what is refused is none")

	client := newClient(t, &redis.Options{Addr: server.Addr()})
	forEver := newGuard(t, client, &redisguard.Options{Keep: redisguard.ForEver})
	require.NoError(t, set(t.Context(), forEver, "k", 2, "k", ""))
	assert.Equal(t, int64(-1), server.MustDo(t, "PTTL", key))

	short := newGuard(t, client, &redisguard.Options{Keep: time.Second, Prefix: "short"})
	require.NoError(t, set(t.Context(), short, "k", 9, "k", ""))
	require.ErrorIs(t, set(t.Context(), short, "k", 8, "k", ""), fencing.ErrStale)
	assert.Eventually(t, func() bool { return mustMark(t, short, "k") == 0 }, patience, 10*time.Millisecond)
	assert.NoError(t, set(t.Context(), short, "k", 1, "k", ""))
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
