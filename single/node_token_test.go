package single_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/redisconn"
	"github.com/golockers/locker/single"
)

// takeToken locks and releases, and returns the token.
func takeToken(t *testing.T, node *single.Node, name string) uint64 {
	t.Helper()
	value := owner()
	a := acquire(t, node, single.Request{Name: name, Value: value, TTL: ttl})
	require.True(t, a.Granted)
	state, err := node.Release(t.Context(), name, value)
	require.NoError(t, err)
	require.Equal(t, redisconn.Mine, state)
	return a.Token
}

func TestTokensRiseWhateverIsLost(t *testing.T) {
	server, node := setUp(t)
	last := uint64(0)
	rises := func(after string) {
		t.Helper()
		token := takeToken(t, node, "n")
		require.Greater(t, token, last, after)
		last = token
	}
	rises("nothing")
	assert.InDelta(t, time.Now().UnixMicro(), last, 60e6, "the first token is the server's clock")
	for range 100 {
		rises("a release")
	}
	server.MustDo(t, "FLUSHALL")
	rises("FLUSHALL")
	server.MustDo(t, "DEL", redisconn.LockKey("n")+":fence")
	rises("the expiry of the counter")
	server.Restart(t)
	rises("a restart without data")
	server.MustDo(t, "SET", redisconn.LockKey("n")+":fence", "not a number")
	rises("a counter written over by hand")
	server.MustDo(t, "DEL", redisconn.LockKey("n")+":fence")
	server.MustDo(t, "RPUSH", redisconn.LockKey("n")+":fence", "x")
	rises("a counter of another type")
}

func TestTokensRiseWhenTheClockIsBehindTheCounter(t *testing.T) {
	server, node := setUp(t)
	ahead := time.Now().Add(time.Hour).UnixMicro()
	server.MustDo(t, "SET", redisconn.LockKey("n")+":fence", ahead)
	assert.Equal(t, uint64(ahead+1), takeToken(t, node, "n"))
	assert.Equal(t, uint64(ahead+2), takeToken(t, node, "n"))
	assert.Equal(t, strconv.FormatInt(ahead+2, 10),
		server.MustDo(t, "GET", redisconn.LockKey("n")+":fence"), "kept as digits, not as 1.7e+15")
	assert.InDelta(t, 25*time.Hour, pttl(t, server, redisconn.LockKey("n")+":fence"), float64(time.Minute),
		"a day after the clock has caught up")
}

func TestACounterThatCannotRiseIsRefused(t *testing.T) {
	server, node := setUp(t)
	for _, counter := range []string{"9007199254740991", "9007199254740992", "1e300", "inf", "nan"} {
		server.MustDo(t, "SET", redisconn.LockKey("n")+":fence", counter)
		_, err := node.Acquire(t.Context(), single.Request{Name: "n", Value: "me", TTL: ttl})
		var e *redisconn.Error
		require.ErrorAs(t, err, &e, counter)
		assert.Contains(t, err.Error(), redisconn.LockKey("n")+":fence", "what to delete")
		assert.True(t, e.Refused)
		assert.False(t, e.Unknown)
		assert.Equal(t, int64(0), server.MustDo(t, "EXISTS", redisconn.LockKey("n")), "refused, and yet taken")
	}
}

func TestCountersExpireADayAfterTheirLastUse(t *testing.T) {
	server, node := setUp(t)
	fence := redisconn.LockKey("n") + ":fence"
	acquire(t, node, single.Request{Name: "n", Value: "me", TTL: ttl})
	assert.InDelta(t, 24*time.Hour, pttl(t, server, fence), float64(time.Minute))

	renew := func() {
		t.Helper()
		state, err := node.Renew(t.Context(), "n", "me", ttl)
		require.NoError(t, err)
		require.Equal(t, redisconn.Mine, state)
	}
	server.MustDo(t, "PEXPIRE", fence, 60_000)
	renew()
	assert.InDelta(t, 24*time.Hour, pttl(t, server, fence), float64(time.Minute), "a renewal is a use")

	server.MustDo(t, "SET", fence, time.Now().Add(time.Hour).UnixMicro(), "PX", 60_000)
	renew()
	assert.InDelta(t, 25*time.Hour, pttl(t, server, fence), float64(time.Minute))
}

func TestKeptCountersDoNotExpire(t *testing.T) {
	server := lab.StartRedis(t)
	node := newNode(t, newClient(t, &redis.Options{Addr: server.Addr()}), &single.NodeOptions{KeepTokens: true})
	acquire(t, node, single.Request{Name: "n", Value: "me", TTL: ttl})
	assert.Negative(t, pttl(t, server, redisconn.LockKey("n")+":fence"))
	_, err := node.Renew(t.Context(), "n", "me", ttl)
	require.NoError(t, err)
	assert.Negative(t, pttl(t, server, redisconn.LockKey("n")+":fence"), "a renewal gave it an expiry")
}

func TestTokensAreUniqueUnderContention(t *testing.T) {
	_, node := setUp(t)
	var mu sync.Mutex
	var tokens []uint64 // in the order in which the locks were held
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			for held := 0; held < 10; {
				value := owner()
				a, err := node.Acquire(context.Background(), single.Request{Name: "n", Value: value, TTL: ttl})
				if !assert.NoError(t, err) {
					return
				}
				if !a.Granted {
					continue
				}
				held++
				mu.Lock()
				tokens = append(tokens, a.Token)
				mu.Unlock()
				_, err = node.Release(context.Background(), "n", value)
				assert.NoError(t, err)
			}
		})
	}
	all.Wait()
	require.Len(t, tokens, 200)
	for i := 1; i < len(tokens); i++ {
		require.Greater(t, tokens[i], tokens[i-1])
	}
}
