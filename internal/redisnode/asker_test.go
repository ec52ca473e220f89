package redisnode_test

import (
	"context"
	"embed"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/redisnode"
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

// asker has a Node carry requests for locks that know no tokens.
type asker struct {
	*redisnode.Node
	*redisnode.Wakes
	takes *redisnode.Script
}

// takeText takes locks, one or several of different callers, as renew.lua of package single renews them.
var takeText = redisnode.Text(embed.FS{}, `
return each(0, 1, 2, function(k, a)
	local found = get(KEYS[k])
	if found and not owns(found, ARGV[a]) then
		return {THEIRS, 0}
	end
	call('SET', KEYS[k], '0000000000000000 ' .. ARGV[a], 'PX', ARGV[a + 1])
	return 1
end)`)

// newAsker returns an asker on client. Both are closed with the test.
func newAsker(t *testing.T, client redis.UniversalClient) *asker {
	t.Helper()
	return askerWithin(t, client, 2*soon)
}

func askerWithin(t *testing.T, client redis.UniversalClient, timeout time.Duration) *asker {
	t.Helper()
	node, err := redisnode.New(client, timeout)
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, node.Close())
		_ = client.Close()
	})
	return &asker{node, node.Wakes(""), redisnode.NewScript(1, "", takeText)}
}

// setUp starts a server and an asker on it.
func setUp(t *testing.T, opts ...lab.Option) (*lab.Redis, *asker) {
	t.Helper()
	server := lab.StartRedis(t, opts...)
	return server, newAsker(t, redis.NewClient(&redis.Options{Addr: server.Addr()}))
}

// behindProxy starts a server and an asker that reaches it through a proxy.
func behindProxy(t *testing.T, timeout time.Duration, o redis.Options, opts ...lab.Option) (
	*lab.Redis, *lab.Proxy, *asker,
) {
	t.Helper()
	server := lab.StartRedis(t, opts...)
	proxy := lab.StartProxy(t, server.Addr())
	o.Addr = proxy.Addr()
	return server, proxy, askerWithin(t, redis.NewClient(&o), timeout)
}

// fake returns an asker on a server that answers all scripts so.
func fake(t *testing.T, reply string) (*lab.FakeRedis, *asker) {
	t.Helper()
	f := lab.StartFakeRedis(t, reply)
	return f, newAsker(t, redis.NewClient(&redis.Options{Addr: f.Addr(), Protocol: 2}))
}

// sameRun is the answer to INFO of a fake server that says which run it is: then a copy of a request, as a busy machine
// sends it, is answered as the first one is.
const sameRun = "+run_id:same\r\n"

func (a *asker) takeAttempt(name, value string) *redisnode.Attempt {
	k := redisnode.KeysOf(name, value, "", "")
	return a.takes.Attempt("acquire", name, nil, k.Lock, k.Value(), ttl.Milliseconds())
}

// code is the answer to a request that has no other than these.
func (a *asker) code(o redisnode.Outcome) (redisnode.Code, error) {
	switch {
	case o.Err != nil:
		return 0, o.Err
	case o.Answer.Code == redisnode.Done && o.Answer.N == 1, o.Answer.Code == redisnode.Theirs, o.Answer.Code == redisnode.Gone:
		return o.Answer.Code, nil
	}
	return 0, a.Unexpected("acquire", o.Answer)
}

func (a *asker) take(ctx context.Context, name, value string) (redisnode.Code, error) {
	return a.code(a.Do(ctx, a.takeAttempt(name, value)))
}

func (a *asker) mustTake(t *testing.T, name, value string) redisnode.Code {
	t.Helper()
	state, err := a.take(t.Context(), name, value)
	require.NoError(t, err)
	return state
}

func (a *asker) drop(ctx context.Context, name, value string) (redisnode.Code, error) {
	k := redisnode.KeysOf(name, value, "", "")
	o := a.Do(ctx, a.Release(&k, 0))
	if o.Answer.Code == redisnode.Gone && o.Copies > 1 {
		return redisnode.Done, nil // an earlier copy has removed it
	}
	return a.code(o)
}

func (a *asker) inspect(ctx context.Context, name string) (redisnode.Status, error) {
	k := redisnode.KeysOf(name, "", "", "")
	return a.StatusOf(name, a.Do(ctx, a.Inspect(&k, k.Lock)))
}

// subscribe returns what is told a caller who waits for a name.
func (a *asker) subscribe(t *testing.T, name string) (woken chan struct{}, stop func()) {
	t.Helper()
	woken = make(chan struct{}, 1000)
	stop, err := a.Subscribe(t.Context(), name, func() { woken <- struct{}{} })
	require.NoError(t, err)
	t.Cleanup(stop)
	return woken, stop
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
	require.Equal(t, redisnode.Done, a.mustTake(t, name, "holder"))
	require.NoError(t, a.Client().Set(t.Context(), redisnode.LockKey(name)+":wait", "1", ttl).Err())
	state, err := a.drop(t.Context(), name, "holder")
	require.NoError(t, err)
	require.Equal(t, redisnode.Done, state)
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
func try(t *testing.T, ctx context.Context, a *asker) *redisnode.Error {
	t.Helper()
	_, err := a.take(ctx, "n", "me")
	assert.NotContains(t, asError(t, err).Error(), "\n")
	return asError(t, err)
}

func asError(t *testing.T, err error) *redisnode.Error {
	t.Helper()
	var e *redisnode.Error
	require.ErrorAs(t, err, &e)
	return e
}
