package redisguard_test

import (
	"errors"
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
		key, err := strconv.Unquote(advice)
		require.NoError(t, err)
		assert.Equal(t, slot(mark), slot(key), "%q", resource)
		assert.NoError(t, set(t.Context(), g, resource, 1, key, ""), "%q", resource)
	}
}

func TestKeysOutsideOfTheSlotAreRefusedAtOnce(t *testing.T) {
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	t.Cleanup(func() { _ = cluster.Close() })
	g := newGuard(t, cluster, nil)
	assert.EqualError(t, set(t.Context(), g, "orders/42", 1, "total", ""),
		`redisguard: invalid argument: "total" is not in the hash slot of the mark of "orders/42", `+
			`so that a Cluster cannot write both in one step: put {orders/42} into the key, as in `+
			`"{orders/42}:total"`)
	assert.ErrorIs(t, g.Run(t.Context(), "r", 1, push, []string{"{r}:a", "{x}{r}"}).Err(), locker.ErrInvalid)
}

func TestMarksAreWrittenByTheGuardAlone(t *testing.T) {
	server := lab.StartRedis(t)
	g := newGuard(t, newClient(t, &redis.Options{Addr: server.Addr()}), nil)
	for _, other := range []string{"{t}a", "{t}b"} { // its own mark, and one that shares its hash slot
		mark, err := g.MarkKey(other)
		require.NoError(t, err)
		assert.ErrorIs(t, set(t.Context(), g, "{t}a", 5, mark, "1"), locker.ErrInvalid)
	}
	require.NoError(t, set(t.Context(), g, "night job", 7, "report", "x"), "outside of the mark's slot")
	guardtest.Stale(t, set(t.Context(), g, "night job", 6, "report:2", "y"), "night job", 6, 7)
	assert.Equal(t, int64(1), server.MustDo(t, "EXISTS", "report", "report:2"))
}

func TestBadArgumentsAreFoundAtOnce(t *testing.T) {
	client := nowhere(t)
	g := newGuard(t, client, nil)
	assert.ErrorIs(t, set(t.Context(), g, "k", 0, "k", ""), fencing.ErrMissing)
	assert.ErrorIs(t, g.Run(t.Context(), "k", 1, nil, nil).Err(), locker.ErrInvalid)

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
	} {
		g, err := redisguard.New(try.client, &try.opts)
		assert.ErrorIs(t, err, locker.ErrInvalid, what)
		assert.Nil(t, g, what)
	}
}

// run runs a body as the caller with token 5 of resource r.
func run(t *testing.T, g *redisguard.Guard, body string, keys []string, args ...any) *redis.Cmd {
	t.Helper()
	return g.Run(t.Context(), "r", 5, redisguard.NewScript(body), keys, args...)
}

func TestScriptSeesItsOwnKeysAndArguments(t *testing.T) {
	_, g := newServer(t)
	const body = "return {#KEYS, #ARGV, KEYS[1] or '', KEYS[2] or '', ARGV[1] or '', ARGV[2] or ''}"
	got, err := run(t, g, body, []string{"{r}a", "{r}b"}, "x", 7).Slice()
	require.NoError(t, err)
	assert.Equal(t, []any{int64(2), int64(2), "{r}a", "{r}b", "x", "7"}, got)
	got, err = run(t, g, body, nil).Slice()
	require.NoError(t, err)
	assert.Equal(t, []any{int64(0), int64(0), "", "", "", ""}, got)

	keys, args := append(make([]string, 0, 9), "{r}a"), append(make([]any, 0, 9), "x")
	require.NoError(t, run(t, g, body, keys, args...).Err())
	assert.Equal(t, make([]string, 8), keys[1:9], "the caller's own memory")
	assert.Equal(t, make([]any, 8), args[1:9], "the caller's own memory")
}

func TestBodiesOfAllKindsCanFollow(t *testing.T) {
	server, g := newServer(t)
	for body, want := range map[string]any{
		"return 1":                      int64(1),
		"return 1 -- the end":           int64(1),
		"(function() end)() return 'x'": "x",
		"local lower, mark, token, keep, seen, isToken = 1 return lower":              int64(1),
		"if true then return {1, 'a'} end":                                            []any{int64(1), "a"},
		"#!lua\nreturn 7":                                                             int64(7),
		"-- the whole body is a comment\n\nreturn redis.call('GET', 'fencing:1:{r}')": "5",
	} {
		got, err := run(t, g, body, nil).Result()
		require.NoError(t, err, body)
		assert.Equal(t, want, got, body)
	}
	for _, body := range []string{"", "-- nothing", "#!lua", "return nil"} {
		assert.Equal(t, redis.Nil, run(t, g, body, nil).Err(), body)
	}
	assert.Equal(t, "5", server.MustDo(t, "GET", "fencing:1:{r}"))
	assert.ErrorContains(t, run(t, g, "return mark", nil).Err(), "nonexistent global variable",
		"the prelude leaves nothing behind")
}

