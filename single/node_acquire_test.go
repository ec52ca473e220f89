package single_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/redisconn"
	"github.com/golockers/locker/single"
)

const ttl = 30 * time.Second

// setUp starts a server and a Node on it.
func setUp(t *testing.T, opts ...lab.RedisOption) (*lab.Redis, *single.Node) {
	t.Helper()
	server := lab.StartRedis(t, opts...)
	return server, newNode(t, newClient(t, &redis.Options{Addr: server.Addr()}), nil)
}

func acquire(t *testing.T, node *single.Node, r single.Request) single.Answer {
	t.Helper()
	a, err := node.Acquire(t.Context(), r)
	require.NoError(t, err)
	return a
}

// owned is who has the lock; nil: there is no such key.
func owned(t *testing.T, server *lab.Redis, name string) any {
	t.Helper()
	text, ok := server.MustDo(t, "GET", []byte(redisconn.LockKey(name))).(string)
	if !ok {
		return nil
	}
	_, owner := single.ReadValue(text)
	return owner
}

// counter is the last token of the server; 0: there is none.
func counter(t *testing.T, server *lab.Redis) uint64 {
	t.Helper()
	text, _ := server.MustDo(t, "GET", redisconn.TokensKey).(string)
	n, _ := strconv.ParseUint(text, 10, 64)
	return n
}

// pttl is the TTL of a key as the server sees it; negative: none, or no such key.
func pttl(t *testing.T, server *lab.Redis, key string) time.Duration {
	t.Helper()
	ms, ok := server.MustDo(t, "PTTL", []byte(key)).(int64)
	require.True(t, ok)
	return time.Duration(ms) * time.Millisecond
}

func TestAcquireTakesAFreeLock(t *testing.T) {
	server, node := setUp(t)
	for _, name := range awkward {
		a := acquire(t, node, single.Request{Name: name, Value: "me:label", TTL: ttl})
		assert.Equal(t, single.Answer{Granted: true, Token: a.Token}, a, "%q", name)
		assert.Equal(t, "me:label", owned(t, server, name))
		assert.InDelta(t, ttl, pttl(t, server, redisconn.LockKey(name)), float64(soon))
		assert.Equal(t, a.Token, counter(t, server))
	}
}

func TestAcquireLeavesAHeldLockAlone(t *testing.T) {
	server, node := setUp(t)
	acquire(t, node, single.Request{Name: "n", Value: "ab", TTL: ttl})
	before := counter(t, server)
	// The values are prefixes of each other: the whole value counts.
	for _, value := range []string{"abc", "a", "", "AB", "ab\x00"} {
		a := acquire(t, node, single.Request{Name: "n", Value: value, TTL: time.Hour})
		assert.False(t, a.Granted, "%q", value)
		assert.InDelta(t, ttl, a.Left, float64(soon))
		a.Left = 0
		assert.Equal(t, single.Answer{}, a)
	}
	assert.Equal(t, "ab", owned(t, server, "n"))
	assert.LessOrEqual(t, pttl(t, server, redisconn.LockKey("n")), ttl, "the refused asked for an hour")
	assert.Equal(t, before, counter(t, server), "a refusal raised the counter")
	assert.Equal(t, int64(0), server.MustDo(t, "EXISTS", redisconn.LockKey("n")+":wait"),
		"nobody said that it waits")
}

func TestAcquireAgainIsTheSameGrant(t *testing.T) {
	server, node := setUp(t)
	r := single.Request{Name: "n", Value: "me", TTL: ttl}
	first := acquire(t, node, r)
	require.NotZero(t, first.Token)
	server.MustDo(t, "PEXPIRE", redisconn.LockKey("n"), 1000)

	second := acquire(t, node, r)
	assert.Equal(t, single.Answer{Granted: true, Again: true, Token: first.Token}, second,
		"R11: the same token, not another one")
	assert.Greater(t, pttl(t, server, redisconn.LockKey("n")), 10*time.Second, "the TTL starts anew")

	acquire(t, node, single.Request{Name: "other", Value: "me", TTL: ttl})
	server.MustDo(t, "DEL", redisconn.TokensKey)
	assert.Equal(t, second, acquire(t, node, r), "whatever has become of the counter")
}

