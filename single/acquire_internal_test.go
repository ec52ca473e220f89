package single

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/redisnode"
)

const (
	ttl  = 2 * time.Minute
	soon = 30 * time.Second
)

// How the tests ask for a lock.
var once, waiting = request{ttl: ttl}, request{ttl: ttl, waiting: true}

// newNode returns a Backend on client. Both are closed with the test.
func newNode(t *testing.T, client redis.UniversalClient) *Backend {
	t.Helper()
	node, err := New(client, &Options{Timeout: 2 * soon})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, node.Close())
		_ = client.Close()
	})
	return node
}

// newFake returns a Backend on a server that answers all scripts so, the copies of a request like the first one: it says
// which run it is.
func newFake(t *testing.T, reply string) *Backend {
	t.Helper()
	f := lab.StartFakeRedis(t, reply)
	f.Answer("info", "+run_id:same\r\n")
	return newNode(t, redis.NewClient(&redis.Options{Addr: f.Addr(), Protocol: 2}))
}

// load has the server know all scripts.
func load(t *testing.T, node *Backend) {
	t.Helper()
	acquire(t, node, "load", "me", once)
	_, err := on(node).renew(t.Context(), keys("load", "me"), false, ttl)
	require.NoError(t, err)
	release(t, node, "load", "me", false, 0)
}

// warm makes so many quick requests that the next one goes to the driver in its caller's own goroutine.
func warm(t *testing.T, node *Backend) {
	t.Helper()
	load(t, node)
	for range 200 {
		_, err := node.inspect(t.Context(), "warm")
		require.NoError(t, err)
	}
}

// withOnce lets the clients of newOnce log in.
var withOnce = lab.WithUser("once", "on", ">secret", "~*", "&*", "+@all", "-info")

// newOnce returns a Backend that sends each request once: its user may not ask which run of the server it is. From
// others a busy machine may get copies, and of these the last answer is told, or one arrives later.
func newOnce(t *testing.T, addr string) *Backend {
	t.Helper()
	return newNode(t, redis.NewClient(&redis.Options{Addr: addr, Username: "once", Password: "secret",
		ReadTimeout: soon}))
}

// setUp starts a server and a Backend on it that sends each request once.
func setUp(t *testing.T) (*lab.Redis, *Backend) {
	t.Helper()
	server := lab.StartRedis(t, withOnce)
	return server, newOnce(t, server.Addr())
}

func keys(name, value string) *redisnode.Keys {
	k := redisnode.KeysOf(name, value, "", "")
	return &k
}

func acquire(t *testing.T, node *Backend, name, value string, r request) answer {
	t.Helper()
	a, err := on(node).acquire(t.Context(), keys(name, value), r)
	require.NoError(t, err)
	return a
}

// release releases a lock, or takes it back, and returns whose it was.
func release(t *testing.T, node *Backend, name, value string, shared bool, void time.Duration) whose {
	t.Helper()
	state, err := on(node).release(t.Context(), keys(name, value), shared, void)
	require.NoError(t, err)
	return state
}

// failed asks for a lock and returns the error, which there must be.
func failed(t *testing.T, ctx context.Context, node *Backend) *redisnode.Error {
	t.Helper()
	_, err := on(node).acquire(ctx, keys("n", "me"), once)
	return asError(t, err)
}

func asError(t *testing.T, err error) *redisnode.Error {
	t.Helper()
	var e *redisnode.Error
	require.ErrorAs(t, err, &e)
	return e
}

// owned is who has the lock; nil: there is no such key.
func owned(t *testing.T, server *lab.Redis, name string) any {
	t.Helper()
	text, ok := server.MustDo(t, "GET", []byte(redisnode.LockKey(name))).(string)
	if !ok {
		return nil
	}
	return redisnode.ReadValue(text).Owner
}

// Requests may overtake each other: one that asks for less (MinHold) takes nothing from one that asked for more.
func TestNoRequestShortensALock(t *testing.T) {
	server, node := setUp(t)
	s, ctx, k, key := on(node), t.Context(), keys("n", "me:"), redisnode.LockKey("n")
	for _, shared := range []bool{false, true} {
		acquire(t, node, "n", "me:", request{ttl: ttl, shared: shared})
		requests := map[string]func(time.Duration) (whose, error){
			"again": func(lasts time.Duration) (whose, error) {
				a, err := s.acquire(ctx, k, request{ttl: lasts, shared: shared})
				require.True(t, a.again)
				return mine, err
			},
			"renew": func(lasts time.Duration) (whose, error) { return s.renew(ctx, k, shared, lasts) },
			"pass": func(lasts time.Duration) (whose, error) {
				a, err := s.pass(ctx, keys("n", "old:"), k, lasts, false)
				require.True(t, a.again)
				return mine, err
			},
		}
		left := func() time.Duration { return server.TTL(t, key) }
		if shared {
			delete(requests, "pass")
			left = func() time.Duration {
				st, err := s.inspect(ctx, "n")
				require.NoError(t, err)
				return st.Left
			}
		}
		for what, ask := range requests {
			server.MustDo(t, "PEXPIRE", key, 10_000)
			for _, lasts := range []time.Duration{time.Hour, ttl} {
				state, err := ask(lasts)
				require.NoError(t, err)
				require.Equal(t, mine, state, what)
				assert.Greater(t, left(), 50*time.Minute, "%s, shared: %t", what, shared)
			}
		}
		server.MustDo(t, "DEL", key, key+":shared")
	}
}

