package redisnode_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/redisnode"
)

func released(t *testing.T, server *lab.Redis, name, whom string) {
	t.Helper()
	server.MustDo(t, "PUBLISH", redisnode.WakeChannel(name), whom)
}

// listening counts the connections that listen.
func listening(t *testing.T, server *lab.Redis) int {
	t.Helper()
	return strings.Count(server.MustDo(t, "CLIENT", "LIST", "TYPE", "PUBSUB").(string), "\n")
}

func TestSubscriptionsShareAConnectionAndEndWithTheirWaiters(t *testing.T) {
	t.Parallel()
	const linger = time.Second
	server, l := setUp(t)
	require.Zero(t, listening(t, server), "nobody waits yet")
	before := server.Commands(t)
	var stops []func()
	for i := range 50 {
		for range 3 {
			_, stop := l.subscribe(t, fmt.Sprint(i))
			stops = append(stops, stop)
		}
	}
	for range 100 { // a busy name, whose waiters come and go
		_, stop := l.subscribe(t, "0")
		stop()
	}
	assert.Equal(t, 1, listening(t, server))
	assert.LessOrEqual(t, int(server.Commands(t).Since(before)["subscribe"]), 50, "once per name")
	assert.Len(t, server.MustDo(t, "PUBSUB", "CHANNELS", "locker:*"), 50)
	for _, stop := range stops[1:] {
		stop()
	}
	require.Eventually(t, func() bool {
		channels, _ := server.MustDo(t, "PUBSUB", "CHANNELS", "locker:*").([]any)
		return len(channels) == 1
	}, soon, linger/10)
	time.Sleep(2 * linger)
	assert.Equal(t, 1, listening(t, server), "somebody still waits")
	stops[0]()
	require.Eventually(t, func() bool { return listening(t, server) == 0 }, soon, linger/10)
	n, _ := l.subscribe(t, "n")
	released(t, server, "n", "")
	told(t, n, "a connection of its own again")
}

// A message may have been missed while there was no connection (R14).
func TestALostConnectionTellsEverybodyOnceItIsBack(t *testing.T) {
	server, l := setUp(t)
	first, _ := l.subscribe(t, "first")
	second, _ := l.subscribe(t, "second")
	for range 3 {
		require.Equal(t, int64(1), server.MustDo(t, "CLIENT", "KILL", "TYPE", "pubsub"))
		told(t, first, "a message may have been lost")
		told(t, second, "a message may have been lost")
		released(t, server, "first", "")
		told(t, first, "a release after it")
	}
	server.Restart(t)
	told(t, first, "the server was restarted")
}

func TestASilentConnectionIsMadeAgain(t *testing.T) {
	t.Parallel()
	const silence = 5 * time.Second
	server, proxy, l := behindProxy(t, 2*soon, redis.Options{})
	var subscription *lab.Link
	proxy.OnRequest("subscribe", func(l *lab.Link) { subscription = l })
	n, _ := l.subscribe(t, "n")
	time.Sleep(2*silence + time.Second)
	require.Empty(t, n, "the connection is well, it answers pings")
	subscription.Replies(lab.Drop)
	told(t, n, "the connection gave no sign of life")
	released(t, server, "n", "")
	told(t, n, "a release on the new connection")
}

// A message that is for another client wakes this one a little later, in case the other does not come. One that is
// for this client comes on a channel of its own, and says so at once.
func TestWhoseTurnItIsNotIsWokenLater(t *testing.T) {
	server, l := setUp(t)
	l.Wakes = l.Node.Wakes("me")
	n, _ := l.subscribe(t, "n")
	own := redisnode.WakeChannel("n") + ":me"
	assert.Equal(t, int64(1), server.MustDo(t, "PUBLISH", own, ""), "it is there by the time that it waits")
	told(t, n, "its turn")
	released(t, server, "n", "me")
	time.Sleep(50 * time.Millisecond)
	assert.Empty(t, n, "it was told before")
	for whom, later := range map[string]bool{"another": true, "": false} {
		began := time.Now()
		released(t, server, "n", whom)
		told(t, n, "release")
		if later {
			assert.GreaterOrEqual(t, time.Since(began), 10*time.Millisecond)
		}
	}
}