func TestTTLIsRoundedUp(t *testing.T) {
	server := lab.StartRedis(t)
	proxy := lab.StartProxy(t, server.Addr())
	node := newNode(t, newClient(t, &redis.Options{Addr: proxy.Addr()}), nil)
	asked := make(chan struct{}, 1)
	proxy.OnRequest("\r\n3600001\r\n", func(*lab.Link) { asked <- struct{}{} })
	acquire(t, node, single.Request{Name: "n", Value: "me", TTL: time.Hour + 1})
	assert.Len(t, asked, 1, "an hour and a nanosecond is 3600001 ms")
}

func TestAKeySetByHandIsInTheWayButNoCrash(t *testing.T) {
	server, node := setUp(t)
	key := redisconn.LockKey("n")
	r := single.Request{Name: "n", Value: "me", TTL: ttl, Waiting: true}

	server.MustDo(t, "SET", key, "by hand")
	a := acquire(t, node, r)
	assert.False(t, a.Granted)
	assert.False(t, a.Foreign)
	assert.Negative(t, a.Left, "it has no expiry")
	assert.Greater(t, pttl(t, server, redisconn.LockKey("n")+":wait"), 30*time.Second)

	server.MustDo(t, "DEL", key)
	server.MustDo(t, "RPUSH", key, "no", "string")
	a = acquire(t, node, r)
	assert.False(t, a.Granted)
	assert.True(t, a.Foreign)
	assert.Negative(t, a.Left)
	server.MustDo(t, "PEXPIRE", key, 60_000)
	a = acquire(t, node, r)
	assert.True(t, a.Foreign)
	assert.Positive(t, a.Left)

	for what, do := range map[string]func() (redisconn.State, error){
		"renew":     func() (redisconn.State, error) { return node.Renew(t.Context(), "n", "me", ttl) },
		"release":   func() (redisconn.State, error) { return node.Release(t.Context(), "n", "me") },
		"take back": func() (redisconn.State, error) { return node.TakeBack(t.Context(), "n", "me", ttl) },
	} {
		state, err := do()
		require.NoError(t, err, what)
		assert.Equal(t, redisconn.Theirs, state, what)
	}
	assert.Equal(t, int64(2), server.MustDo(t, "LLEN", key))
}

func TestWaitingLeavesANoteThatOutlivesTheHolder(t *testing.T) {
	server, node := setUp(t)
	acquire(t, node, single.Request{Name: "n", Value: "holder", TTL: ttl, Waiting: true})
	assert.Equal(t, int64(0), server.MustDo(t, "EXISTS", redisconn.LockKey("n")+":wait"),
		"who gets the lock does not wait")
	a := acquire(t, node, single.Request{Name: "n", Value: "me", TTL: ttl, Waiting: true})
	require.False(t, a.Granted)
	note := pttl(t, server, redisconn.LockKey("n")+":wait")
	assert.Greater(t, note, a.Left+time.Second)
	assert.Less(t, note, a.Left+time.Minute)
}

// A holder in its last millisecond is one whose end is known, and not one to be waited for until a
// message comes: expiry sends none.
func TestTheLastMillisecondIsNotAnUnknownTime(t *testing.T) {
	node := newNode(t, fakeClient(t, lab.StartFakeRedis(t, "*2\r\n:0\r\n:0\r\n")), nil)
	a, err := node.Acquire(t.Context(), single.Request{Name: "n", Value: "me", TTL: ttl})
	require.NoError(t, err)
	assert.False(t, a.Granted)
	assert.Equal(t, time.Millisecond, a.Left)
}
