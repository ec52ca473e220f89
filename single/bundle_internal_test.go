package single

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/redisconn"
)

func TestCallersShareScriptCalls(t *testing.T) {
	const n = 200
	server, node := setUp(t)
	load(t, node)
	answers := make([]answer, n)
	ask := func(i int, value string) (answer, error) {
		return node.server.acquire(t.Context(), keys(strconv.Itoa(i), value), request{ttl: ttl, waiting: i%2 == 0})
	}
	mine := func(i int) string { return fmt.Sprint("owner ", i) }
	calls := server.AllAtOnce(t, n, func(i int) {
		var err error
		answers[i], err = ask(i, mine(i))
		assert.NoError(t, err)
	})
	assert.Less(t, calls, n/4, "script calls for 200 locks")
	for i, a := range answers {
		assert.True(t, a.granted)
		key := redisconn.LockKey(strconv.Itoa(i))
		v := readValue(server.MustDo(t, "GET", key).(string))
		assert.Equal(t, mine(i), v.owner)
		assert.Equal(t, a.token, v.token, "the token of another")
		assert.InDelta(t, ttl, server.TTL(t, key), float64(ttl)/2)
		assert.Equal(t, int64(0), server.MustDo(t, "EXISTS", key+":wait"), "nobody was refused")
	}
	// The same once more: all are the callers' own. By others: all are held.
	server.AllAtOnce(t, n, func(i int) {
		a, err := ask(i, mine(i))
		assert.NoError(t, err)
		assert.True(t, a.granted && a.again, "R11")
		assert.Equal(t, answers[i].token, a.token)
	})
	server.AllAtOnce(t, n, func(i int) {
		a, err := ask(i, "another")
		assert.NoError(t, err)
		assert.False(t, a.granted)
		assert.Positive(t, a.left)
	})
	for i := range n {
		assert.Equal(t, int64(1-i%2), server.MustDo(t, "EXISTS", redisconn.LockKey(strconv.Itoa(i))+":wait"),
			"noted only for who waits")
	}
	calls = server.AllAtOnce(t, n, func(i int) {
		name, value, want := strconv.Itoa(i), mine(i), redisconn.Mine
		switch i % 4 {
		case 1:
			value, want = "owner", redisconn.Theirs
		case 2:
			name, want = name+" gone", redisconn.Gone
		}
		state, err := node.server.release(t.Context(), keys(name, value), false, 0)
		assert.NoError(t, err)
		assert.Equal(t, want, state)
	})
	assert.Less(t, calls, n/4)
	for i := range n {
		there := int64(0)
		if i%4 == 1 || i%4 == 2 {
			there = 1
		}
		assert.Equal(t, there, server.MustDo(t, "EXISTS", redisconn.LockKey(strconv.Itoa(i))), i)
	}
}

func TestOneOfManyDoesNotSpoilItForTheOthers(t *testing.T) {
	server, node := setUp(t)
	load(t, node)
	_, err := node.server.release(t.Context(), keys("void", "me"), false, time.Minute)
	require.NoError(t, err)
	server.MustDo(t, "RPUSH", redisconn.LockKey("foreign"), "a list")
	acquire(t, node, "held", "another", once)
	names := []string{"void", "foreign", "held"}
	for range 100 {
		names = append(names, strconv.Itoa(len(names)))
	}
	var mu sync.Mutex
	answers, errs := map[string]answer{}, map[string]error{}
	server.AllAtOnce(t, len(names), func(i int) {
		a, err := node.server.acquire(t.Context(), keys(names[i], "me"), once)
		mu.Lock()
		defer mu.Unlock()
		answers[names[i]], errs[names[i]] = a, err
	})
	assert.True(t, answers["void"].void)
	assert.True(t, answers["foreign"].foreign)
	assert.Positive(t, answers["held"].left)
	for _, name := range names[3:] {
		assert.NoError(t, errs[name], name)
		assert.True(t, answers[name].granted, name)
	}
}

func TestTheSameNameTwiceInOneCall(t *testing.T) {
	server, node := setUp(t)
	load(t, node)
	for round := range 20 {
		var mu sync.Mutex
		granted := map[uint64]string{}
		if round%2 == 1 { // it is this client's turn
			server.MustDo(t, "SET", redisconn.LockKey(strconv.Itoa(round)), "turn "+node.server.me)
		}
		server.AllAtOnce(t, 16, func(i int) {
			value := strconv.Itoa(i / 2) // each asks twice, as a driver might
			a, err := node.server.acquire(t.Context(), keys(strconv.Itoa(round), value), waiting)
			assert.NoError(t, err)
			assert.False(t, a.foreign)
			mu.Lock()
			defer mu.Unlock()
			if a.granted {
				granted[a.token] = value
			} else {
				assert.Positive(t, a.left)
			}
		})
		require.Len(t, granted, 1, "R11: one token for one holder")
		key := redisconn.LockKey(strconv.Itoa(round))
		for token, value := range granted {
			v := readValue(server.MustDo(t, "GET", key).(string))
			assert.Equal(t, value, v.owner)
			assert.Equal(t, token, v.token)
		}
		assert.Equal(t, int64(1), server.MustDo(t, "EXISTS", key+":wait"))
	}
}
