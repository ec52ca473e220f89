package single_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
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
	first, second, elsewhere, stranger := newBell(), newBell(), newBell(), newBell()
	subscribe(t, node, "n", first)
	subscribe(t, node, "n", second)
	subscribe(t, other, "n", elsewhere)
	subscribe(t, node, "other", stranger)
	for range 20 {
		// At once after the subscription and after each other: none may be missed.
		handOver(t, node, "n")
		first.rings(t, "release")
		second.rings(t, "release")
		elsewhere.rings(t, "release on another node")
	}
	_, err := node.TakeBack(t.Context(), "n", "nobody", ttl)
	require.NoError(t, err)
	first.silent(t, 50*time.Millisecond, "but nothing was released")
	assert.Empty(t, stranger.rung)
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

func TestSubscriptionsShareAConnectionAndEndWithTheirWaiters(t *testing.T) {
	server := lab.StartRedis(t)
	const linger = 200 * time.Millisecond
	node := newNode(t, newClient(t, &redis.Options{Addr: server.Addr()}), &single.NodeOptions{Linger: linger})
	require.Empty(t, subscribers(t, server), "nobody waits yet")
	before := server.Commands(t)
	var cancels []func()
	for i := range 50 {
		for range 3 {
			cancels = append(cancels, subscribe(t, node, fmt.Sprint(i), newBell()))
		}
	}
	assert.Len(t, subscribers(t, server), 1)
	assert.LessOrEqual(t, int(server.Commands(t).Since(before).ByName["subscribe"]), 50,
		"once per name at most, not per waiter")
	assert.Len(t, server.MustDo(t, "PUBSUB", "CHANNELS", "locker:*"), 50)

	for _, cancel := range cancels[3:] {
		cancel()
		cancel() // does nothing
	}
	require.Eventually(t, func() bool {
		channels, _ := server.MustDo(t, "PUBSUB", "CHANNELS", "locker:*").([]any)
		return len(channels) == 1
	}, soon, linger/10)
	cancels[0]()
	cancels[1]()
	time.Sleep(2 * linger)
	assert.Len(t, subscribers(t, server), 1, "somebody still waits")
	cancels[2]()
	require.Eventually(t, func() bool { return len(subscribers(t, server)) == 0 }, soon, linger/10)

	b := newBell()
	subscribe(t, node, "n", b)
	handOver(t, node, "n")
	b.rings(t, "a connection of its own again")
}

func TestABusyNameKeepsItsSubscription(t *testing.T) {
	server, node := setUp(t)
	before := server.Commands(t)
	for range 100 {
		subscribe(t, node, "n", newBell())()
	}
	assert.Equal(t, int64(1), server.Commands(t).Since(before).ByName["subscribe"])
}

func TestAWaiterThatHasLeftIsNotWoken(t *testing.T) {
	_, node := setUp(t)
	stays, leaves := newBell(), newBell()
	subscribe(t, node, "n", stays)
	subscribe(t, node, "n", leaves)()
	handOver(t, node, "n")
	stays.rings(t, "release")
	leaves.silent(t, 20*time.Millisecond, "after it had cancelled")
}

func TestWhoIsCancelledByAnotherWakeIsNotWoken(t *testing.T) {
	_, node := setUp(t)
	var cancels [2]func()
	var calls atomic.Int64
	for i := range cancels {
		cancel, err := node.Subscribe(t.Context(), "n", func() {
			calls.Add(1)
			cancels[1-i]()
		})
		require.NoError(t, err)
		cancels[i] = cancel
	}
	after := newBell()
	subscribe(t, node, "after", after)
	handOver(t, node, "n")
	handOver(t, node, "after")
	after.rings(t, "one goroutine calls them all, so the others' calls are over")
	assert.Equal(t, int64(1), calls.Load())
}

