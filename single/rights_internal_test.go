package single

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/redisnode"
)

// rightsOfTheDocs are the ACL rules that doc.go names.
var rightsOfTheDocs = []string{
	"on", ">secret", "resetkeys", "resetchannels", "~locker:2:*", "&locker:2:*", "-@all",
	"+evalsha", "+eval", "+mget", "+set", "+del", "+exists", "+time", "+pttl", "+pexpire", "+publish",
	"+spublish",
	"+subscribe", "+unsubscribe", "+ssubscribe", "+sunsubscribe", "+ping",
	"+zadd", "+zrem", "+zrange", "+zscore", "+zcount", "+zremrangebyscore",
}

// subscribe returns what is told a caller who waits for a name.
func subscribe(t *testing.T, node *Backend, name string) (woken chan struct{}) {
	t.Helper()
	woken = make(chan struct{}, 1000)
	stop, err := node.Notify(t.Context(), name, func() { woken <- struct{}{} })
	require.NoError(t, err)
	t.Cleanup(stop)
	return woken
}

func drain(woken chan struct{}) {
	for len(woken) > 0 {
		<-woken
	}
}

func told(t *testing.T, woken chan struct{}, why string) {
	t.Helper()
	select {
	case <-woken:
	case <-time.After(soon):
		t.Fatalf("not woken: %s", why)
	}
}

// handOver takes the lock, lets somebody wait for it, and releases it.
func handOver(t *testing.T, node *Backend, name string) {
	t.Helper()
	require.True(t, acquire(t, node, name, "holder", once).granted)
	require.False(t, acquire(t, node, name, "waiter", waiting).granted)
	require.Equal(t, mine, release(t, node, name, "holder", false, 0))
}

func TestTheRightsThatTheDocumentationNamesAreEnough(t *testing.T) {
	server := lab.StartRedis(t, lab.WithUser("default", "off"), lab.WithUser("locker", rightsOfTheDocs...))
	for _, protocol := range []int{2, 3} {
		node := newNode(t, redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "locker",
			Password: "secret", Protocol: protocol}))
		name := "protocol " + strconv.Itoa(protocol)
		woken := subscribe(t, node, name)
		handOver(t, node, name)
		told(t, woken, "release")
		require.True(t, acquire(t, node, name, "me", once).granted)
		_, err := on(node).renew(t.Context(), keys(name, "me"), false, ttl)
		require.NoError(t, err)
		release(t, node, name, "me", false, ttl)
		shareAndLeave(t, node, name)
		server.MustDo(t, "SCRIPT", "FLUSH")
		server.MustDo(t, "CLIENT", "KILL", "TYPE", "pubsub")
		told(t, woken, "the connection was lost")
		_, err = node.node.Servers(t.Context())
		assert.True(t, asError(t, err).Refused, "INFO is not among them, and that is no failure")
	}
}

func TestProveTheRightsThatTheDocumentationNamesForAClusterAreEnough(t *testing.T) {
	lab.NeedProve(t)
	rights := append(rightsOfTheDocs[:len(rightsOfTheDocs):len(rightsOfTheDocs)], "+cluster|slots", "+asking")
	cluster := lab.StartCluster(t, lab.WithUser("default", "off"), lab.WithUser("locker", rights...))
	node := newNode(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), Username: "locker",
		Password: "secret"}))
	for i := range 10 {
		name := strconv.Itoa(i)
		woken := subscribe(t, node, name)
		handOver(t, node, name)
		told(t, woken, "release")
		require.True(t, acquire(t, node, name, "me", once).granted)
		shareAndLeave(t, node, name+" shared")
	}
	for _, n := range cluster.Nodes {
		denied, ok := n.MustDo(t, "ACL", "LOG", 1000).([]any)
		require.True(t, ok)
		for _, entry := range denied {
			assert.NotContains(t, fmt.Sprint(entry), "object command ", "the list of commands was asked for")
		}
	}
}

// Each right is needed: without it, what it is for is refused and says so, and takes nothing.
func TestEachRightIsNeeded(t *testing.T) {
	server := lab.StartRedis(t, lab.WithUser("locker", rightsOfTheDocs...))
	node := newNode(t, redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "locker",
		Password: "secret"}))
	load(t, node)
	s, ctx, me := on(node), t.Context(), keys("n", "me:")
	without := func(command string, ask func() (any, error)) {
		server.MustDo(t, "ACL", "SETUSER", "locker", "-"+command)
		began := time.Now()
		_, err := ask()
		assert.True(t, asError(t, err).Refused, command)
		if time.Since(began) < 50*time.Millisecond { // later, a copy of a renewal or question may be under way
			assert.False(t, asError(t, err).Unknown, command)
		}
		server.MustDo(t, "ACL", "SETUSER", "locker", "+"+command)
	}
	for r, commands := range map[request][]string{
		once: {"evalsha", "mget", "set", "time"}, together: {"zadd", "pexpire", "set", "exists"},
	} {
		for _, command := range commands {
			without(command, func() (any, error) { return s.acquire(ctx, me, r) })
			assert.Equal(t, int64(0), server.MustDo(t, "EXISTS", redisnode.LockKey("n")),
				"%s: refused, and yet taken", command)
		}
	}
	// Nobody needs these for a lock alone.
	server.MustDo(t, "ACL", "SETUSER", "locker", "-zadd", "-zrange", "-zremrangebyscore", "-zscore", "-zrem")
	handOver(t, node, "alone")
	require.True(t, acquire(t, node, "n", "me:", once).granted)
	for command, ask := range map[string]func() (any, error){
		"del":     func() (any, error) { return s.release(ctx, me, false, 0) },
		"exists":  func() (any, error) { return s.release(ctx, keys("gone", "me:"), false, 0) },
		"pexpire": func() (any, error) { return s.renew(ctx, me, false, 2*ttl) },
		"pttl":    func() (any, error) { return node.inspect(ctx, "n") },
	} {
		without(command, ask)
	}
}
