package redisguard_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/redisguard"
	"github.com/golockers/locker/internal/lab"
)

// race lets many clients write one resource with tokens that rise over time but
// come in any order. What each writes ends up in a list, which must not fall.
func race(t *testing.T, clients []redisguard.Client, resource, list string, disturb func()) {
	const each = 100
	var (
		wg       sync.WaitGroup
		mu       sync.Mutex
		accepted []fencing.Token
		refused  int
	)
	for i, client := range clients {
		g := newGuard(t, client, nil)
		wg.Go(func() {
			for n := range each {
				// Around 2^53, where floats are not exact.
				token := fencing.Token(1<<53 - each*2 + 4*n + rand.IntN(40))
				err := g.Run(t.Context(), resource, token, push, []string{list}, token).Err()
				var stale *fencing.StaleError
				switch {
				case errors.As(err, &stale):
					assert.Greater(t, stale.Mark, token)
					mu.Lock()
					refused++
					mu.Unlock()
				case assert.NoError(t, err):
					mu.Lock()
					accepted = append(accepted, token)
					mu.Unlock()
				}
			}
		})
		if i == 0 && disturb != nil {
			wg.Go(disturb)
		}
	}
	wg.Wait()
	reader, ok := clients[0].(redis.UniversalClient)
	require.True(t, ok)
	written, err := reader.LRange(t.Context(), list, 0, -1).Result()
	require.NoError(t, err)
	assert.Len(t, written, len(accepted), "accepted and written are the same")
	assert.NotZero(t, refused, "the test has to make them meet")
	var last uint64
	for _, text := range written {
		token, err := strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
		require.GreaterOrEqual(t, token, last, "a lower token wrote after a higher one")
		last = token
	}
	assert.Equal(t, fencing.Token(last), mustMark(t, newGuard(t, clients[0], nil), resource))
}

func TestTokensNeverFallAmongRacingClients(t *testing.T) {
	server := lab.StartRedis(t)
	var clients []redisguard.Client
	for range 8 {
		clients = append(clients, newClient(t, &redis.Options{Addr: server.Addr()}))
	}
	race(t, clients, "r", "{r}:list", func() {
		for range 10 {
			_, err := server.Do("SCRIPT", "FLUSH")
			assert.NoError(t, err)
			time.Sleep(time.Millisecond)
		}
	})
}

func TestTokensNeverFallAmongRacingClientsOfACluster(t *testing.T) {
	cluster := lab.StartCluster(t)
	var clients []redisguard.Client
	for range 4 {
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
		t.Cleanup(func() { _ = client.Close() })
		clients = append(clients, client)
	}
	for i := range 4 {
		resource := fmt.Sprint("resource ", i)
		race(t, clients, resource, "{"+resource+"}:list", nil)
	}
}

// Connections break all the time, and requests are sent again. Each write has a key
// of its own, which tells whether it landed.
func TestWhatIsSaidOfAWriteIsSoWhileConnectionsBreak(t *testing.T) {
	server := lab.StartRedis(t)
	proxy := lab.StartProxy(t, server.Addr())
	done := make(chan struct{})
	var wg, breaker sync.WaitGroup
	breaker.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(5 * time.Millisecond):
				proxy.CutReply("evalsha")
			}
		}
	})
	var newest, written, stale, unknown atomic.Int64
	client := newClient(t, &redis.Options{Addr: server.Addr()})
	for range 6 {
		g := newGuard(t, newClient(t, &redis.Options{Addr: proxy.Addr()}), nil)
		wg.Go(func() {
			for range 150 {
				n := newest.Add(1)
				token := fencing.Token(max(1, n-rand.Int64N(4)))
				key := fmt.Sprint("{r}:", n)
				err := g.Set(t.Context(), "r", token, key, n, 0)
				landed, existsErr := client.Exists(t.Context(), key).Result()
				assert.NoError(t, existsErr)
				switch {
				case err == nil:
					written.Add(1)
					assert.Equal(t, int64(1), landed, "it was told as written")
				case errors.Is(err, fencing.ErrStale):
					stale.Add(1)
					assert.Zero(t, landed, "it was told as refused: %v", err)
				default:
					unknown.Add(1)
					assert.ErrorIs(t, err, fencing.ErrUnknown)
				}
			}
		})
	}
	wg.Wait()
	close(done)
	breaker.Wait()
	t.Logf("%d written, %d refused, %d of unknown outcome", written.Load(), stale.Load(), unknown.Load())
	assert.NotZero(t, written.Load())
	assert.NotZero(t, stale.Load())
	assert.NotZero(t, unknown.Load(), "nothing was ever in doubt: this proves nothing")
}
