package single_test

import (
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/single"
)

// The commands of the scripts, each of which an ACL may refuse.
var scripted = []string{"mget", "set", "del", "exists", "time", "pttl", "pexpire", "publish", "zadd", "zrem", "zrange",
	"zscore", "zcount", "zremrangebyscore"}

// life is what a lock goes through: each step may be refused, and the next goes on with what there is.
func life(t *testing.T, b *single.Backend, name string) (steps []func()) {
	request := func(shared, wait bool, ttl time.Duration) driver.Request {
		return driver.Request{Name: name, Owner: rand.Text(), Label: "me", TTL: ttl, Shared: shared, Wait: wait}
	}
	var holds []driver.Hold
	acquire := func(r driver.Request) func() {
		return func() {
			g, err := locktest.Ask(t.Context(), b, r)
			if g.Hold != nil && err == nil {
				holds = append(holds, g.Hold)
			}
		}
	}
	last := func(use func(h driver.Hold)) func() {
		return func() {
			if len(holds) > 0 {
				use(holds[len(holds)-1])
			}
		}
	}
	renew := last(func(h driver.Hold) { _, _ = h.Renew(t.Context()) })
	release := last(func(h driver.Hold) {
		_ = h.Release(t.Context(), 0)
		holds = holds[:len(holds)-1]
	})
	undo := last(func(h driver.Hold) { _ = h.Undo(t.Context()) })
	pass := last(func(h driver.Hold) {
		if p, ok := h.(driver.Passer); ok {
			if g, err := p.Pass(t.Context(), request(false, false, ttl), false); err == nil && g.Hold != nil {
				holds = append(holds, g.Hold)
			}
		}
	})
	end := func() { // sharers leave one sharer behind, and whoever comes finds no lock that is left
		for len(holds) > 0 {
			release()
		}
	}
	stop := func() {
		if st, err := b.Inspect(t.Context(), name); err == nil && st.Held {
			_ = b.Break(t.Context(), st)
		}
	}
	return []func(){
		acquire(request(false, false, ttl/2)), acquire(request(false, true, ttl)), renew, pass, undo, end, stop,
		acquire(request(true, false, ttl/2)), acquire(request(true, false, ttl)), acquire(request(false, true, ttl)),
		renew, release, undo, stop, end,
	}
}

// Whichever command a user may not run, and since whenever: what is refused leaves no key without an expiry.
func TestNothingStaysThatAnACLHasRefusedHalfway(t *testing.T) {
	t.Parallel()
	server := lab.StartRedis(t, lab.WithUser("locker", "on", ">secret", "~*", "&*", "+@all"))
	b := backend(t, newClient(t, &redis.Options{Addr: server.Addr(), Username: "locker", Password: "secret"}), nil)
	n := len(life(t, b, ""))
	for _, command := range scripted {
		for from := range n {
			name := fmt.Sprintf("without %s from step %d on", command, from)
			for i, step := range life(t, b, name) {
				if i == from {
					server.MustDo(t, "ACL", "SETUSER", "locker", "-"+command)
				}
				step()
			}
			server.MustDo(t, "ACL", "SETUSER", "locker", "+"+command)
		}
	}
	forever, ok := server.MustDo(t, "EVAL", `local forever, keys = {}, redis.call('KEYS', '*')
		for _, key in ipairs(keys) do
			if redis.call('PTTL', key) < 0 and key ~= 'locker:2:tokens' then
				forever[#forever + 1] = key
			end
		end
		return {#keys, forever}`, 0).([]any)
	require.True(t, ok)
	assert.Empty(t, forever[1])
	assert.Greater(t, forever[0], int64(len(scripted)*n/2), "most leave something")
}
