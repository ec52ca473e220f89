package redisnode_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/redisnode"
)

// sentTwice makes a request whose first copy is carried out and not answered, and calls between while the second is held before the server. It
// reports false if there was no second copy. text is something in the request and in no other.
func sentTwice(t *testing.T, proxy *lab.Proxy, text string, ask func(), between func()) bool {
	t.Helper()
	copies := make(chan *lab.Link, 1)
	proxy.OnRequest(text, func(first *lab.Link) {
		first.SetReplies(lab.Drop)
		proxy.OnRequest(text, func(second *lab.Link) {
			second.SetRequests(lab.Hold)
			copies <- second
		})
	})
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		ask()
	}()
	select {
	case <-answered:
		return false
	case second := <-copies:
		between()
		second.SetRequests(lab.Pass)
	}
	<-answered
	return true
}

// The first copy of a release can have removed the lock, and whoever waited has it within microseconds: then the second copy finds another's
// lock, and that is no sign that the caller's was lost.
func TestAReleaseSentTwiceThatLetAnotherInIsNoLoss(t *testing.T) {
	server, proxy, node := behindProxy(t)
	again(t, func() bool {
		r := redisnode.Request{Name: owner(), Value: owner(), TTL: ttl}
		acquire(t, node, r)
		warm(t, node)
		var state redisnode.State
		var err error
		if !sentTwice(t, proxy, r.Value, func() { state, err = node.Release(t.Context(), r.Name, r.Value) }, func() {
			gone := func() bool { return server.MustDo(t, "EXISTS", redisnode.LockKey(r.Name)) == int64(0) }
			require.Eventually(t, gone, soon, time.Millisecond, "the first copy is carried out")
			server.MustDo(t, "SET", redisnode.LockKey(r.Name), "another", "PX", ttl.Milliseconds())
		}) || err != nil {
			return false
		}
		assert.Equal(t, redisnode.Mine, state)
		assert.Equal(t, "another", server.MustDo(t, "GET", redisnode.LockKey(r.Name)), "and the second copy leaves that alone")
		return true
	})
}

// What the answer does not say: of a lock that was lost before, a release that was sent twice cannot tell.
func TestAReleaseSentTwiceCannotTellALoss(t *testing.T) {
	server, proxy, node := behindProxy(t)
	again(t, func() bool {
		r := redisnode.Request{Name: owner(), Value: owner(), TTL: ttl}
		acquire(t, node, r)
		warm(t, node)
		server.MustDo(t, "SET", redisnode.LockKey(r.Name), "another", "PX", ttl.Milliseconds())
		var state redisnode.State
		var err error
		if !sentTwice(t, proxy, r.Value, func() { state, err = node.Release(t.Context(), r.Name, r.Value) }, func() {}) || err != nil {
			return false
		}
		assert.Equal(t, redisnode.Mine, state)
		return true
	})
}

// With a timeout that is shorter than the time for which a caller goes to the driver alone, nobody does: it would be kept for longer than it is to wait.
func TestATimeoutTooShortToGoAloneHolds(t *testing.T) {
	server := lab.StartRedis(t)
	proxy := lab.StartProxy(t, server.Addr())
	client := newClient(t, &redis.Options{Addr: proxy.Addr(), ReadTimeout: 500 * time.Millisecond})
	node := newNode(t, client, &redisnode.Options{Timeout: tooShortToGoAlone})
	for range 300 { // on a busy machine, some are not answered in time
		_, _ = node.Inspect(t.Context(), "warm")
	}
	name := owner()
	var second func() bool
	first := make(chan struct{})
	proxy.OnRequest(name, func(l *lab.Link) {
		l.SetReplies(lab.Drop)
		second = proxy.OnRequest(name, func(*lab.Link) {})
		close(first)
	})
	_, err := node.Inspect(t.Context(), name)
	require.ErrorIs(t, err, redisnode.ErrTimeout)
	<-first
	assert.True(t, second(), "sent twice: its caller went alone first")
}

// Of a request that was sent twice, the error of the second copy says nothing about the first, which may have been granted.
func TestTheErrorOfASecondCopyIsUnknown(t *testing.T) {
	server, proxy, node := behindProxy(t)
	again(t, func() bool {
		r := redisnode.Request{Name: owner(), Value: owner(), TTL: ttl}
		mine := func() bool { return server.MustDo(t, "GET", redisnode.LockKey(r.Name)) == r.Value }
		warm(t, node)
		var err error
		twice := sentTwice(t, proxy, r.Value, func() { _, err = node.Acquire(t.Context(), r) }, func() {
			require.Eventually(t, mine, soon, time.Millisecond, "the first copy is carried out")
			server.MustDo(t, "REPLICAOF", "127.0.0.1", "1") // as after a fail-over: now it refuses writes
		})
		server.MustDo(t, "REPLICAOF", "NO", "ONE")
		if !twice || !redis.HasErrorPrefix(errors.Unwrap(err), "READONLY") {
			return false
		}
		assert.True(t, asError(t, err).Unknown, "said to be certainly not executed")
		assert.True(t, mine(), "R7: a ghost, and nobody takes it back")
		return true
	})
}
