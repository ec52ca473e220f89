package single_test

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/clock"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/redisconn"
	"github.com/golockers/locker/single"
)

// load has the server know all scripts.
func load(t *testing.T, node *single.Node) {
	t.Helper()
	value := owner()
	acquire(t, node, single.Request{Name: value, Value: value, TTL: ttl})
	_, err := node.Renew(t.Context(), value, value, ttl)
	require.NoError(t, err)
	_, err = node.Release(t.Context(), value, value)
	require.NoError(t, err)
}

// warm makes so many quick requests that the next one goes to the driver in its caller's own goroutine.
func warm(t *testing.T, node *single.Node) {
	t.Helper()
	load(t, node)
	for range 200 {
		_, err := node.Inspect(t.Context(), "warm")
		require.NoError(t, err)
	}
}

func asError(t *testing.T, err error) *redisconn.Error {
	t.Helper()
	var e *redisconn.Error
	require.ErrorAs(t, err, &e)
	return e
}

// promptly is what a caller may take to notice that its context has ended, on a busy machine.
const promptly = time.Second

func TestCallersLeaveInTimeWhileTheServerHangs(t *testing.T) {
	for _, state := range []string{"cold", "warm"} {
		for _, end := range []string{"cancelled", "deadline", "limit"} {
			t.Run(state+" "+end, func(t *testing.T) {
				lab.NeedPause(t)
				server, node := setUp(t)
				if state == "warm" {
					warm(t, node)
				}
				server.Pause()
				ctx, cancel := context.WithCancel(t.Context())
				switch end {
				case "cancelled":
					time.AfterFunc(100*time.Millisecond, cancel)
				case "deadline":
					ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
				case "limit":
					limited := clock.Within(t.Context(), 100*time.Millisecond)
					ctx, cancel = limited, limited.Cancel
				}
				defer cancel()
				begin := time.Now()
				e := try(t, ctx, node)
				assert.Less(t, time.Since(begin), promptly)
				if end == "limit" {
					require.ErrorIs(t, e, redisconn.ErrTimeout)
				} else {
					require.ErrorIs(t, e, ctx.Err())
				}
				begin = time.Now()
				soonOver, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				_, err := node.Servers(soonOver)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				assert.Less(t, time.Since(begin), promptly)
				assert.True(t, e.Unknown, "it was sent")
				assert.False(t, e.Refused)
				server.Resume()
			})
		}
	}
}

func TestTimeoutHoldsWhateverTheDriversAre(t *testing.T) {
	lab.NeedPause(t)
	server := lab.StartRedis(t)
	client := newClient(t, &redis.Options{Addr: server.Addr(), ReadTimeout: -1, WriteTimeout: -1})
	const timeout = 300 * time.Millisecond
	node := newNode(t, client, &single.NodeOptions{Timeout: timeout})
	_, err := node.Inspect(t.Context(), "n")
	require.NoError(t, err)
	server.Pause()
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			begin := time.Now()
			_, err := node.Acquire(context.Background(), single.Request{Name: strconv.Itoa(i), Value: "me", TTL: ttl})
			assert.ErrorIs(t, err, redisconn.ErrTimeout)
			assert.GreaterOrEqual(t, time.Since(begin), timeout)
			assert.Less(t, time.Since(begin), timeout+promptly)
		})
	}
	all.Wait()
	server.Resume()
	require.Eventually(t, func() bool {
		_, err := node.Inspect(t.Context(), "n")
		return err == nil
	}, soon, 10*time.Millisecond, "it works again once the server does")
}

func TestAHungServerPilesNothingUp(t *testing.T) {
	lab.NeedPause(t)
	server, node := setUp(t)
	warm(t, node)
	server.Pause()
	defer server.Resume()
	before := runtime.NumGoroutine()
	for range 20 {
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				defer cancel()
				_, err := node.Release(ctx, "n", "me")
				assert.Error(t, err)
			})
		}
		all.Wait()
	}
	// Eight batches, and what the driver itself starts for each to connect.
	assert.Eventually(t, func() bool { return runtime.NumGoroutine()-before < 8+3*8 }, soon,
		time.Millisecond, "2000 callers have left")
}

