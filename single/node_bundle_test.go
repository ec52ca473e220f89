package single_test

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/redisconn"
	"github.com/golockers/locker/single"
)

func TestCallersShareScriptCalls(t *testing.T) {
	const n = 200
	server, node := setUp(t)
	load(t, node)
	answers := make([]single.Answer, n)
	request := func(i int) single.Request {
		return single.Request{Name: strconv.Itoa(i), Value: fmt.Sprint("owner ", i), TTL: ttl, Waiting: i%2 == 0}
	}
	calls := server.AllAtOnce(t, n, func(i int) {
		var err error
		answers[i], err = node.Acquire(t.Context(), request(i))
		assert.NoError(t, err)
	})
	assert.Less(t, calls, n/4, "script calls for 200 locks")
	for i, a := range answers {
		assert.True(t, a.Granted)
		key := redisconn.LockKey(strconv.Itoa(i))
		token, owner := single.ReadValue(server.MustDo(t, "GET", key).(string))
		assert.Equal(t, fmt.Sprint("owner ", i), owner)
		assert.Equal(t, a.Token, token, "the token of another")
		left, _ := server.MustDo(t, "PTTL", key).(int64)
		assert.InDelta(t, ttl.Milliseconds(), left, float64(ttl.Milliseconds())/2)
		assert.Equal(t, int64(0), server.MustDo(t, "EXISTS", key+":wait"), "nobody was refused")
	}
	// The same once more: all are the callers' own. By others: all are held.
	server.AllAtOnce(t, n, func(i int) {
		a, err := node.Acquire(t.Context(), request(i))
		assert.NoError(t, err)
		assert.True(t, a.Granted && a.Again, "R11")
		assert.Equal(t, answers[i].Token, a.Token)
	})
	server.AllAtOnce(t, n, func(i int) {
		r := request(i)
		r.Value = "another"
		a, err := node.Acquire(t.Context(), r)
		assert.NoError(t, err)
		assert.False(t, a.Granted)
		assert.Positive(t, a.Left)
	})
	for i := range n {
		assert.Equal(t, int64(1-i%2), server.MustDo(t, "EXISTS", redisconn.LockKey(strconv.Itoa(i))+":wait"),
			"noted only for who waits")
	}
	calls = server.AllAtOnce(t, n, func(i int) {
		name, value, want := strconv.Itoa(i), fmt.Sprint("owner ", i), redisconn.Mine
		switch i % 4 {
		case 1:
			value, want = "owner", redisconn.Theirs
		case 2:
			name, want = name+" gone", redisconn.Gone
		}
		state, err := node.Release(t.Context(), name, value)
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

// Regression: an acquire had a time for replicas that it does not wait for, and a
// release had none, so the two never shared a batch: of callers who do both in turn
// most went alone.
func TestAcquiresAndReleasesShareABatch(t *testing.T) {
	const n = 200
	server := lab.StartRedis(t)
	backend, err := single.New(newClient(t, &redis.Options{Addr: server.Addr()}), nil)
	require.NoError(t, err)
	client := locker.New(backend, nil)
	t.Cleanup(func() { assert.NoError(t, errors.Join(client.Close(), backend.Close())) })
	var held [n]*locker.Lease
	for i := range held {
		if i%2 == 0 {
			held[i], err = client.Lock(t.Context(), strconv.Itoa(i))
			require.NoError(t, err)
		}
	}
	calls := server.AllAtOnce(t, n, func(i int) {
		if held[i] != nil {
			assert.NoError(t, held[i].Unlock(t.Context()))
			return
		}
		lease, err := client.Lock(t.Context(), strconv.Itoa(i))
		if assert.NoError(t, err) {
			assert.NoError(t, lease.Unlock(t.Context()))
		}
	})
	assert.Less(t, calls, n/4, "script calls for 300 requests")
}

func TestOneOfManyDoesNotSpoilItForTheOthers(t *testing.T) {
	server, node := setUp(t)
	load(t, node)
	_, err := node.TakeBack(t.Context(), "void", "me", time.Minute)
	require.NoError(t, err)
	server.MustDo(t, "RPUSH", redisconn.LockKey("foreign"), "a list")
	acquire(t, node, single.Request{Name: "held", Value: "another", TTL: ttl})
	names := []string{"void", "foreign", "held"}
	for range 100 {
		names = append(names, strconv.Itoa(len(names)))
	}
	var mu sync.Mutex
	answers, errs := map[string]single.Answer{}, map[string]error{}
	server.AllAtOnce(t, len(names), func(i int) {
		a, err := node.Acquire(t.Context(), single.Request{Name: names[i], Value: "me", TTL: ttl})
		mu.Lock()
		defer mu.Unlock()
		answers[names[i]], errs[names[i]] = a, err
	})
	assert.True(t, answers["void"].Void)
	assert.True(t, answers["foreign"].Foreign)
	assert.Positive(t, answers["held"].Left)
	for _, name := range names[3:] {
		assert.NoError(t, errs[name], name)
		assert.True(t, answers[name].Granted, name)
	}
}

func TestTheSameNameTwiceInOneCall(t *testing.T) {
	server, node := setUp(t)
	load(t, node)
	for round := range 20 {
		var mu sync.Mutex
		granted := map[uint64]string{}
		if round%2 == 1 { // it is this client's turn
			server.MustDo(t, "SET", redisconn.LockKey(strconv.Itoa(round)), "turn "+node.Me())
		}
		server.AllAtOnce(t, 16, func(i int) {
			value := strconv.Itoa(i / 2) // each asks twice, as a driver might
			a, err := node.Acquire(t.Context(), single.Request{Name: strconv.Itoa(round), Value: value, TTL: ttl,
				Waiting: true})
			assert.NoError(t, err)
			assert.False(t, a.Foreign)
			mu.Lock()
			defer mu.Unlock()
			if a.Granted {
				granted[a.Token] = value
			} else {
				assert.Positive(t, a.Left)
			}
		})
		require.Len(t, granted, 1, "R11: one token for one holder")
		key := redisconn.LockKey(strconv.Itoa(round))
		for token, value := range granted {
			stored, owner := single.ReadValue(server.MustDo(t, "GET", key).(string))
			assert.Equal(t, value, owner)
			assert.Equal(t, token, stored)
		}
		assert.Equal(t, int64(1), server.MustDo(t, "EXISTS", key+":wait"))
	}
}

func TestAKeyThatTheACLForbidsIsItsCallersAlone(t *testing.T) {
	server := lab.StartRedis(t, lab.WithUser("locker", "on", ">secret", "+@all", "~locker:1:*"))
	node := newNode(t, newClient(t, &redis.Options{Addr: server.Addr(), Username: "locker",
		Password: "secret"}), nil)
	load(t, node)
	// As narrow as a rule can be: all names but those with an x.
	server.MustDo(t, "ACL", "SETUSER", "locker", "resetkeys", "~locker:1:*[0-9]}*", "~locker:1:tokens")
	server.AllAtOnce(t, 64, func(i int) {
		name := "n" + strconv.Itoa(i)
		if i%8 == 7 {
			name += "x"
		}
		a, err := node.Acquire(t.Context(), single.Request{Name: name, Value: "me", TTL: ttl})
		if i%8 == 7 {
			var e *redisconn.Error
			if assert.ErrorAs(t, err, &e) {
				assert.True(t, e.Refused)
			}
			return
		}
		assert.NoError(t, err)
		assert.True(t, a.Granted)
	})
}

func TestForgottenScriptsAreSentOnceForMany(t *testing.T) {
	server, node := setUp(t)
	load(t, node)
	server.MustDo(t, "SCRIPT", "FLUSH")
	before := server.Commands(t)
	server.AllAtOnce(t, 128, func(i int) {
		a, err := node.Acquire(t.Context(), single.Request{Name: strconv.Itoa(i), Value: "me", TTL: ttl})
		assert.NoError(t, err)
		assert.True(t, a.Granted)
	})
	assert.LessOrEqual(t, server.Commands(t).Since(before).ByName["eval"], int64(8),
		"one for each batch at most")
}

func TestAWrongPasswordIsRefusedToEachOfMany(t *testing.T) {
	server := lab.StartRedis(t, lab.WithUser("default", "off"),
		lab.WithUser("locker", "on", ">secret", "+@all", "~*"))
	node := newNode(t, newClient(t, &redis.Options{Addr: server.Addr(), Username: "locker",
		Password: "wrong"}), nil)
	var all sync.WaitGroup
	began := time.Now()
	for i := range 64 {
		all.Go(func() {
			_, err := node.Acquire(t.Context(), single.Request{Name: strconv.Itoa(i), Value: "me", TTL: ttl})
			var e *redisconn.Error
			if assert.ErrorAs(t, err, &e) {
				assert.True(t, e.Refused, e)
				// On a machine that stalls, a connection may look silent first.
				assert.False(t, e.Unknown && time.Since(began) < 100*time.Millisecond, "nothing was sent")
				assert.NotContains(t, e.Error(), "wrong\"")
			}
		})
	}
	all.Wait()
}

func TestAnAnswerToTooFewIsUnknownToAll(t *testing.T) {
	f := lab.StartFakeRedis(t, "*1\r\n:1\r\n")
	node := newNode(t, fakeClient(t, f), nil)
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			_, err := node.Acquire(t.Context(), single.Request{Name: strconv.Itoa(i), Value: "me", TTL: ttl})
			var e *redisconn.Error
			if assert.Error(t, err) && errors.As(err, &e) {
				assert.True(t, e.Unknown)
			}
		})
	}
	all.Wait()
}
