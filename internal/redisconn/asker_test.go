package redisconn_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/redisconn"
	"github.com/golockers/locker/internal/rediswake"
)

func TestMain(m *testing.M) {
	var known []goleak.Option
	for _, f := range lab.LeftBySentinels {
		known = append(known, goleak.IgnoreAnyFunction(f))
	}
	goleak.VerifyTestMain(m, known...)
}

const (
	ttl  = 30 * time.Second
	soon = 20 * time.Second
)

// asker has a Conn carry requests for locks that know no tokens.
type asker struct {
	*redisconn.Conn
	*rediswake.Wakes
	takes, drops *redisconn.Script
}

// takeText takes locks, one or several of different callers, as renew.lua of package single renews them.
const takeText = `
return several(#KEYS, function(i)
	local found = call('GET', KEYS[i])
	if found and not owns(found, ARGV[2 * i]) then
		return 2
	end
	call('SET', KEYS[i], ARGV[2 * i], 'PX', ARGV[2 * i + 1])
	return 1
end)`

// newAsker returns an asker on client. Both are closed with the test.
func newAsker(t *testing.T, client redis.UniversalClient) *asker {
	t.Helper()
	return askerWithin(t, client, 2*soon)
}

func askerWithin(t *testing.T, client redis.UniversalClient, timeout time.Duration) *asker {
	t.Helper()
	conn, err := redisconn.New(client, timeout)
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, conn.Close())
		_ = client.Close()
	})
	return &asker{conn, rediswake.New(conn, ""), conn.Script(takeText, 1, 2),
		conn.ReleaseScript()}
}

// setUp starts a server and an asker on it.
func setUp(t *testing.T, opts ...lab.Option) (*lab.Redis, *asker) {
	t.Helper()
	server := lab.StartRedis(t, opts...)
	return server, newAsker(t, redis.NewClient(&redis.Options{Addr: server.Addr()}))
}

// fake returns an asker on a server that answers all scripts so.
func fake(t *testing.T, reply string) (*lab.FakeRedis, *asker) {
	t.Helper()
	f := lab.StartFakeRedis(t, reply)
	return f, newAsker(t, redis.NewClient(&redis.Options{Addr: f.Addr(), Protocol: 2}))
}

func (a *asker) take(ctx context.Context, name, value string) (redisconn.State, error) {
	k := redisconn.KeysOf(name, value, "", "")
	c, err := a.Do(ctx, a.takes.Call("acquire", name, 1, k.Lock, "", k.Value(), ttl.Milliseconds()))
	if err != nil {
		return 0, err
	}
	return a.StateOf(c, redisconn.Theirs)
}

func (a *asker) mustTake(t *testing.T, name, value string) redisconn.State {
	t.Helper()
	state, err := a.take(t.Context(), name, value)
	require.NoError(t, err)
	return state
}

func (a *asker) drop(ctx context.Context, name, value string) (redisconn.State, error) {
	k := redisconn.KeysOf(name, value, "", "")
	c, err := a.Do(ctx, a.ReleaseCall(a.drops, &k, 0))
	if err != nil {
		return 0, err
	}
	return a.StateOf(c, redisconn.Theirs)
}

func (a *asker) inspect(ctx context.Context, name string) (redisconn.Status, error) {
	k := redisconn.KeysOf(name, "", "", "")
	c, err := a.Do(ctx, redisconn.InspectCall(&k, k.Lock))
	if err != nil {
		return redisconn.Status{}, err
	}
	return a.StatusOf(c)
}

// subscribe returns what is told a caller who waits for a name.
func (a *asker) subscribe(t *testing.T, name string) (woken chan struct{}) {
	t.Helper()
	woken = make(chan struct{}, 1000)
	stop, err := a.Subscribe(t.Context(), name, func() { woken <- struct{}{} })
	require.NoError(t, err)
	t.Cleanup(stop)
	return woken
}

func told(t *testing.T, woken chan struct{}, why string) {
	t.Helper()
	select {
	case <-woken:
	case <-time.After(soon):
		t.Fatalf("not woken: %s", why)
	}
}

func drain(woken chan struct{}) {
	for len(woken) > 0 {
		<-woken
	}
}

// handOver takes the lock, notes that somebody waits for it, and releases it.
func (a *asker) handOver(t *testing.T, name string) {
	t.Helper()
	require.Equal(t, redisconn.Mine, a.mustTake(t, name, "holder"))
	require.NoError(t, a.Client().Set(t.Context(), redisconn.LockKey(name)+":wait", "1", ttl).Err())
	state, err := a.drop(t.Context(), name, "holder")
	require.NoError(t, err)
	require.Equal(t, redisconn.Mine, state)
}

// load has the server know all scripts.
func load(t *testing.T, a *asker) {
	t.Helper()
	a.mustTake(t, "load", "me")
	_, err := a.drop(t.Context(), "load", "me")
	require.NoError(t, err)
}

// warm makes so many quick requests that the next one goes to the driver in its caller's own goroutine.
func warm(t *testing.T, a *asker) {
	t.Helper()
	load(t, a)
	for range 200 {
		_, err := a.inspect(t.Context(), "warm")
		require.NoError(t, err)
	}
}

// try asks for a lock and returns the error, which there must be.
func try(t *testing.T, ctx context.Context, a *asker) *redisconn.Error {
	t.Helper()
	_, err := a.take(ctx, "n", "me")
	assert.NotContains(t, asError(t, err).Error(), "\n")
	return asError(t, err)
}

func asError(t *testing.T, err error) *redisconn.Error {
	t.Helper()
	var e *redisconn.Error
	require.ErrorAs(t, err, &e)
	return e
}