func TestWhoLeavesTheQueueIsNeverSent(t *testing.T) {
	lab.NeedPause(t)
	server, node := setUp(t)
	again(t, func() bool {
		server.MustDo(t, "FLUSHALL")
		server.Pause()
		var mu sync.Mutex
		var unsent []string
		var all sync.WaitGroup
		ask := func(i int, patience time.Duration) {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				name := strconv.Itoa(i)
				_, err := node.Acquire(ctx, single.Request{Name: name, Value: "me", TTL: ttl})
				var e *redisconn.Error
				if assert.ErrorAs(t, err, &e) && !e.Unknown {
					mu.Lock()
					defer mu.Unlock()
					unsent = append(unsent, name)
				}
			})
		}
		// Eight batches hang, whose callers wait: there is no ninth.
		pool := node.Client().(*redis.Client)
		for i := range 8 {
			ask(i, time.Second)
			require.Eventually(t, func() bool {
				s := pool.PoolStats()
				return s.TotalConns-s.IdleConns > uint32(i)
			}, soon, time.Millisecond)
		}
		for i := range 30 {
			ask(8+i, 300*time.Millisecond)
		}
		all.Wait()
		server.Resume()
		require.Eventually(t, func() bool {
			_, err := node.Inspect(t.Context(), "n")
			return err == nil
		}, soon, 10*time.Millisecond)
		for _, name := range unsent {
			assert.Equal(t, int64(0), server.MustDo(t, "EXISTS", redisconn.LockKey(name)),
				"said not to be sent, and yet it was")
		}
		return len(unsent) > 20
	})
}

func TestHungConnectionsDoNotHoldUpTheOthers(t *testing.T) {
	server := lab.StartRedis(t)
	proxy := lab.StartProxy(t, server.Addr())
	node := newNode(t, newClient(t, &redis.Options{Addr: proxy.Addr()}), nil)
	load(t, node)
	proxy.SetDelay(20 * time.Millisecond)
	_, err := node.Inspect(t.Context(), "n") // slow enough that the next does not go alone, to be sent again
	require.NoError(t, err)
	proxy.SetDelay(0)
	ctx := t.Context()
	var hangs sync.WaitGroup
	var links []*lab.Link
	for i := range 4 {
		name := fmt.Sprint("stuck ", i)
		held := make(chan *lab.Link, 1)
		proxy.OnRequest(name, func(l *lab.Link) {
			l.SetRequests(lab.Hold)
			held <- l
		})
		hangs.Go(func() {
			a, err := node.Acquire(ctx, single.Request{Name: name, Value: "me", TTL: ttl})
			assert.NoError(t, err, "its connection is silent, and others are not: it asks again")
			assert.True(t, a.Granted)
		})
		links = append(links, <-held)
	}
	for i := range 20 {
		begin := time.Now()
		a, err := node.Acquire(ctx, single.Request{Name: strconv.Itoa(i), Value: "me", TTL: ttl})
		require.NoError(t, err)
		require.True(t, a.Granted)
		require.Less(t, time.Since(begin), promptly)
	}
	hangs.Wait()
	for _, link := range links {
		link.SetRequests(lab.Pass)
	}
}

func TestForgottenScriptsAreSentAgain(t *testing.T) {
	server, node := setUp(t)
	all := func(why string) {
		t.Helper()
		var callers sync.WaitGroup
		for i := range 100 {
			callers.Go(func() {
				name := fmt.Sprint(why, i)
				a, err := node.Acquire(t.Context(), single.Request{Name: name, Value: "me", TTL: ttl})
				assert.NoError(t, err, why)
				assert.True(t, a.Granted)
				state, err := node.Release(t.Context(), name, "me")
				assert.NoError(t, err, why)
				assert.Equal(t, redisconn.Mine, state)
			})
		}
		callers.Wait()
	}
	all("first use")
	server.MustDo(t, "SCRIPT", "FLUSH")
	all("SCRIPT FLUSH")
	warm(t, node)
	server.MustDo(t, "SCRIPT", "FLUSH")
	a := acquire(t, node, single.Request{Name: "alone", Value: "me", TTL: ttl})
	assert.True(t, a.Granted)
	assert.False(t, a.Again)
	server.Restart(t)
	all("restart")
}

func TestConcurrentCallersShareRoundTrips(t *testing.T) {
	server, node := setUp(t)
	reads := func() int {
		n, err := strconv.Atoi(server.Info(t, "stats")["total_reads_processed"])
		require.NoError(t, err)
		return n
	}
	warm(t, node)
	before := reads()
	const callers, each = 256, 20
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for range each {
				_, err := node.Renew(t.Context(), strconv.Itoa(i), "me", ttl)
				assert.NoError(t, err)
			}
		})
	}
	all.Wait()
	assert.Less(t, reads()-before, callers*each/4, "the server has read this often, for %d requests",
		callers*each)
}

