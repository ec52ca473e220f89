package redisguard_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/redisguard"
	"github.com/golockers/locker/internal/lab"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var setKey = redisguard.NewScript("return redis.call('SET', KEYS[1], ARGV[1])")

func set(ctx context.Context, g *redisguard.Guard, resource string, token fencing.Token, key string, value any) error {
	return g.Run(ctx, resource, token, setKey, []string{key}, value).Err()
}

var push = redisguard.NewScript("return redis.call('RPUSH', KEYS[1], ARGV[1])")

const patience = 20 * time.Second

// newClient returns a client that is closed with the test.
func newClient(t testing.TB, opts *redis.Options) *redis.Client {
	t.Helper()
	client := redis.NewClient(opts)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func newGuard(t testing.TB, client redisguard.Client, opts *redisguard.Options) *redisguard.Guard {
	t.Helper()
	g, err := redisguard.New(client, opts)
	require.NoError(t, err)
	return g
}

// newServer returns a Redis, and a guard on it.
func newServer(t testing.TB, opts ...lab.Option) (*lab.Redis, *redisguard.Guard) {
	t.Helper()
	server := lab.StartRedis(t, opts...)
	return server, newGuard(t, newClient(t, &redis.Options{Addr: server.Addr()}), nil)
}

// everything returns all keys of a server with their dumps: equal before and
// after if nothing was written.
func everything(t testing.TB, server *lab.Redis) map[any]any {
	t.Helper()
	all := map[any]any{}
	for _, key := range server.MustDo(t, "KEYS", "*").([]any) {
		all[key] = server.MustDo(t, "DUMP", key)
	}
	return all
}

func mustMark(t testing.TB, g *redisguard.Guard, resource string) fencing.Token {
	t.Helper()
	mark, err := g.Mark(t.Context(), resource)
	require.NoError(t, err)
	return mark
}
