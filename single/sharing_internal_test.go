package single

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/internal/redisnode"
)

// What is special to sharers in Redis. The rest is in the suite and in TestSearch.

var together = request{ttl: ttl, shared: true}

func share(t *testing.T, node *Backend, name, value string) answer {
	t.Helper()
	return acquire(t, node, name, value, together)
}

// shareAndLeave uses all the commands that there are for sharers.
func shareAndLeave(t *testing.T, node *Backend, name string) {
	t.Helper()
	for range 2 {
		require.True(t, share(t, node, name, "a:").granted)
		require.True(t, share(t, node, name, "b:").granted)
	}
	lab.Again(t, func() bool { // while the note of the writer lasts: a second
		require.True(t, acquire(t, node, name, "c:", waiting).sharers)
		granted := share(t, node, name, "d:").granted
		if granted {
			release(t, node, name, "d:", true, 0)
		}
		return !granted
	})
	st, err := node.inspect(t.Context(), name)
	require.NoError(t, err)
	require.True(t, st.Held)
	state, err := on(node).renew(t.Context(), keys(name, "a:"), true, ttl)
	require.NoError(t, err)
	require.Equal(t, mine, state)
	for value, want := range map[string]whose{"a:": mine, "b:": mine,
		"c:": gone} {
		require.Equal(t, want, release(t, node, name, value, true, 0))
	}
}

func TestSharersOfOneNameShareScriptCalls(t *testing.T) {
	const n = 200
	server, node := setUp(t)
	shareAndLeave(t, node, "load")
	var tokens sync.Map
	calls := server.AllAtOnce(t, n, func(i int) {
		a, err := on(node).acquire(t.Context(), keys("n", fmt.Sprint(i, ":")), together)
		assert.NoError(t, err)
		assert.True(t, a.granted)
		tokens.Store(a.token, true)
	})
	assert.Less(t, calls, n/4, "script calls for 200 sharers")
	many := 0
	tokens.Range(func(any, any) bool { many++; return true })
	assert.Equal(t, 1, many, "tokens of those who hold together")
	lab.Again(t, func() bool { // on a busy machine a copy is sent
		before := server.Commands(t)
		st, err := node.Inspect(t.Context(), "n")
		require.NoError(t, err)
		assert.Equal(t, n, st.Sharers)
		return server.Commands(t).Since(before)["evalsha"] == 1 // who shares it is read together with the lock
	})
	calls = server.AllAtOnce(t, n, func(i int) {
		state, err := on(node).renew(t.Context(), keys("n", fmt.Sprint(i, ":")), true, ttl)
		assert.NoError(t, err)
		assert.Equal(t, mine, state)
	})
	assert.Less(t, calls, n/4, "script calls for 200 renewals")
	calls = server.AllAtOnce(t, n, func(i int) {
		state, err := on(node).release(t.Context(), keys("n", fmt.Sprint(i, ":")), true, 0)
		assert.NoError(t, err)
		assert.Equal(t, mine, state)
	})
	assert.Less(t, calls, n/4, "script calls for 200 releases")
	assert.Equal(t, int64(1), server.MustDo(t, "DBSIZE"), "the counter alone")
}

func TestNoMoreSharersThanThereMayBe(t *testing.T) {
	server, node := setUp(t)
	key := redisnode.LockKey("n")
	locktest.MaxSharers(t, node, func() {
		// One whose time is over makes room, although nobody has looked since.
		server.MustDo(t, "ZADD", key+":shared", "XX", 1, fmt.Sprintf("%040x:", 7))
		locktest.Acquire(t, node, driver.Request{Name: "n", Owner: "another", TTL: ttl, Shared: true})
		st, err := locktest.Break(t.Context(), node, "n")
		require.NoError(t, err)
		assert.Equal(t, driver.MaxSharers, st.Sharers)
		assert.Equal(t, int64(0), server.MustDo(t, "EXISTS", key, key+":shared"))
	})
}

// A note says when it ends by the server's clock, which may be set back.
func TestANoteFromTheFutureKeepsNobodyOut(t *testing.T) {
	server, node := setUp(t)
	token := share(t, node, "n", "a:").token
	note := func(in time.Duration) {
		server.MustDo(t, "SET", redisnode.LockKey("n"), fmt.Sprintf("shared %016d %d writer", token,
			time.Now().Add(in).UnixMilli()), "KEEPTTL")
	}
	note(time.Hour)
	assert.True(t, share(t, node, "n", "b:").granted)
	lab.Again(t, func() bool { // on a busy machine it may have ended by then
		note(500 * time.Millisecond)
		a := share(t, node, "n", "c:")
		if a.granted {
			release(t, node, "n", "c:", true, 0)
			return false
		}
		assert.LessOrEqual(t, a.left, 500*time.Millisecond)
		return true
	})
	require.Eventually(t, func() bool { return share(t, node, "n", "c:").granted }, soon, time.Millisecond)
}

