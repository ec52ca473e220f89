package single

import (
	"fmt"
	"reflect"
	"strconv"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/redisnode"
)

// A program with many Backends has the texts once.
func TestBackendsShareTheTextsOfTheirScripts(t *testing.T) {
	one, other := reflect.ValueOf(newScripts("PUBLISH", "me")), reflect.ValueOf(newScripts("SPUBLISH", "you"))
	for i := range one.NumField() {
		text := func(scripts reflect.Value) *byte {
			return unsafe.StringData((*redisnode.Script)(scripts.Field(i).UnsafePointer()).Text())
		}
		assert.Same(t, text(one), text(other), one.Type().Field(i).Name)
	}
}

func TestCallersShareScriptCalls(t *testing.T) {
	const n = 200
	server, node := setUp(t)
	load(t, node)
	answers := make([]answer, n)
	ask := func(i int, value string) (answer, error) {
		return on(node).acquire(t.Context(), keys(strconv.Itoa(i), value), request{ttl: ttl, waiting: i%2 == 0})
	}
	owner := func(i int) string { return fmt.Sprint("owner ", i) }
	calls := server.AllAtOnce(t, n, func(i int) {
		var err error
		answers[i], err = ask(i, owner(i))
		assert.NoError(t, err)
	})
	assert.Less(t, calls, n/4, "script calls for 200 locks")
	for i, a := range answers {
		assert.True(t, a.granted)
		key := redisnode.LockKey(strconv.Itoa(i))
		v := redisnode.ReadValue(server.MustDo(t, "GET", key).(string))
		assert.Equal(t, owner(i), v.Owner)
		assert.Equal(t, a.token, v.Digits, "the token of another")
		assert.InDelta(t, ttl, server.TTL(t, key), float64(ttl)/2)
		assert.Equal(t, int64(0), server.MustDo(t, "EXISTS", key+":wait"), "nobody was refused")
	}
	// The same once more: all are the callers' own. By others: all are held.
	server.AllAtOnce(t, n, func(i int) {
		a, err := ask(i, owner(i))
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
		assert.Equal(t, int64(1-i%2), server.MustDo(t, "EXISTS", redisnode.LockKey(strconv.Itoa(i))+":wait"),
			"noted only for who waits")
	}
	calls = server.AllAtOnce(t, n, func(i int) {
		name, value, want := strconv.Itoa(i), owner(i), mine
		switch i % 4 {
		case 1:
			value, want = "owner", theirs
		case 2:
			name, want = name+" gone", gone
		}
		state, err := on(node).release(t.Context(), keys(name, value), false, 0)
		assert.NoError(t, err)
		assert.Equal(t, want, state)
	})
	assert.Less(t, calls, n/4)
	for i := range n {
		there := int64(0)
		if i%4 == 1 || i%4 == 2 {
			there = 1
		}
		assert.Equal(t, there, server.MustDo(t, "EXISTS", redisnode.LockKey(strconv.Itoa(i))), i)
	}
}

func TestOneOfManyDoesNotSpoilItForTheOthers(t *testing.T) {
	server, node := setUp(t)
	load(t, node)
	release(t, node, "void", "me", false, time.Minute)
	server.MustDo(t, "RPUSH", redisnode.LockKey("foreign"), "a list")
	acquire(t, node, "held", "another", once)
	names := []string{"void", "foreign", "held"}
	for range 100 {
		names = append(names, strconv.Itoa(len(names)))
	}
	var mu sync.Mutex
	answers, errs := map[string]answer{}, map[string]error{}
	server.AllAtOnce(t, len(names), func(i int) {
		a, err := on(node).acquire(t.Context(), keys(names[i], "me"), once)
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
			server.MustDo(t, "SET", redisnode.LockKey(strconv.Itoa(round)), "turn "+node.me)
		}
		server.AllAtOnce(t, 16, func(i int) {
			value := strconv.Itoa(i / 2) // each asks twice, as a driver might
			a, err := on(node).acquire(t.Context(), keys(strconv.Itoa(round), value), waiting)
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
		key := redisnode.LockKey(strconv.Itoa(round))
		for token, value := range granted {
			v := redisnode.ReadValue(server.MustDo(t, "GET", key).(string))
			assert.Equal(t, value, v.Owner)
			assert.Equal(t, token, v.Digits)
		}
		assert.Equal(t, int64(1), server.MustDo(t, "EXISTS", key+":wait"))
	}
}
