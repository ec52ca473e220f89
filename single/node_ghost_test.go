package single_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/redisconn"
	"github.com/golockers/locker/single"
)

// behindProxy starts a server and a Node that reaches it through a proxy.
func behindProxy(t *testing.T) (*lab.Redis, *lab.Proxy, *single.Node) {
	t.Helper()
	server := lab.StartRedis(t)
	proxy := lab.StartProxy(t, server.Addr())
	// A reply that is lost keeps the driver, and so Close, waiting that long.
	client := newClient(t, &redis.Options{Addr: proxy.Addr(), ReadTimeout: 500 * time.Millisecond})
	return server, proxy, newNode(t, client, nil)
}

// holdRequest keeps the next request with this text from the server. What it returns lets it go,
// and waits until the server has executed it.
func holdRequest(t *testing.T, server *lab.Redis, proxy *lab.Proxy, text string) (letGo func()) {
	t.Helper()
	held := make(chan *lab.Link, 1)
	proxy.OnRequest(text, func(l *lab.Link) {
		l.SetRequests(lab.Hold)
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
		link.SetRequests(lab.Pass)
		require.Eventually(t, func() bool { return server.Commands(t).Since(before).ByName["evalsha"] > 0 },
			soon, time.Millisecond, "the request that was held has arrived")
	}
}

// tooShortToGoAlone is a time limit with which a request takes the queue, and is sent once.
const tooShortToGoAlone = 40 * time.Millisecond

func TestALostReplyIsUnknownAndAskingAgainIsTheSameGrant(t *testing.T) {
	server, proxy, node := behindProxy(t)
	load(t, node)
	r := single.Request{Name: "n", Value: owner(), TTL: ttl}
	proxy.LoseReply(r.Value)
	ctx, cancel := context.WithTimeout(t.Context(), tooShortToGoAlone)
	defer cancel()
	_, err := node.Acquire(ctx, r)
	require.True(t, asError(t, err).Unknown)
	granted := func() bool { return owned(t, server, "n") == r.Value }
	require.Eventually(t, granted, soon, time.Millisecond, "the server has granted it")
	before := counter(t, server)
	a := acquire(t, node, r)
	assert.True(t, a.Granted)
	assert.True(t, a.Again)
	assert.Equal(t, before, counter(t, server), "no second token")

	// Where the connection is cut, it is asked again at once.
	r = single.Request{Name: "cut", Value: owner(), TTL: ttl}
	cancelCut := proxy.CutReply(r.Value)
	a = acquire(t, node, r)
	require.False(t, cancelCut(), "the reply was cut")
	assert.True(t, a.Granted)
	assert.True(t, a.Again)
	assert.True(t, a.Repeated)
}

func TestATakeBackOutrunsItsRequest(t *testing.T) {
	server, proxy, node := behindProxy(t)
	load(t, node)
	r := single.Request{Name: "n", Value: owner(), TTL: ttl}
	letGo := holdRequest(t, server, proxy, r.Value)
	ctx, cancel := context.WithTimeout(t.Context(), tooShortToGoAlone)
	defer cancel()
	_, err := node.Acquire(ctx, r)
	require.True(t, asError(t, err).Unknown)

	state, err := node.TakeBack(t.Context(), "n", r.Value, time.Minute)
	require.NoError(t, err)
	assert.Equal(t, redisconn.Gone, state)
	letGo()
	assert.Equal(t, int64(0), server.MustDo(t, "EXISTS", redisconn.LockKey("n")), "R7: a ghost holds the lock")
}

func TestForgottenScriptsAreNotSentForWhoHasLeft(t *testing.T) {
	server, proxy, node := behindProxy(t)
	load(t, node)
	server.MustDo(t, "SCRIPT", "FLUSH")
	value := owner()
	held := make(chan *lab.Link, 1)
	proxy.OnRequest(value, func(l *lab.Link) {
		l.SetReplies(lab.Hold)
		held <- l
	})
	ctx, cancel := context.WithTimeout(t.Context(), tooShortToGoAlone)
	defer cancel()
	_, err := node.Acquire(ctx, single.Request{Name: "n", Value: value, TTL: ttl})
	require.True(t, asError(t, err).Unknown)
	(<-held).SetReplies(lab.Pass) // NOSCRIPT arrives
	time.Sleep(50 * time.Millisecond)
	assert.Equal(t, int64(0), server.MustDo(t, "EXISTS", redisconn.LockKey("n")),
		"locked for a caller who has left long ago")
}

// The requests of a caller alone are sent again if no answer comes in a short time. On a machine
// that is too busy for a caller to go alone the tests below try again, each time with a lock of
// another name.

func TestARequestThatIsSentTwiceIsAnsweredOnce(t *testing.T) {
	server, proxy, node := behindProxy(t)
	lock := func() single.Request {
		return single.Request{Name: owner(), Value: owner(), TTL: ttl}
	}

	t.Run("acquire", func(t *testing.T) {
		again(t, func() bool {
			warm(t, node)
			r := lock()
			cancel := proxy.LoseReply(r.Value)
			a, err := node.Acquire(t.Context(), r)
			if err != nil {
				return false
			}
			assert.False(t, cancel(), "the reply was lost")
			assert.True(t, a.Granted)
			assert.True(t, a.Repeated, "a copy may still be under way")
			return true
		})
	})
	t.Run("renew", func(t *testing.T) {
		r := lock()
		acquire(t, node, r)
		again(t, func() bool {
			warm(t, node)
			proxy.LoseReply(r.Value)
			state, err := node.Renew(t.Context(), r.Name, r.Value, ttl)
			if err != nil {
				return false
			}
			assert.Equal(t, redisconn.Mine, state)
			return true
		})
	})
	t.Run("release", func(t *testing.T) {
		again(t, func() bool {
			r := lock()
			acquire(t, node, r)
			warm(t, node)
			proxy.LoseReply(r.Value)
			state, err := node.Release(t.Context(), r.Name, r.Value)
			if err != nil {
				return false
			}
			assert.Equal(t, redisconn.Mine, state, "the first copy has removed it, and the second found nothing")
			assert.Equal(t, int64(0), server.MustDo(t, "EXISTS", redisconn.LockKey(r.Name)))
			return true
		})
	})
}

func TestTheFirstCopyOfARequestSentTwiceTakesNoReleasedLock(t *testing.T) {
	server, proxy, node := behindProxy(t)
	again(t, func() bool {
		warm(t, node)
		r := single.Request{Name: owner(), Value: owner(), TTL: ttl}
		letGo := holdRequest(t, server, proxy, r.Value)
		a, err := node.Acquire(t.Context(), r)
		if err != nil {
			return false
		}
		require.True(t, a.Granted)
		require.False(t, a.Again, "the second copy was the first to arrive")
		require.True(t, a.Repeated)
		state, err := node.TakeBack(t.Context(), r.Name, r.Value, time.Minute) // as a hold does then
		require.NoError(t, err)
		require.Equal(t, redisconn.Mine, state)
		letGo()
		assert.Equal(t, int64(0), server.MustDo(t, "EXISTS", redisconn.LockKey(r.Name)),
			"R7: a ghost holds the lock")
		return true
	})
}

func TestARefusalOfARequestSentTwiceIsTakenBack(t *testing.T) {
	server, proxy, node := behindProxy(t)
	again(t, func() bool {
		r := single.Request{Name: owner(), Value: owner(), TTL: ttl}
		acquire(t, node, single.Request{Name: r.Name, Value: "holder", TTL: ttl})
		warm(t, node)
		letGo := holdRequest(t, server, proxy, r.Value)
		a, err := node.Acquire(t.Context(), r)
		if err != nil {
			return false
		}
		require.False(t, a.Granted)
		require.Positive(t, a.Left)
		require.True(t, a.Repeated)
		_, err = node.TakeBack(t.Context(), r.Name, r.Value, time.Minute) // as the engine has it done then
		require.NoError(t, err)
		_, err = node.Release(t.Context(), r.Name, "holder")
		require.NoError(t, err)
		letGo()
		assert.Equal(t, int64(0), server.MustDo(t, "EXISTS", redisconn.LockKey(r.Name)),
			"refused, and yet taken by the copy that came late")
		return true
	})
}

// again repeats what depends on the machine's not being too busy.
func again(t *testing.T, try func() bool) {
	t.Helper()
	for range 10 {
		if try() {
			return
		}
	}
	t.Fatal("not once in ten times: the machine is too busy, or the code is broken")
}
