package fencingproof_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/internal/lab"
)

// A Redis that is restarted without persistence has forgotten the lock and the
// token counter. Two hold the lock then; the tokens of the later one are
// higher still, by the server's clock, so that the earlier is refused. The same
// where all servers of a quorum are restarted and its restart guard is off.
func TestRedisRestartedWithoutItsDataUnderAPausedHolder(t *testing.T) {
	lab.NeedPause(t)
	for _, c := range []struct {
		name    string
		servers int
		url     string // with the servers' addresses
	}{
		{"single, ttl 1s", 1, "redis://%s?ttl=1s"},
		{"single, ttl 30s", 1, "redis://%s?ttl=30s"},
		{"redlock, ttl 30s", 3, "redlock://%s?ttl=30s&fencing=on&restart_guard=off"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var servers []*lab.Redis
			var addrs []string
			for range c.servers {
				servers = append(servers, lab.StartRedis(t))
				addrs = append(addrs, servers[len(servers)-1].Addr())
			}
			url := fmt.Sprintf(c.url, strings.Join(addrs, ","))
			r, a := startResource(t), newAccess(t)
			second := open(t, url, nil)
			const name, rounds = "restarted", 10
			var last fencing.Token
			unaware := 0
			for round := range rounds {
				th := r.thing(name)
				h := startHolder(t, url, name, "first", descriptions([]thing{th})...)
				h.stopBeforeWrite(t)
				assert.Greater(t, h.token, last)

				for _, server := range servers {
					server.Kill()
				}
				for _, server := range servers {
					server.Restart(t)
				}

				lease := lock(t, second, name)
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
			t.Logf("%s: after %d restarts, no stale write landed behind the guard; %d times the lease of "+
				"the holder that was refused still lasted", c.name, rounds, unaware)
		})
	}
}
