package fencingproof_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/internal/testserver"
)

// A Redis that is restarted without persistence has forgotten the lock and the
// token counter. Two hold the lock then; the tokens of the later one are
// higher still, by the server's clock, so that the earlier is refused.
func TestARedisRestartedWithoutItsDataUnderAPausedHolder(t *testing.T) {
	testserver.NeedPause(t)
	for _, ttl := range []string{"1s", "30s"} {
		t.Run("ttl "+ttl, func(t *testing.T) {
			server := testserver.StartRedis(t)
			url := "redis://" + server.Addr() + "?ttl=" + ttl
			r, a := startResource(t), newAccess(t)
			second := open(t, url, nil)
			var last fencing.Token
			unaware := 0
			for round := range 10 {
				const name = "restarted"
				th := r.thing(name)
				h := startHolder(t, url, name, "first", descriptions([]thing{th})...)
				h.stopBeforeWrite(t)
				assert.Greater(t, h.token, last)

				server.Kill()
				server.Restart(t)

				lease := lockAgain(t, second, name)
				token, err := fencing.Of(lease)
				require.NoError(t, err)
				assert.Greater(t, token, h.token, "tokens rise through the loss of all data")
				last = token
				value := fmt.Sprint("second ", round)
				require.NoError(t, a.write(token, th.guarded, value))

				outcomes, over := h.goOn(t, 2)
				require.NoError(t, outcomes[0])
				assert.Equal(t, "first", a.read(th.plain), "without a guard it lands")
				assert.Equal(t, &fencing.StaleError{Resource: name, Token: h.token, Mark: token}, outcomes[1])
				assert.Equal(t, value, a.read(th.guarded))
				if over == "<nil>" {
					unaware++
				}
				h.Kill()
				_ = lease.Unlock(t.Context()) // it may have been lost on a slow machine
			}
			t.Logf("ttl %s: 10 restarts, 0 stale writes behind the guard; %d times the first holder's lease still lasted when it was refused", ttl, unaware)
		})
	}
}

// lockAgain is lock with a service that has just come back: the connections
// to the one before are broken.
func lockAgain(t *testing.T, c *locker.Client, name string) *locker.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		lease, err := c.Lock(ctx, name)
		if err == nil {
			return lease
		}
		require.True(t, errors.Is(err, locker.ErrUnavailable) && ctx.Err() == nil, "%v", err)
		time.Sleep(10 * time.Millisecond)
	}
}
