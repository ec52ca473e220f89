package single

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/redisconn"
)

func TestOnlyTheWholeValueReleasesOrRenews(t *testing.T) {
	server, node := setUp(t)
	key := redisconn.LockKey("n")
	acquire(t, node, "n", "ab", once)
	for _, value := range []string{"abc", "a", "", "AB"} {
		state, err := node.server.release(t.Context(), keys("n", value), 0)
		require.NoError(t, err)
		assert.Equal(t, redisconn.Theirs, state, "%q", value)
		state, err = node.server.renew(t.Context(), keys("n", value), time.Hour, nil)
		require.NoError(t, err)
		assert.Equal(t, redisconn.Theirs, state, "%q", value)
	}
	assert.Equal(t, "ab", owned(t, server, "n"))
	assert.LessOrEqual(t, server.TTL(t, key), ttl)

	state, err := node.server.renew(t.Context(), keys("n", "ab"), time.Hour, nil)
	require.NoError(t, err)
	assert.Equal(t, redisconn.Mine, state)
	assert.Greater(t, server.TTL(t, key), ttl)

	state, err = node.server.release(t.Context(), keys("n", "ab"), 0)
	require.NoError(t, err)
	assert.Equal(t, redisconn.Mine, state)
	assert.Equal(t, int64(0), server.MustDo(t, "EXISTS", key))
}

func TestAKeyThatIsGoneIsNeitherReleasedNorRenewed(t *testing.T) {
	server, node := setUp(t)
	state, err := node.server.release(t.Context(), keys("n", "me"), 0)
	require.NoError(t, err)
	assert.Equal(t, redisconn.Gone, state)
	state, err = node.server.renew(t.Context(), keys("n", "me"), ttl, nil)
	require.NoError(t, err)
	assert.Equal(t, redisconn.Gone, state)
	assert.Equal(t, int64(0), server.MustDo(t, "EXISTS", redisconn.LockKey("n")),
		"R12: a renewal must not take the lock again")
}

func TestReleasePublishesOnlyWhereSomebodyWaits(t *testing.T) {
	server, node := setUp(t)
	cycle := func(wait bool) int {
		t.Helper()
		before := server.Commands(t)
		acquire(t, node, "n", "holder", once)
		acquire(t, node, "n", "me", request{ttl: ttl, waiting: wait})
		state, err := node.server.release(t.Context(), keys("n", "holder"), 0)
		require.NoError(t, err)
		require.Equal(t, redisconn.Mine, state)
		return int(server.Commands(t).Since(before).ByName["publish"])
	}
	assert.Equal(t, 0, cycle(false))
	assert.Equal(t, 1, cycle(true))
	assert.Equal(t, 0, cycle(false), "the note of the last wait is gone with its message")
}

func TestTakeBackMakesTheValueVoid(t *testing.T) {
	server, node := setUp(t)
	state, err := node.server.release(t.Context(), keys("n", "me"), time.Minute)
	require.NoError(t, err)
	assert.Equal(t, redisconn.Gone, state)
	a := acquire(t, node, "n", "me", once)
	assert.Equal(t, answer{void: true}, a, "a request that was under way has arrived after it was "+
		"taken back")
	assert.Equal(t, int64(0), server.MustDo(t, "EXISTS", redisconn.LockKey("n")))
	assert.InDelta(t, time.Minute, server.TTL(t, redisconn.LockKey("n")+":void:me"), float64(soon))

	require.True(t, acquire(t, node, "n", "m", once).granted, "it is void for that one value only")
	state, err = node.server.release(t.Context(), keys("n", "me"), time.Minute)
	require.NoError(t, err)
	assert.Equal(t, redisconn.Theirs, state)
	assert.Equal(t, "m", owned(t, server, "n"))

	state, err = node.server.release(t.Context(), keys("n", "m"), time.Minute)
	require.NoError(t, err)
	assert.Equal(t, redisconn.Mine, state)
	assert.True(t, acquire(t, node, "n", "m", once).void,
		"a copy of the request that was granted may be under way as well")
}

func TestInspectTellsWhatIsThereAndChangesNothing(t *testing.T) {
	server, node := setUp(t)
	inspect := func() redisconn.Status {
		t.Helper()
		s, err := node.server.inspect(t.Context(), "n")
		require.NoError(t, err)
		return s.Status
	}
	assert.Equal(t, redisconn.Status{}, inspect())
	assert.Equal(t, int64(0), server.MustDo(t, "DBSIZE"))

	a := acquire(t, node, "n", "me:label", once)
	s := inspect()
	assert.InDelta(t, ttl, s.Left, float64(soon))
	s.Left = 0
	assert.Equal(t, redisconn.Status{Held: true, Value: "me:label", Token: a.token}, s)

	acquire(t, node, "n", "you", waiting)
	assert.True(t, inspect().Waited)

	_, err := node.server.release(t.Context(), keys("n", "me:label"), 0)
	require.NoError(t, err)
	assert.Equal(t, redisconn.Status{}, inspect())

	server.MustDo(t, "SET", redisconn.LockKey("n"), "")
	assert.Equal(t, redisconn.Status{Held: true, Left: -time.Millisecond}, inspect())
	server.MustDo(t, "DEL", redisconn.LockKey("n"))
	server.MustDo(t, "SADD", redisconn.LockKey("n"), "x")
	assert.Equal(t, redisconn.Status{Foreign: true, Left: -time.Millisecond}, inspect())
}

// With full memory and noeviction, held is held, leases live, and what is given
// up goes at once.
func TestFullMemory(t *testing.T) {
	server, node := setUp(t)
	acquire(t, node, "n", "holder", once)
	acquire(t, node, "given", "me", once)
	load(t, node)
	server.MustDo(t, "CONFIG", "SET", "maxmemory", 1)
	a := acquire(t, node, "n", "other", waiting)
	assert.False(t, a.granted)
	assert.Positive(t, a.left)
	state, err := node.server.renew(t.Context(), keys("n", "holder"), ttl, nil)
	require.NoError(t, err)
	assert.Equal(t, redisconn.Mine, state)
	_, err = node.server.release(t.Context(), keys("given", "me"), time.Minute)
	assert.NoError(t, err)
	assert.Equal(t, int64(0), server.MustDo(t, "EXISTS", redisconn.LockKey("given")), "a ghost")
	_, err = node.server.release(t.Context(), keys("given", "never there"), time.Minute)
	assert.ErrorContains(t, err, "OOM", "the note that it is void has to be tried again")
	_, err = node.server.acquire(t.Context(), keys("free", "me"), once)
	assert.False(t, asError(t, err).Unknown)
	server.MustDo(t, "CONFIG", "SET", "maxmemory", 0)
	_, err = node.server.release(t.Context(), keys("given", "never there"), time.Minute)
	assert.NoError(t, err)
}