// Who deletes a lock's key knows nothing of the set beside it.
func TestSharersWhoseKeyIsDeletedDoNotComeBack(t *testing.T) {
	server, node := setUp(t)
	old := share(t, node, "n", "a:")
	server.MustDo(t, "DEL", redisnode.LockKey("n"))
	next := share(t, node, "n", "b:")
	assert.Greater(t, next.token, old.token)
	state, err := on(node).renew(t.Context(), keys("n", "a:"), true, ttl)
	require.NoError(t, err)
	assert.Equal(t, gone, state)
	assert.Equal(t, gone, release(t, node, "n", "a:", true, 0))
	assert.False(t, acquire(t, node, "n", "w:", once).granted)
	release(t, node, "n", "b:", true, 0)
	assert.True(t, acquire(t, node, "n", "w:", once).granted)
}

// Owners that look like what stands in a lock's key are owners, of either kind.
func TestNoOwnerIsTakenForSharers(t *testing.T) {
	server, node := setUp(t)
	token := share(t, node, "n", "a:").token
	acquire(t, node, "n", "w:", waiting)
	value := server.MustDo(t, "GET", redisnode.LockKey("n")).(string)
	most := strings.TrimSuffix(value, ":")
	for _, crafted := range []string{most, most[17:], fmt.Sprintf("shared %016d", token),
		"shared 1 x", "a", "w"} {
		req := driver.Request{Name: "n", Owner: crafted, TTL: ttl}
		_, err := locktest.Ask(t.Context(), node, req)
		require.ErrorIs(t, err, driver.ErrHeld, crafted)
		assert.Equal(t, theirs, release(t, node, "n", crafted+":", false, 0), crafted)
	}
	assert.Equal(t, value, server.MustDo(t, "GET", redisnode.LockKey("n")))
	for i, crafted := range []string{"shared 0000000000000001", "shared 0000000000000001 1 x", "turn abcd"} {
		name := strconv.Itoa(i)
		g := locktest.Acquire(t, node, driver.Request{Name: name, Owner: crafted, TTL: ttl})
		assert.False(t, share(t, node, name, "a:").granted)
		require.NoError(t, g.Hold.Release(t.Context(), 0))
	}
}

// A break whose first answer is lost is sent again, and removes nobody who came between the two copies.
func TestACopyOfABreakFindsNobody(t *testing.T) {
	for _, shared := range []bool{true, false} {
		server, direct := setUp(t)
		proxy := lab.StartProxy(t, server.Addr())
		client := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
		node, err := New(client, nil)
		require.NoError(t, err)
		t.Cleanup(func() { _, _ = node.Close(), client.Close() })
		acquire(t, direct, "warm", "w:", request{ttl: ttl, shared: shared})
		_, err = locktest.Break(t.Context(), node, "warm") // from here on the server knows the scripts
		require.NoError(t, err)
		first := acquire(t, direct, "n", "a:", request{ttl: ttl, shared: shared})
		pattern := fmt.Sprintf("%016d", first.token) // of dissolve.lua
		if !shared {
			pattern = "a:"
		}
		proxy.OnRequest(pattern, func(l *lab.Link) {
			l.CutOnReply()
			proxy.OnRequest(pattern, func(*lab.Link) {
				a, err := on(direct).acquire(t.Context(), keys("n", "b:"), request{ttl: ttl})
				assert.NoError(t, err)
				assert.True(t, a.granted)
			})
		})
		st, err := locktest.Break(t.Context(), node, "n")
		require.NoError(t, err)
		assert.True(t, st.Held, "it was broken")
		st, err = direct.Inspect(t.Context(), "n")
		require.NoError(t, err)
		assert.True(t, st.Held, "who came meanwhile has it, shared: %v", shared)
		require.NoError(t, node.Break(t.Context(), driver.State{Name: "n"}), "nobody's")
		_, err = locktest.Break(t.Context(), direct, "n")
		require.NoError(t, err)
		assert.True(t, acquire(t, direct, "n", "a:", request{ttl: ttl, shared: shared}).void, "a copy of its acquire, late")
	}
}
