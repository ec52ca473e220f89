package single

import (
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/redisnode"
)

// takeToken locks and releases, and returns the token.
func takeToken(t *testing.T, node *Backend, name string) uint64 {
	t.Helper()
	value := rand.Text()
	a := acquire(t, node, name, value, once)
	require.True(t, a.granted)
	require.Equal(t, mine, release(t, node, name, value, false, 0))
	return a.token
}

// That tokens rise where the counter was lost or the clock set back is in TestSearch.
func TestTheCounterOfTokens(t *testing.T) {
	server, node := setUp(t)
	first := takeToken(t, node, "n")
	assert.InDelta(t, time.Now().UnixMicro(), first, 60e6, "the first token is the server's clock")
	for _, ruin := range []string{"SET", "RPUSH"} { // written over by hand, or of another type
		server.MustDo(t, "DEL", redisnode.TokensKey)
		server.MustDo(t, ruin, redisnode.TokensKey, "not a number")
		next := takeToken(t, node, "n")
		assert.Greater(t, next, first, ruin)
		first = next
	}
	ahead := uint64(time.Now().Add(time.Hour).UnixMicro())
	server.MustDo(t, "SET", redisnode.TokensKey, ahead)
	assert.Equal(t, ahead+1, takeToken(t, node, "n"))
	assert.Equal(t, ahead+2, takeToken(t, node, "other"), "names share it")
	assert.Equal(t, fmt.Sprint(ahead+2), server.MustDo(t, "GET", redisnode.TokensKey), "not 1.7e+15")
	assert.Negative(t, server.TTL(t, redisnode.TokensKey), "it never expires")
}

func TestACounterThatCannotRiseIsRefused(t *testing.T) {
	server, node := setUp(t)
	held := acquire(t, node, "held", "me", once)
	for _, counter := range []string{"9007199254740991", "9007199254740992", "1e300", "inf", "nan"} {
		server.MustDo(t, "SET", redisnode.TokensKey, counter)
		pass := func() error {
			_, err := on(node).pass(t.Context(), keys("held", "me"), keys("held", "next"), ttl, false)
			return err
		}
		_, err := on(node).acquire(t.Context(), keys("n", "me"), once)
		for _, err := range []error{err, pass()} {
			e := asError(t, err)
			assert.Contains(t, err.Error(), redisnode.TokensKey, "what to delete")
			assert.True(t, e.Refused)
			assert.False(t, e.Unknown)
		}
		assert.Equal(t, int64(0), server.MustDo(t, "EXISTS", redisnode.LockKey("n")), "refused, and yet taken")
		assert.Equal(t, "me", owned(t, server, "held"))
	}
	server.MustDo(t, "DEL", redisnode.TokensKey)
	assert.Greater(t, takeToken(t, node, "n"), held.token)
}

// Where the ACL does not allow the counter, nothing is left of the lock.
func TestALockIsNotTakenWhereItsTokenCannotBeKept(t *testing.T) {
	server := lab.StartRedis(t, lab.WithUser("locker", "on", ">secret", "+@all", "-info", "%RW~locker:2:{*",
		"%R~locker:2:*"))
	node := newNode(t, redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "locker",
		Password: "secret"}))
	_, err := on(node).acquire(t.Context(), keys("n", "me"), once)
	e := asError(t, err)
	assert.True(t, e.Refused)
	assert.False(t, e.Unknown)
	assert.Equal(t, int64(0), server.MustDo(t, "EXISTS", redisnode.LockKey("n")), "refused, and yet taken")
}
