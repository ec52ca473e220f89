package redisguard_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/internal/lab"
)

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
				err := set(t.Context(), g, "r", token, key, n)
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
