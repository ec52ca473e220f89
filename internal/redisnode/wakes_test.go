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

// listener is a client whose callers are told of releases.
type listener struct {
	*redisnode.Wakes
	t      *testing.T
	server *lab.Redis
}

func listen(t *testing.T, server *lab.Redis, addr, me string) *listener {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr})
	n, err := redisnode.New(client, soon)
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, n.Close())
		assert.NoError(t, client.Close())
	})
	return &listener{n.Wakes(me), t, server}
}

func hears(t *testing.T, me string) *listener {
	t.Helper()
	server := lab.StartRedis(t)
	return listen(t, server, server.Addr(), me)
}

// waits returns what is told a caller who waits for a name.
func (l *listener) waits(name string) (told chan struct{}, stop func()) {
	l.t.Helper()
	told = make(chan struct{}, 1000)
	stop, err := l.Subscribe(l.t.Context(), name, func() { told <- struct{}{} })
	require.NoError(l.t, err)
	l.t.Cleanup(stop)
	return told, stop
}

func (l *listener) released(name, whom string) {
	l.t.Helper()
	l.server.MustDo(l.t, "PUBLISH", redisnode.WakeChannel(name), whom)
}

// connections counts those that listen.
func (l *listener) connections() int {
	l.t.Helper()
	return strings.Count(l.server.MustDo(l.t, "CLIENT", "LIST", "TYPE", "PUBSUB").(string), "\n")
}

func TestSubscriptionsShareAConnectionAndEndWithTheirWaiters(t *testing.T) {
	t.Parallel()
	const linger = time.Second
	l := hears(t, "")
	require.Zero(t, l.connections(), "nobody waits yet")
	before := l.server.Commands(t)
	var stops []func()
	for i := range 50 {
		for range 3 {
			_, stop := l.waits(fmt.Sprint(i))
			stops = append(stops, stop)
		}
	}
	for range 100 { // a busy name, whose waiters come and go
		_, stop := l.waits("0")
		stop()
	}
	assert.Equal(t, 1, l.connections())
	assert.LessOrEqual(t, int(l.server.Commands(t).Since(before)["subscribe"]), 50, "once per name")
	assert.Len(t, l.server.MustDo(t, "PUBSUB", "CHANNELS", "locker:*"), 50)
	for _, stop := range stops[1:] {
		stop()
	}
	require.Eventually(t, func() bool {
		channels, _ := l.server.MustDo(t, "PUBSUB", "CHANNELS", "locker:*").([]any)
		return len(channels) == 1
	}, soon, linger/10)
	time.Sleep(2 * linger)
	assert.Equal(t, 1, l.connections(), "somebody still waits")
	stops[0]()
	require.Eventually(t, func() bool { return l.connections() == 0 }, soon, linger/10)
	n, _ := l.waits("n")
	l.released("n", "")
	told(t, n, "a connection of its own again")
}

// A message may have been missed while there was no connection (R14).
func TestALostConnectionTellsEverybodyOnceItIsBack(t *testing.T) {
	l := hears(t, "")
	first, _ := l.waits("first")
	second, _ := l.waits("second")
	for range 3 {
		require.Equal(t, int64(1), l.server.MustDo(t, "CLIENT", "KILL", "TYPE", "pubsub"))
		told(t, first, "a message may have been lost")
		told(t, second, "a message may have been lost")
		l.released("first", "")
		told(t, first, "a release after it")
	}
	l.server.Restart(t)
	told(t, first, "the server was restarted")
}

func TestASilentConnectionIsMadeAgain(t *testing.T) {
	t.Parallel()
	server := lab.StartRedis(t)
	proxy := lab.StartProxy(t, server.Addr())
	const silence = 5 * time.Second
	l := listen(t, server, proxy.Addr(), "")
	var subscription *lab.Link
	proxy.OnRequest("subscribe", func(l *lab.Link) { subscription = l })
	n, _ := l.waits("n")
	time.Sleep(2*silence + time.Second)
	require.Empty(t, n, "the connection is well, it answers pings")
	subscription.Replies(lab.Drop)
	told(t, n, "the connection gave no sign of life")
	l.released("n", "")
	told(t, n, "a release on the new connection")
}

// A message that is for another client wakes this one a little later, in case the other does not come. One that is
// for this client comes on a channel of its own, and says so at once.
func TestWhoseTurnItIsNotIsWokenLater(t *testing.T) {
	l := hears(t, "me")
	n, _ := l.waits("n")
	own := redisnode.WakeChannel("n") + ":me"
	assert.Equal(t, int64(1), l.server.MustDo(t, "PUBLISH", own, ""), "it is there by the time that it waits")
	told(t, n, "its turn")
	l.released("n", "me")
	time.Sleep(50 * time.Millisecond)
	assert.Empty(t, n, "it was told before")
	for whom, later := range map[string]bool{"another": true, "": false} {
		began := time.Now()
		l.released("n", whom)
		told(t, n, "release")
		if later {
			assert.GreaterOrEqual(t, time.Since(began), 10*time.Millisecond)
		}
	}
}
