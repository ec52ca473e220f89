package redisconn_test

import (
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/redisconn"
)

// take takes a key that is free, and counts. The first command speaks for all.
func take(add func(args ...any) *redis.Cmd, requests []any) func(i int) (any, error) {
	first := add("incr", "pipelines")
	var sets, counts []*redis.Cmd
	for _, key := range requests {
		sets = append(sets, add("set", key, "x", "nx"))
		counts = append(counts, add("incr", "count"))
	}
	return func(i int) (any, error) {
		if err := sets[i].Err(); errors.Is(err, redis.Nil) {
			return int64(0), nil // it is taken
		}
		return counts[i].Val(), errors.Join(first.Err(), sets[i].Err(), counts[i].Err())
	}
}

// Plain commands share pipelines, with scripts too, and each caller has its own answer.
func TestPlainCommandsShareAPipeline(t *testing.T) {
	server := lab.StartRedis(t)
	n := newConn(t, newClient(t, &redis.Options{Addr: server.Addr()}))
	taking, script := redisconn.NewCommands(take), redisconn.NewScript("return 'script'")
	ask := func(key string) (int64, error) {
		c, err := n.Do(t.Context(), taking.Request("take", key, key))
		if err != nil {
			return 0, err
		}
		defer c.Recycle()
		return c.Reply().(int64), nil
	}
	server.MustDo(t, "SET", "7", "taken")
	var mu sync.Mutex
	seen := map[int64]bool{}
	server.AllAtOnce(t, 100, func(i int) {
		if i%2 == 1 {
			c, err := n.Do(t.Context(), script.Call("script", "n", 0))
			assert.NoError(t, err)
			assert.Equal(t, "script", c.Reply())
			return
		}
		count, err := ask(strconv.Itoa(i / 2))
		assert.NoError(t, err)
		assert.Equal(t, i/2 == 7, count == 0)
		mu.Lock()
		defer mu.Unlock()
		assert.False(t, count > 0 && seen[count], "the answer of another")
		seen[count] = true
	})
	pipelines, err := strconv.Atoi(server.MustDo(t, "GET", "pipelines").(string))
	require.NoError(t, err)
	assert.Less(t, pipelines, 10)

	for i := range 10 { // soon in its caller's own goroutine
		_, err := ask("alone" + strconv.Itoa(i))
		require.NoError(t, err)
	}
	server.MustDo(t, "RPUSH", "list", "x")
	server.MustDo(t, "DEL", "count")
	server.MustDo(t, "RPUSH", "count", "x")
	_, err = ask("fails")
	var e *redisconn.Error
	require.ErrorAs(t, err, &e)
	assert.True(t, e.Unknown, "one command of two was carried out")
	assert.Equal(t, "x", server.MustDo(t, "GET", "fails"))
}

// A request that meets a connection that was closed meanwhile is sent again, and says so (R26).
func TestPlainCommandsOnAClosedConnectionAreSentAgain(t *testing.T) {
	server := lab.StartRedis(t)
	proxy := lab.StartProxy(t, server.Addr())
	n := newConn(t, newClient(t, &redis.Options{Addr: proxy.Addr()}))
	taking := redisconn.NewCommands(take)
	for i := range 10 { // by way of the queue, and soon in its caller's own goroutine
		key := "key" + strconv.Itoa(i)
		stop := proxy.CutReply(key)
		c, err := n.Do(t.Context(), taking.Request("take", key, key))
		require.NoError(t, err)
		require.False(t, stop(), "the reply was cut")
		assert.Equal(t, int64(0), c.Reply(), "it finds what the first copy did")
		assert.True(t, c.Repeated())
	}
}

func newClient(t *testing.T, opts *redis.Options) *redis.Client {
	t.Helper()
	client := redis.NewClient(opts)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func newConn(t *testing.T, client redis.UniversalClient) *redisconn.Conn {
	t.Helper()
	n, err := redisconn.New(client, 3*time.Second)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.Close()) })
	return n
}
