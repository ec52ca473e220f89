package single_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/redisconn"
	"github.com/golockers/locker/single"
)

func TestOnlyTheWholeValueReleasesOrRenews(t *testing.T) {
	server, node := setUp(t)
	key := redisconn.LockKey("n")
	acquire(t, node, single.Request{Name: "n", Value: "ab", TTL: ttl})
	for _, value := range []string{"abc", "a", "", "AB"} {
		state, err := node.Release(t.Context(), "n", value)
		require.NoError(t, err)
		assert.Equal(t, redisconn.Theirs, state, "%q", value)
		state, err = node.Renew(t.Context(), "n", value, time.Hour)
		require.NoError(t, err)
		assert.Equal(t, redisconn.Theirs, state, "%q", value)
	}
	assert.Equal(t, "ab", owned(t, server, "n"))
	assert.LessOrEqual(t, pttl(t, server, key), ttl)

	state, err := node.Renew(t.Context(), "n", "ab", time.Hour)
	require.NoError(t, err)
	assert.Equal(t, redisconn.Mine, state)
	assert.Greater(t, pttl(t, server, key), ttl)

	state, err = node.Release(t.Context(), "n", "ab")
	require.NoError(t, err)
	assert.Equal(t, redisconn.Mine, state)
	assert.Equal(t, int64(0), server.MustDo(t, "EXISTS", key))
}

func TestAKeyThatIsGoneIsNeitherReleasedNorRenewed(t *testing.T) {
	server, node := setUp(t)
	state, err := node.Release(t.Context(), "n", "me")
	require.NoError(t, err)
	assert.Equal(t, redisconn.Gone, state)
	state, err = node.Renew(t.Context(), "n", "me", ttl)
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
		acquire(t, node, single.Request{Name: "n", Value: "holder", TTL: ttl})
		acquire(t, node, single.Request{Name: "n", Value: "me", TTL: ttl, Waiting: wait})
		state, err := node.Release(t.Context(), "n", "holder")
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
	r := single.Request{Name: "n", Value: "me", TTL: ttl}

	state, err := node.TakeBack(t.Context(), "n", "me", time.Minute)
	require.NoError(t, err)
	assert.Equal(t, redisconn.Gone, state)
	a := acquire(t, node, r)
	assert.Equal(t, single.Answer{Void: true}, a, "a request that was under way has arrived after it was "+
		"taken back")
	assert.Equal(t, int64(0), server.MustDo(t, "EXISTS", redisconn.LockKey("n")))
	assert.InDelta(t, time.Minute, pttl(t, server, redisconn.LockKey("n")+":void:me"), float64(soon))

	other := r
	other.Value = "m"
	require.True(t, acquire(t, node, other).Granted, "it is void for that one value only")
	state, err = node.TakeBack(t.Context(), "n", "me", time.Minute)
	require.NoError(t, err)
	assert.Equal(t, redisconn.Theirs, state)
	assert.Equal(t, "m", owned(t, server, "n"))

	state, err = node.TakeBack(t.Context(), "n", "m", time.Minute)
	require.NoError(t, err)
	assert.Equal(t, redisconn.Mine, state)
	assert.True(t, acquire(t, node, other).Void, "a copy of the request that was granted may be under way "+
		"as well")
}

func TestInspectTellsWhatIsThereAndChangesNothing(t *testing.T) {
	server, node := setUp(t)
	inspect := func() redisconn.Status {
		t.Helper()
		s, err := node.Inspect(t.Context(), "n")
		require.NoError(t, err)
		return s
	}
	assert.Equal(t, redisconn.Status{}, inspect())
	assert.Equal(t, int64(0), server.MustDo(t, "DBSIZE"))

	a := acquire(t, node, single.Request{Name: "n", Value: "me:label", TTL: ttl})
	s := inspect()
	assert.InDelta(t, ttl, s.Left, float64(soon))
	s.Left = 0
	assert.Equal(t, redisconn.Status{Held: true, Value: "me:label", Token: a.Token}, s)

	acquire(t, node, single.Request{Name: "n", Value: "you", TTL: ttl, Waiting: true})
	assert.True(t, inspect().Waited)

	_, err := node.Release(t.Context(), "n", "me:label")
	require.NoError(t, err)
	assert.Equal(t, redisconn.Status{}, inspect())

	server.MustDo(t, "SET", redisconn.LockKey("n"), "")
	assert.Equal(t, redisconn.Status{Held: true, Left: -time.Millisecond}, inspect())
	server.MustDo(t, "DEL", redisconn.LockKey("n"))
	server.MustDo(t, "SADD", redisconn.LockKey("n"), "x")
	assert.Equal(t, redisconn.Status{Foreign: true, Left: -time.Millisecond}, inspect())
}
