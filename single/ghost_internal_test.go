package single

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/redisnode"
)

// behindProxy starts a server and a Backend that reaches it through a proxy.
func behindProxy(t *testing.T) (*lab.Redis, *lab.Proxy, *Backend) {
	t.Helper()
	server := lab.StartRedis(t)
	proxy := lab.StartProxy(t, server.Addr())
	// A reply that is lost keeps the driver, and so Close, waiting that long.
	return server, proxy, newNode(t, redis.NewClient(&redis.Options{Addr: proxy.Addr(),
		ReadTimeout: 500 * time.Millisecond}))
}

// holdRequest keeps the next request with this text from the server. What it returns lets it go,
// and waits until the server has executed it.
func holdRequest(t *testing.T, server *lab.Redis, proxy *lab.Proxy, text string) (letGo func()) {
	t.Helper()
	held := make(chan *lab.Link, 1)
	proxy.OnRequest(text, func(l *lab.Link) {
		l.Requests(lab.Hold)
		held <- l
	})
	return func() {
		t.Helper()
		var link *lab.Link
		select {
		case link = <-held:
		case <-time.After(soon):
			t.Fatalf("no request had %q in it", text)
		}
		before := server.Commands(t)
		link.Requests(lab.Pass)
		require.Eventually(t, func() bool { return server.Commands(t).Since(before)["evalsha"] > 0 },
			soon, time.Millisecond, "the request that was held has arrived")
	}
}

// tooShortToGoAlone is a time limit with which a request takes the queue, and is sent once.
const tooShortToGoAlone = 40 * time.Millisecond

// The requests of a caller alone are sent again if no answer comes in a short time. On a machine
// that is too busy for a caller to go alone the tests below try again, each time with a lock of
// another name.

func TestTheFirstCopyOfARequestSentTwiceTakesNoReleasedLock(t *testing.T) {
	server, proxy, node := behindProxy(t)
	lab.Again(t, func() bool {
		warm(t, node)
		v := rand.Text()
		letGo := holdRequest(t, server, proxy, v)
		a, err := on(node).acquire(t.Context(), keys(v, v), once)
		if err != nil {
			return false
		}
		require.True(t, a.granted)
		require.False(t, a.again, "the second copy was the first to arrive")
		require.True(t, a.repeated)
		state, err := on(node).release(t.Context(), keys(v, v), false, time.Minute) // as a hold does then
		require.NoError(t, err)
		require.Equal(t, mine, state)
		letGo()
		assert.Equal(t, int64(0), server.MustDo(t, "EXISTS", redisnode.LockKey(v)),
			"R7: a ghost holds the lock")
		return true
	})
}

func TestARefusalOfARequestSentTwiceIsTakenBack(t *testing.T) {
	server, proxy, node := behindProxy(t)
	lab.Again(t, func() bool {
		v := rand.Text()
		acquire(t, node, v, "holder", once)
		warm(t, node)
		letGo := holdRequest(t, server, proxy, v)
		a, err := on(node).acquire(t.Context(), keys(v, v), once)
		if err != nil {
			return false
		}
		require.False(t, a.granted)
		require.Positive(t, a.left)
		require.True(t, a.repeated)
		_, err = on(node).release(t.Context(), keys(v, v), false, time.Minute) // as the engine has it done then
		require.NoError(t, err)
		_, err = on(node).release(t.Context(), keys(v, "holder"), false, 0)
		require.NoError(t, err)
		letGo()
		assert.Equal(t, int64(0), server.MustDo(t, "EXISTS", redisnode.LockKey(v)),
			"refused, and yet taken by the copy that came late")
		return true
	})
}