func TestTTLIsRoundedUp(t *testing.T) {
	server := lab.StartRedis(t)
	proxy := lab.StartProxy(t, server.Addr())
	node := newNode(t, redis.NewClient(&redis.Options{Addr: proxy.Addr()}))
	asked := make(chan struct{}, 1)
	proxy.OnRequest("\r\n3600001\r\n", func(*lab.Link) { asked <- struct{}{} })
	acquire(t, node, "n", "me", request{ttl: time.Hour + 1})
	assert.Len(t, asked, 1, "an hour and a nanosecond is 3600001 ms")
}

func TestAKeySetByHandIsInTheWayButNoCrash(t *testing.T) {
	server, node := setUp(t)
	key := redisnode.LockKey("n")

	server.MustDo(t, "SET", key, "by hand")
	a := acquire(t, node, "n", "me", waiting)
	assert.False(t, a.granted)
	assert.False(t, a.foreign)
	assert.Negative(t, a.left, "it has no expiry")
	assert.Greater(t, server.TTL(t, redisnode.LockKey("n")+":wait"), 30*time.Second)

	server.MustDo(t, "DEL", key)
	server.MustDo(t, "RPUSH", key, "no", "string")
	server.MustDo(t, "PEXPIRE", key, 60_000)
	a = acquire(t, node, "n", "me", waiting)
	assert.True(t, a.foreign && !a.granted)
	assert.Positive(t, a.left)

	s, ctx, me := on(node), t.Context(), keys("n", "me")
	for what, do := range map[string]func() (whose, error){
		"renew":     func() (whose, error) { return s.renew(ctx, me, false, ttl) },
		"release":   func() (whose, error) { return s.release(ctx, me, false, 0) },
		"take back": func() (whose, error) { return s.release(ctx, me, false, ttl) },
	} {
		state, err := do()
		require.NoError(t, err, what)
		assert.Equal(t, theirs, state, what)
	}
	assert.Equal(t, int64(2), server.MustDo(t, "LLEN", key))
}

// A holder in its last millisecond is one whose end is known, and not one to be waited for until a
// message comes: expiry sends none.
func TestTheLastMillisecondIsNotAnUnknownTime(t *testing.T) {
	node := newFake(t, "*1\r\n*2\r\n:2\r\n:0\r\n")
	a, err := on(node).acquire(t.Context(), keys("n", "me"), once)
	require.NoError(t, err)
	assert.False(t, a.granted)
	assert.Equal(t, time.Millisecond, a.left)
}

// Another program at the address, or a proxy that is broken: no answer but a script's
// own makes a lease, and trying again is no use.
func TestAnAnswerOfNoScriptOfOursIsRefused(t *testing.T) {
	refused := func(err error, what string) {
		t.Helper()
		e := asError(t, err)
		assert.True(t, e.Refused, what)
		assert.True(t, e.Unknown, what)
		assert.ErrorContains(t, err, "a reply that this script does not give")
	}
	pass := func(node *Backend) error {
		h := passing{on(node).hold(keys("n", "me"), false)}
		_, err := h.Pass(t.Context(), driver.Request{Name: "n", Owner: "next", TTL: ttl}, true)
		return err
	}
	const one = "*1\r\n"
	for _, reply := range []string{
		"+OK\r\n", "*0\r\n", ":1\r\n", "*2\r\n:1\r\n:1\r\n", // not one answer
		one + "*0\r\n", one + ":0\r\n", one + ":-1\r\n", one + "$1\r\n1\r\n", one + ":9007199254740993\r\n",
		one + "*1\r\n:1\r\n", one + "*2\r\n:99\r\n:9\r\n", one + "*2\r\n+a\r\n+b\r\n", one + "*2\r\n:0\r\n:1\r\n",
		one + "*2\r\n:1\r\n:0\r\n", one + "*2\r\n:2\r\n:-9\r\n", one + "*2\r\n:3\r\n:1\r\n", one + "*2\r\n:10\r\n:0\r\n",
		one + "*3\r\n:1\r\n:1\r\n:1\r\n", one + "*3\r\n:2\r\n:9\r\n+a\r\n", one + "*3\r\n:1\r\n:1\r\n+raised\r\n",
		one + "*7\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n", one + "*2\r\n:8\r\n:-1\r\n", one + "*2\r\n:9\r\n:0\r\n",
	} {
		node := newFake(t, reply)
		refused(failed(t, t.Context(), node), reply)
		if reply != one+"*2\r\n:3\r\n:1\r\n" { // of a next that is void, whatever the number
			refused(pass(node), reply)
		}
	}
	// answers of other scripts
	for _, reply := range []string{"*2\r\n:5\r\n:0\r\n", "*2\r\n:6\r\n:0\r\n", "*2\r\n:7\r\n:0\r\n"} {
		refused(failed(t, t.Context(), newFake(t, one+reply)), reply)
	}
	for _, reply := range []string{"*2\r\n:8\r\n:1\r\n", "*2\r\n:9\r\n:1\r\n"} {
		refused(pass(newFake(t, one+reply)), reply)
	}
	for _, reply := range []string{":3\r\n", "*2\r\n:10\r\n:0\r\n", "*2\r\n:1\r\n:1\r\n"} {
		_, err := on(newFake(t, one+reply)).renew(t.Context(), keys("n", "me"), false, ttl)
		refused(err, "a state of redlock's scripts")
	}

	g, err := newFake(t, ":0\r\n").Acquire(t.Context(), driver.Request{Name: "n", Owner: "me", TTL: ttl})
	assert.NotErrorIs(t, err, driver.ErrUnavailable)
	assert.NotNil(t, g.Hold, "it may have been carried out: for the engine to take back")
	assert.Zero(t, g.Validity)
}