func TestALostConnectionWakesEverybodyOnceItIsBack(t *testing.T) {
	server, node := setUp(t)
	first, second := newBell(), newBell()
	subscribe(t, node, "first", first)
	subscribe(t, node, "second", second)
	for range 3 {
		killed, ok := server.MustDo(t, "CLIENT", "KILL", "TYPE", "pubsub").(int64)
		require.True(t, ok)
		require.Equal(t, int64(1), killed)
		first.rings(t, "messages may have been lost")
		second.rings(t, "messages may have been lost")
		for len(first.rung) > 0 {
			<-first.rung
		}
		handOver(t, node, "first")
		first.rings(t, "a release after the reconnection")
	}
	server.Restart(t)
	first.rings(t, "the server was restarted")
}

func TestASilentConnectionIsMadeAgain(t *testing.T) {
	server := lab.StartRedis(t)
	proxy := lab.StartProxy(t, server.Addr())
	client := newClient(t, &redis.Options{Addr: proxy.Addr()})
	node := newNode(t, client, &single.NodeOptions{Silence: 700 * time.Millisecond})
	b := newBell()
	var subscription *lab.Link
	proxy.OnRequest("subscribe", func(l *lab.Link) { subscription = l })
	subscribe(t, node, "n", b)
	b.silent(t, 2*time.Second, "the connection is well, it answers pings")
	subscription.SetReplies(lab.Drop)
	b.rings(t, "the connection gave no sign of life")
	handOver(t, node, "n")
	b.rings(t, "a release on the new connection")
}

func TestSubscribeReturnsWhenItsContextEnds(t *testing.T) {
	lab.NeedPause(t)
	server, node := setUp(t)
	_, err := node.Inspect(t.Context(), "n")
	require.NoError(t, err)
	server.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, err = node.Subscribe(ctx, "n", func() {})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.False(t, asError(t, err).Unknown)
	assert.Less(t, time.Since(begin), promptly)
	server.Resume()
	b := newBell()
	require.Eventually(t, func() bool {
		cancel, err := node.Subscribe(t.Context(), "n", b.ring)
		if err == nil {
			t.Cleanup(cancel)
		}
		return err == nil
	}, soon, 10*time.Millisecond)
	handOver(t, node, "n")
	b.rings(t, "release")
}

func TestManyNamesComeAndGo(t *testing.T) {
	server := lab.StartRedis(t)
	node := newNode(t, newClient(t, &redis.Options{Addr: server.Addr()}),
		&single.NodeOptions{Linger: 5 * time.Millisecond})
	var all sync.WaitGroup
	var hangs atomic.Int64
	stop := time.Now().Add(2 * time.Second)
	for i := range 20 {
		all.Go(func() {
			for n := 0; time.Now().Before(stop); n++ {
				name := fmt.Sprint(i, " ", n%3)
				woken := make(chan struct{}, 100)
				cancel, err := node.Subscribe(t.Context(), name, func() {
					select {
					case woken <- struct{}{}:
					default:
					}
				})
				if !assert.NoError(t, err) {
					return
				}
				value := owner()
				_, err = node.Acquire(t.Context(), single.Request{Name: name, Value: value, TTL: ttl})
				assert.NoError(t, err)
				_, err = node.Acquire(t.Context(), single.Request{Name: name, Value: "me", TTL: ttl, Waiting: true})
				assert.NoError(t, err)
				_, err = node.Release(t.Context(), name, value)
				assert.NoError(t, err)
				select {
				case <-woken:
				case <-time.After(soon):
					hangs.Add(1)
				}
				cancel()
				if n%5 == 0 {
					time.Sleep(10 * time.Millisecond) // long enough for the subscription to end
				}
			}
		})
	}
	all.Wait()
	assert.Zero(t, hangs.Load(), "waiters that nobody has woken")
}

func TestWakesMayCallBack(t *testing.T) {
	_, node := setUp(t)
	done := make(chan struct{})
	var once sync.Once
	var cancel func()
	cancel, err := node.Subscribe(t.Context(), "n", func() {
		once.Do(func() {
			go func() {
				again, err := node.Subscribe(t.Context(), "n", func() {})
				assert.NoError(t, err)
				again()
				close(done)
			}()
			cancel()
		})
	})
	require.NoError(t, err)
	handOver(t, node, "n")
	select {
	case <-done:
	case <-time.After(soon):
		t.Fatal("a lock was held while wake ran")
	}
}
