package single_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/redisconn"
	"github.com/golockers/locker/single"
)

// bell counts wake-ups.
type bell struct{ rung chan struct{} }

func newBell() *bell { return &bell{make(chan struct{}, 1000)} }

func (b *bell) ring() { b.rung <- struct{}{} }

func (b *bell) rings(t *testing.T, why string) {
	t.Helper()
	select {
	case <-b.rung:
	case <-time.After(soon):
		t.Fatalf("not woken: %s", why)
	}
}

func (b *bell) silent(t *testing.T, d time.Duration, why string) {
	t.Helper()
	select {
	case <-b.rung:
		t.Fatalf("woken: %s", why)
	case <-time.After(d):
	}
}

func subscribe(t *testing.T, node *single.Node, name string, b *bell) (cancel func()) {
	t.Helper()
	cancel, err := node.Subscribe(t.Context(), name, b.ring)
	require.NoError(t, err)
	t.Cleanup(cancel)
	return cancel
}

// handOver takes the lock, lets somebody wait for it, and releases it.
func handOver(t *testing.T, node *single.Node, name string) {
	t.Helper()
	value := owner()
	require.True(t, acquire(t, node, single.Request{Name: name, Value: value, TTL: ttl}).Granted)
	require.False(t, acquire(t, node, single.Request{Name: name, Value: "waiter", TTL: ttl,
		Waiting: true}).Granted)
	state, err := node.Release(t.Context(), name, value)
	require.NoError(t, err)
	require.Equal(t, redisconn.Mine, state)
}

// subscribers lists the server's subscription connections.
func subscribers(t *testing.T, server *lab.Redis) []string {
	t.Helper()
	list, ok := server.MustDo(t, "CLIENT", "LIST", "TYPE", "PUBSUB").(string)
	require.True(t, ok)
	return strings.FieldsFunc(strings.TrimSpace(list), func(r rune) bool { return r == '\n' })
}

func TestAReleaseWakesAllWhoHaveSubscribed(t *testing.T) {
	server, node := setUp(t)
	other := newNode(t, newClient(t, &redis.Options{Addr: server.Addr()}), nil)
	here, elsewhere := newBell(), newBell()
	subscribe(t, node, "n", here)
	subscribe(t, other, "n", elsewhere)
	for range 20 {
		handOver(t, node, "n")
		here.rings(t, "release")
		elsewhere.rings(t, "release on another node")
	}
	_, err := node.TakeBack(t.Context(), "n", "nobody", ttl)
	require.NoError(t, err)
	here.silent(t, 50*time.Millisecond, "but nothing was released")
}

func TestATakeBackOfWhatWasGrantedWakes(t *testing.T) {
	_, node := setUp(t)
	b := newBell()
	subscribe(t, node, "n", b)
	acquire(t, node, single.Request{Name: "n", Value: "lost", TTL: ttl})
	acquire(t, node, single.Request{Name: "n", Value: "me", TTL: ttl, Waiting: true})
	_, err := node.TakeBack(t.Context(), "n", "lost", ttl)
	require.NoError(t, err)
	b.rings(t, "the lock was taken back")
}
