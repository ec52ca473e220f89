package single

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/redisnode"
)

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
	state, err := on(node).renew(t.Context(), keys("n", "holder"), false, ttl, nil)
	require.NoError(t, err)
	assert.Equal(t, mine, state)
	_, err = on(node).release(t.Context(), keys("given", "me"), false, time.Minute)
	assert.NoError(t, err)
	assert.Equal(t, int64(0), server.MustDo(t, "EXISTS", redisnode.LockKey("given")), "a ghost")
	_, err = on(node).release(t.Context(), keys("given", "never there"), false, time.Minute)
	assert.ErrorContains(t, err, "OOM", "the note that it is void has to be tried again")
	_, err = on(node).acquire(t.Context(), keys("free", "me"), once)
	assert.False(t, asError(t, err).Unknown)
	server.MustDo(t, "CONFIG", "SET", "maxmemory", 0)
	_, err = on(node).release(t.Context(), keys("given", "never there"), false, time.Minute)
	assert.NoError(t, err)
}
