package redisnode_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/redisnode"
)

const ttl = 30 * time.Second

// setUp starts a server and a Node on it.
func setUp(t *testing.T, opts ...lab.RedisOption) (*lab.Redis, *redisnode.Node) {
	t.Helper()
	server := lab.StartRedis(t, opts...)
	return server, newNode(t, newClient(t, &redis.Options{Addr: server.Addr()}), nil)
}

func acquire(t *testing.T, node *redisnode.Node, r redisnode.Request) redisnode.Answer {
	t.Helper()
	a, err := node.Acquire(t.Context(), r)
	require.NoError(t, err)
	return a
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
		a := acquire(t, node, redisnode.Request{Name: name, Value: "me:label", TTL: ttl})
		assert.Equal(t, redisnode.Answer{Granted: true}, a, "%q", name)
		assert.Equal(t, "me:label", server.MustDo(t, "GET", []byte(redisnode.LockKey(name))))
		assert.InDelta(t, ttl, pttl(t, server, redisnode.LockKey(name)), float64(soon))
		assert.Equal(t, int64(0), server.MustDo(t, "EXISTS", []byte(redisnode.FenceKey(name))), "a counter that nobody asked for")
	}
}

func TestAcquireLeavesAHeldLockAlone(t *testing.T) {
	server, node := setUp(t)
	acquire(t, node, redisnode.Request{Name: "n", Value: "ab", TTL: ttl, Token: true})
	before := server.MustDo(t, "GET", redisnode.FenceKey("n"))
	// The values are prefixes of each other: the whole value counts.
	for _, value := range []string{"abc", "a", "", "AB", "ab\x00"} {
		a := acquire(t, node, redisnode.Request{Name: "n", Value: value, TTL: time.Hour, Token: true})
		assert.False(t, a.Granted, "%q", value)
		assert.InDelta(t, ttl, a.Left, float64(soon))
		a.Left = 0
		assert.Equal(t, redisnode.Answer{}, a)
	}
	assert.Equal(t, "ab", server.MustDo(t, "GET", redisnode.LockKey("n")))
	assert.LessOrEqual(t, pttl(t, server, redisnode.LockKey("n")), ttl, "the refused asked for an hour")
	assert.Equal(t, before, server.MustDo(t, "GET", redisnode.FenceKey("n")), "a refusal raised the counter")
	assert.Equal(t, int64(0), server.MustDo(t, "EXISTS", redisnode.WaitKey("n")), "nobody said that it waits")
}

func TestAcquireAgainIsTheSameGrant(t *testing.T) {
	server, node := setUp(t)
	r := redisnode.Request{Name: "n", Value: "me", TTL: ttl, Token: true}
	first := acquire(t, node, r)
	require.NotZero(t, first.Token)
	server.MustDo(t, "PEXPIRE", redisnode.LockKey("n"), 1000)

	second := acquire(t, node, r)
	assert.Equal(t, redisnode.Answer{Granted: true, Again: true, Token: first.Token}, second, "R11: the same token, not another one")
	assert.Greater(t, pttl(t, server, redisnode.LockKey("n")), 10*time.Second, "the TTL starts anew")

	server.MustDo(t, "DEL", redisnode.FenceKey("n"))
	third := acquire(t, node, r)
	assert.True(t, third.Again)
	assert.Greater(t, third.Token, first.Token, "with its counter lost, the token can only be another, and greater")
}

func TestTTLIsRoundedUpAndNeverBelowAMillisecond(t *testing.T) {
	server := lab.StartRedis(t)
	proxy := lab.StartProxy(t, server.Addr())
	node := newNode(t, newClient(t, &redis.Options{Addr: proxy.Addr()}), nil)
	_, err := node.Acquire(t.Context(), redisnode.Request{Name: "n", Value: "me", TTL: time.Millisecond - 1})
	var e *redisnode.Error
	require.ErrorAs(t, err, &e)
	assert.True(t, e.Refused)
	assert.False(t, e.Unknown)
	_, err = node.Renew(t.Context(), "n", "me", 0)
	require.ErrorAs(t, err, &e)

	asked := make(chan struct{}, 1)
	proxy.OnRequest("\r\n3600001\r\n", func(*lab.Link) { asked <- struct{}{} })
	acquire(t, node, redisnode.Request{Name: "n", Value: "me", TTL: time.Hour + 1})
	assert.Len(t, asked, 1, "an hour and a nanosecond is 3600001 ms")
}

func TestAKeySetByHandIsInTheWayButNoCrash(t *testing.T) {
	server, node := setUp(t)
	key := redisnode.LockKey("n")
	r := redisnode.Request{Name: "n", Value: "me", TTL: ttl, Token: true, Waiting: true}

	server.MustDo(t, "SET", key, "by hand")
	a := acquire(t, node, r)
	assert.False(t, a.Granted)
	assert.False(t, a.Foreign)
	assert.Negative(t, a.Left, "it has no expiry")
	assert.Greater(t, pttl(t, server, redisnode.WaitKey("n")), 30*time.Second)

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

	for what, do := range map[string]func() (redisnode.State, error){
		"renew":     func() (redisnode.State, error) { return node.Renew(t.Context(), "n", "me", ttl) },
		"release":   func() (redisnode.State, error) { return node.Release(t.Context(), "n", "me") },
		"take back": func() (redisnode.State, error) { return node.TakeBack(t.Context(), "n", "me", ttl) },
	} {
		state, err := do()
		require.NoError(t, err, what)
		assert.Equal(t, redisnode.Theirs, state, what)
	}
	assert.Equal(t, int64(2), server.MustDo(t, "LLEN", key))
}

func TestWaitingLeavesANoteThatOutlivesTheHolder(t *testing.T) {
	server, node := setUp(t)
	acquire(t, node, redisnode.Request{Name: "n", Value: "holder", TTL: ttl, Waiting: true})
	assert.Equal(t, int64(0), server.MustDo(t, "EXISTS", redisnode.WaitKey("n")), "who gets the lock does not wait")
	a := acquire(t, node, redisnode.Request{Name: "n", Value: "me", TTL: ttl, Waiting: true})
	require.False(t, a.Granted)
	note := pttl(t, server, redisnode.WaitKey("n"))
	assert.Greater(t, note, a.Left+time.Second)
	assert.Less(t, note, a.Left+time.Minute)
}

// A holder in its last millisecond is one whose end is known, and not one to be waited for until a message comes: expiry sends none.
func TestTheLastMillisecondIsNotAnUnknownTime(t *testing.T) {
	node := newNode(t, startFake(t, "*2\r\n:0\r\n:0\r\n").client(t), nil)
	a, err := node.Acquire(t.Context(), redisnode.Request{Name: "n", Value: "me", TTL: ttl})
	require.NoError(t, err)
	assert.False(t, a.Granted)
	assert.Equal(t, time.Millisecond, a.Left)

	m, err := redisnode.NewMember(newNode(t, startFake(t, "*3\r\n:0\r\n:0\r\n$1\r\nx\r\n").client(t), nil))
	require.NoError(t, err)
	left := make(chan time.Duration, 1)
	m.Vote(redisnode.AnyBallot(), redisnode.Claim{Name: "n", Value: "me", TTL: ttl}, true, func(v redisnode.Vote, err error) {
		assert.NoError(t, err)
		left <- v.Left
	})
	assert.Equal(t, time.Millisecond, <-left)
}