func TestCloseEndsWhatIsUnderWay(t *testing.T) {
	lab.NeedPause(t)
	server := lab.StartRedis(t)
	client := newClient(t, &redis.Options{Addr: server.Addr()})
	node, err := single.NewNode(client, nil)
	require.NoError(t, err)
	_, err = node.Inspect(t.Context(), "n")
	require.NoError(t, err)
	server.Pause()
	defer server.Resume()
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			_, err := node.Release(t.Context(), "n", "me")
			assert.ErrorIs(t, err, redisconn.ErrClosed)
		})
	}
	all.Go(func() {
		_, err := node.Subscribe(t.Context(), "n", func() {})
		assert.ErrorIs(t, err, redisconn.ErrClosed)
	})
	all.Go(func() {
		_, err := node.Servers(t.Context())
		assert.ErrorIs(t, err, redisconn.ErrClosed)
	})
	time.Sleep(50 * time.Millisecond) // most are under way; those that are not see a closed node
	begin := time.Now()
	err = node.Close()
	assert.Less(t, time.Since(begin), 2*promptly)
	if err != nil {
		assert.NotErrorIs(t, err, redisconn.ErrClosed)
		assert.ErrorContains(t, err, "does not answer")
	}
	all.Wait()
	require.NoError(t, client.Close(), "with the client, the driver's last calls end")
}

// wrapped is a client of a kind that this package does not know.
type wrapped struct{ redis.UniversalClient }

func TestAnyUniversalClientWillDo(t *testing.T) {
	server := lab.StartRedis(t, lab.WithSocket())
	tcp := newClient(t, &redis.Options{Addr: server.Addr()})
	auto, err := newClient(t, &redis.Options{Addr: server.Addr()}).AutoPipeline()
	require.NoError(t, err)
	certs := lab.NewCerts(t)
	encrypted := lab.StartRedis(t, lab.WithTLS(certs))
	for name, client := range map[string]redis.UniversalClient{
		"TCP":            tcp,
		"RESP2":          newClient(t, &redis.Options{Addr: server.Addr(), Protocol: 2}),
		"unix socket":    newClient(t, &redis.Options{Network: "unix", Addr: server.Socket()}),
		"TLS":            newClient(t, &redis.Options{Addr: encrypted.Addr(), TLSConfig: certs.ClientConfig()}),
		"database 3":     newClient(t, &redis.Options{Addr: server.Addr(), DB: 3}),
		"autopipeline":   auto,
		"wrapped":        wrapped{tcp},
		"one connection": newClient(t, &redis.Options{Addr: server.Addr(), PoolSize: 1, PipelinePoolSize: -1}),
		"ctx time-outs":  newClient(t, &redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true}),
	} {
		t.Run(name, func(t *testing.T) {
			node := newNode(t, client, nil)
			woken := make(chan struct{}, 100)
			cancel, err := node.Subscribe(t.Context(), name, func() { woken <- struct{}{} })
			require.NoError(t, err)
			defer cancel()
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() {
					for range 20 {
						value := owner()
						a, err := node.Acquire(t.Context(), single.Request{Name: name, Value: value, TTL: ttl, Waiting: true})
						assert.NoError(t, err)
						if !a.Granted {
							continue
						}
						_, err = node.Renew(t.Context(), name, value, ttl)
						assert.NoError(t, err)
						state, err := node.Release(t.Context(), name, value)
						assert.NoError(t, err)
						assert.Equal(t, redisconn.Mine, state)
					}
				})
			}
			all.Wait()
			acquire(t, node, single.Request{Name: name, Value: "holder", TTL: ttl})
			for len(woken) > 0 {
				<-woken
			}
			acquire(t, node, single.Request{Name: name, Value: "me", TTL: ttl, Waiting: true})
			_, err = node.Release(t.Context(), name, "holder")
			require.NoError(t, err)
			select {
			case <-woken:
			case <-time.After(soon):
				t.Fatal("not woken")
			}
			s, err := node.Inspect(t.Context(), name)
			require.NoError(t, err)
			assert.False(t, s.Held)
			servers, err := node.Servers(t.Context())
			require.NoError(t, err)
			assert.Equal(t, "master", servers[0].Role)
		})
	}
}
