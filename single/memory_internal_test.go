package single

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/redisnode"
)

// With full memory and noeviction, held is held, leases live, and what is given up goes at once, or is kept. A lock
// that could not be renewed would be lost.
func TestFullMemory(t *testing.T) {
	eachKind(t, func(t *testing.T, shared bool) {
		server, node := setUp(t)
		s, ask := on(node), request{ttl: ttl, shared: shared}
		for _, name := range []string{"n", "given", "kept", "broken"} {
			acquire(t, node, name, "a:", ask)
			if shared {
				acquire(t, node, name, "b:", ask)
			}
		}
		server.MustDo(t, "SET", redisnode.LockKey("given")+":wait", "", "PX", 60_000)
		load(t, node)
		_, err := s.keep(t.Context(), keys("broken", "a:"), shared, time.Minute, 0)
		require.NoError(t, err)
		st, err := node.Inspect(t.Context(), "broken")
		require.NoError(t, err)
		server.MustDo(t, "CONFIG", "SET", "maxmemory", 1)

		a := acquire(t, node, "n", "other:", waiting)
		assert.False(t, a.granted)
		assert.Positive(t, a.left)
		_, err = s.acquire(t.Context(), keys("free", "a:"), ask)
		assert.False(t, asError(t, err).Unknown)
		state, err := s.renew(t.Context(), keys("n", "a:"), shared, 2*ttl)
		require.NoError(t, err)
		assert.Equal(t, mine, state)
		assert.Greater(t, server.TTL(t, redisnode.LockKey("n")), ttl+ttl/2)
		for _, value := range []string{"b:", "a:"} {
			_, err = s.release(t.Context(), keys("given", value), shared, time.Minute)
			assert.Equal(t, value == "b:" && !shared, err != nil, "of what is not there, the note has to be tried again")
		}
		assert.Equal(t, int64(0), server.MustDo(t, "EXISTS", redisnode.LockKey("given")), "a ghost")
		state, err = s.keep(t.Context(), keys("kept", "a:"), shared, time.Minute, 0)
		require.NoError(t, err)
		assert.Equal(t, mine, state)
		require.NoError(t, node.Break(t.Context(), st))
		assert.Equal(t, int64(0), server.MustDo(t, "EXISTS", redisnode.LockKey("broken")))

		server.MustDo(t, "CONFIG", "SET", "maxmemory", 0)
		_, err = s.release(t.Context(), keys("given", "never there"), shared, time.Minute)
		require.NoError(t, err)
		assert.True(t, acquire(t, node, "given", "a:", ask).void)
		assert.True(t, acquire(t, node, "broken", "a:", ask).void, "a copy of the request of whoever was broken")
		state, err = s.renew(t.Context(), keys("kept", "a:"), shared, ttl)
		require.NoError(t, err)
		assert.NotEqual(t, mine, state)
		assert.False(t, acquire(t, node, "kept", "other:", once).granted)
	})
}

// What stands in the way of the next one does not keep the holder from letting go.
func TestAPassThatIsRefusedIsARelease(t *testing.T) {
	server, node := setUp(t)
	acquire(t, node, "n", "a:", once)
	load(t, node)
	pass(t, node, "nobody", "b", false) // the server knows the script
	server.MustDo(t, "CONFIG", "SET", "maxmemory", 1)
	h := passing{on(node).hold(keys("n", "a:"), false)}
	g, err := h.Pass(t.Context(), driver.Request{Name: "n", Owner: "b", TTL: ttl}, true)
	require.NoError(t, err)
	assert.Zero(t, g)
	assert.Equal(t, int64(0), server.MustDo(t, "EXISTS", redisnode.LockKey("n")))
}