// What the package comment says of scripts that fail: what was written stays,
// so the mark has to, or a lower token could write over it.
func TestNoLowerTokenAfterAScriptThatFailed(t *testing.T) {
	for what, tail := range map[string]string{
		"raises":           "error('my own trouble')",
		"raises a table":   "error({err='MINE my own trouble'})",
		"returns an error": "return redis.error_reply('MINE my own trouble')",
		"is refused":       "return redis.call('INCR', KEYS[1])",
	} {
		t.Run(what, func(t *testing.T) {
			server, g := newServer(t)
			server.MustDo(t, "SET", "{r}:x", "old")
			err := run(t, g, "redis.call('SET', KEYS[1], 'half') "+tail, []string{"{r}:x"}).Err()
			require.Error(t, err)
			var own redis.Error
			assert.ErrorAs(t, err, &own)
			assert.NotErrorIs(t, err, locker.ErrUnavailable)
			assert.Equal(t, "half", server.MustDo(t, "GET", "{r}:x"), "Redis does not roll back")
			assert.Equal(t, "5", server.MustDo(t, "GET", "fencing:1:{r}"))
			guardtest.Stale(t, set(t.Context(), g, "r", 4, "{r}:x", "lower"), "r", 4, 5)
			assert.NoError(t, set(t.Context(), g, "r", 5, "{r}:x", "whole"))
		})
	}
}

func TestAScriptThatCannotRunMovesNothing(t *testing.T) {
	server, g := newServer(t)
	for body, want := range map[string]string{"this is no Lua": "compiling script",
		"#!lua flags=no-writes\nreturn 1": "Write commands are not allowed"} {
		err := run(t, g, body, nil).Err()
		assert.ErrorContains(t, err, want)
		assert.NotErrorIs(t, err, locker.ErrUnavailable)
		assert.Empty(t, everything(t, server))
	}
	assert.ErrorIs(t, set(t.Context(), g, "k", 1, "k", struct{}{}), locker.ErrInvalid)
}

// Another driver, or a pipeline, with the text alone.
func TestPreludeBeforeAScriptOfOnesOwn(t *testing.T) {
	server, g := newServer(t)
	mark, err := g.MarkKey("r")
	require.NoError(t, err)
	client := newClient(t, &redis.Options{Addr: server.Addr()})
	text := redisguard.Prelude() + "return redis.call('SET', KEYS[1], ARGV[1])"
	eval := func(token fencing.Token, args ...any) error {
		pipe := client.Pipeline()
		cmd := pipe.Eval(t.Context(), text, []string{"{r}:x", mark}, args...)
		_, _ = pipe.Exec(t.Context())
		return redisguard.Refusal("r", token, cmd.Err())
	}
	require.NoError(t, eval(7, "v", 60_000, 7))
	assert.Equal(t, "v", server.MustDo(t, "GET", "{r}:x"))
	assert.InDelta(t, 60_000, server.MustDo(t, "PTTL", mark), 10_000)
	const high = 1<<63 + 9
	require.NoError(t, eval(high, "w", 60_000, uint64(high)))

	before := everything(t, server)
	for what, args := range map[string][]any{
		"no arguments": {}, "no time": {7}, "no token": {"v", 60_000, ""}, "zero": {"v", 60_000, 0},
		"negative": {"v", 60_000, -1}, "a float": {"v", 60_000, "1e9"}, "a zero before": {"v", 60_000, "09"},
		"too high":      {"v", 60_000, "18446744073709551616"},
		"much too high": {"v", 60_000, "100000000000000000000"}, "a time that is none": {"v", "a day", 9},
		"a negative time": {"v", -1, 9}, "no time at all": {"v", 0, 9},
	} {
		require.ErrorIs(t, eval(1, args...), fencing.ErrMissing, what)
	}
	err = client.Eval(t.Context(), text, nil, "v", 60_000, 9).Err()
	require.ErrorContains(t, err, "FENCEMISSING ", "no mark")
	guardtest.Stale(t, eval(high-1, "v", 60_000, uint64(high-1)), "r", high-1, high)
	assert.Equal(t, before, everything(t, server))

	other := errors.New("FENCESTALE 7 of somebody else")
	assert.Same(t, other, redisguard.Refusal("r", 1, other))
}

func TestScriptsAreSentByNameAndAgainWhenForgotten(t *testing.T) {
	server, g := newServer(t)
	incr := redisguard.NewScript("return redis.call('INCR', KEYS[1])")
	for i, want := range [][2]int64{{1, 1}, {1, 0}, {1, 1}} { // evalsha, eval
		if i == 2 {
			server.MustDo(t, "SCRIPT", "FLUSH")
		}
		before := server.Commands(t)
		n, err := g.Run(t.Context(), "n", 1, incr, []string{"n"}).Int64()
		require.NoError(t, err)
		assert.EqualValues(t, i+1, n, "the body ran once")
		sent := server.Commands(t).Since(before)
		assert.Equal(t, want, [2]int64{sent["evalsha"], sent["eval"]})
	}
}
