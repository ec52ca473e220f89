package redisnode_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/clock"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/internal/redisnode"
)

// promptly is what a caller may take to notice that its context has ended, on a busy machine.
const promptly = time.Second

func TestCallersLeaveInTimeWhileTheServerHangs(t *testing.T) {
	for _, state := range []string{"cold", "warm"} {
		for _, end := range []string{"cancelled", "deadline", "limit"} {
			t.Run(state+" "+end, func(t *testing.T) {
				lab.NeedPause(t)
				lab.Again(t, func() bool { // a busy machine may not send it in that time
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
						require.ErrorIs(t, e, redisnode.ErrTimeout)
					} else {
						require.ErrorIs(t, e, ctx.Err())
					}
					begin = time.Now()
					soonOver := locktest.Within(t, 100*time.Millisecond)
					_, err := node.Servers(soonOver)
					require.ErrorIs(t, err, context.DeadlineExceeded)
					assert.Less(t, time.Since(begin), promptly)
					assert.False(t, e.Refused)
					server.Resume()
					return e.Unknown // it was sent
				})
			})
		}
	}
}

// On a Cluster the driver asks first which servers there are, with its own patience.
func TestQuestionsToASilentClusterEndWithTheirContext(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and says nothing
	require.NoError(t, err)
	node := newAsker(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{l.Addr().String()}}))
	t.Cleanup(func() { _ = l.Close() }) // before the driver: it waits no longer
	for what, ask := range map[string]func(ctx context.Context) error{
		"Names":   func(ctx context.Context) error { return node.Names(ctx, "", nil) },
		"Servers": func(ctx context.Context) error { _, err := node.Servers(ctx); return err },
	} {
		begin := time.Now()
		require.ErrorIs(t, ask(locktest.Within(t, 100*time.Millisecond)), context.DeadlineExceeded, what)
		assert.Less(t, time.Since(begin), promptly, what)
	}
}

// A caller alone is in its own goroutine, and leaves in time also where the driver has no connection for it.
func TestACallerAloneWithoutAConnectionLeavesInTime(t *testing.T) {
	for _, why := range []string{"the dial hangs", "the pool is busy"} {
		t.Run(why, func(t *testing.T) {
			server := lab.StartRedis(t)
			var hangs atomic.Bool
			var dials atomic.Int32
			over := make(chan struct{})
			defer func() {
				close(over)
				require.Eventually(t, func() bool { return dials.Load() == 0 }, soon, time.Millisecond)
			}()
			opts := &redis.Options{Addr: server.Addr(), PoolSize: 1, PipelinePoolSize: -1, DialerRetries: 1}
			dial := redis.NewDialer(opts)
			opts.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				if hangs.Load() {
					dials.Add(1)
					defer dials.Add(-1)
					<-over
					return nil, errors.New("no connection")
				}
				return dial(ctx, network, addr)
			}
			opts.DialTimeout = 4 * time.Second
			client := redis.NewClient(opts)
			node := newAsker(t, client)
			warm(t, node)
			busy := make(chan struct{})
			if why == "the pool is busy" {
				go func() {
					defer close(busy)
					_ = client.BLPop(context.Background(), 3*time.Second, "nothing").Err()
				}()
				require.Eventually(t, func() bool { return client.PoolStats().IdleConns == 0 }, soon, time.Millisecond)
			} else {
				hangs.Store(true)
				server.MustDo(t, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
				close(busy)
			}
			ctx := locktest.Within(t, 200*time.Millisecond)
			begin := time.Now()
			_, err := node.take(ctx, "n", "me")
			assert.Less(t, time.Since(begin), promptly)
			if why == "the dial hangs" { // otherwise a copy goes on a connection of its own
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
			<-busy
		})
	}
}

// A new connection takes several answers, each of which a slow server may give just in time.
func TestACallerAloneDoesNotWaitForEachAnswerOfANewConnection(t *testing.T) {
	server := lab.StartRedis(t)
	proxy := lab.StartProxy(t, server.Addr())
	lab.Again(t, func() bool {
		proxy.SetDelay(0)
		opts := &redis.Options{Addr: proxy.Addr(), DB: 1, ClientName: "me", PipelinePoolSize: -1}
		dial := redis.NewDialer(opts)
		made := make(chan net.Conn, 100)
		opts.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			made <- conn
			return conn, err
		}
		node := newAsker(t, redis.NewClient(opts))
		warm(t, node)
		proxy.SetDelay(20 * time.Millisecond) // each way
		for len(made) > 0 {
			_ = (<-made).Close()
		}
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan time.Time, 1)
		time.AfterFunc(time.Millisecond, func() { left <- time.Now(); cancel() })
		_, _ = node.take(ctx, "n", "me")
		return time.Since(<-left) < 100*time.Millisecond
	})
}

// A question on a connection that is never answered leaves its place to others, whatever the driver's timeouts are.
func TestQuestionsThatHangLeaveTheirPlaces(t *testing.T) {
	_, proxy, hung := behindProxy(t, 300*time.Millisecond, redis.Options{ReadTimeout: -1, WriteTimeout: -1})
	for range 4 {
		proxy.OnRequest("info", func(l *lab.Link) { l.Requests(lab.Hold) })
		_, err := hung.Servers(t.Context())
		require.ErrorIs(t, err, redisnode.ErrTimeout)
	}
	require.Eventually(t, func() bool {
		_, err := hung.Servers(t.Context())
		return err == nil
	}, 2*soon, 10*time.Millisecond, "new connections answer")
}

func TestTimeoutHoldsWhateverTheDriversAre(t *testing.T) {
	lab.NeedPause(t)
	server := lab.StartRedis(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), ReadTimeout: -1, WriteTimeout: -1})
	const timeout = 300 * time.Millisecond
	node := askerWithin(t, client, timeout)
	_, err := node.inspect(t.Context(), "n")
	require.NoError(t, err)
	server.Pause()
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			begin := time.Now()
			_, err := node.take(context.Background(), strconv.Itoa(i), "me")
			assert.ErrorIs(t, err, redisnode.ErrTimeout)
			assert.GreaterOrEqual(t, time.Since(begin), timeout)
			assert.Less(t, time.Since(begin), timeout+promptly)
		})
	}
	all.Wait()
	server.Resume()
	require.Eventually(t, func() bool {
		_, err := node.inspect(t.Context(), "n")
		return err == nil
	}, soon, 10*time.Millisecond, "it works again once the server does")
}

func TestHungConnectionsDoNotHoldUpTheOthers(t *testing.T) {
	_, proxy, node := behindProxy(t, 2*soon, redis.Options{})
	load(t, node)
	proxy.SetDelay(20 * time.Millisecond)
	_, err := node.inspect(t.Context(), "n") // slow enough that the next does not go alone, to be sent again
	require.NoError(t, err)
	proxy.SetDelay(0)
	ctx := t.Context()
	var hangs sync.WaitGroup
	var links []*lab.Link
	for i := range 4 {
		name := fmt.Sprint("stuck ", i)
		held := make(chan *lab.Link, 1)
		proxy.OnRequest(name, func(l *lab.Link) {
			l.Requests(lab.Hold)
			held <- l
		})
		hangs.Go(func() {
			a, err := node.take(ctx, name, "me")
			assert.NoError(t, err, "its connection is silent, and others are not: it asks again")
			assert.Equal(t, redisnode.Done, a)
		})
		links = append(links, <-held)
	}
	for i := range 20 {
		begin := time.Now()
		a, err := node.take(ctx, strconv.Itoa(i), "me")
		require.NoError(t, err)
		require.Equal(t, redisnode.Done, a)
		require.Less(t, time.Since(begin), soon)
	}
	hangs.Wait()
	for _, link := range links {
		link.Requests(lab.Pass)
	}
}

func TestForgottenScriptsAreSentAgain(t *testing.T) {
	server, node := setUp(t)
	load(t, node)
	lab.Again(t, func() bool { // on a busy machine copies are sent, too
		server.MustDo(t, "SCRIPT", "FLUSH")
		before := server.Commands(t)
		server.AllAtOnce(t, 128, func(i int) {
			a, err := node.take(t.Context(), strconv.Itoa(i), "me")
			assert.NoError(t, err)
			assert.Equal(t, redisnode.Done, a)
		})
		return server.Commands(t).Since(before)["eval"] <= 8 // one for each batch at most
	})
	warm(t, node)
	server.MustDo(t, "SCRIPT", "FLUSH")
	assert.Equal(t, redisnode.Done, node.mustTake(t, "alone", "me"))
}

func TestAnyClientWillDo(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	server := lab.StartRedis(t, lab.WithConfig("unixsocket", socket))
	certs := lab.NewCerts(t)
	encrypted := lab.StartRedis(t, lab.WithTLS(certs))
	for name, client := range map[string]redis.UniversalClient{
		"TCP":            redis.NewClient(&redis.Options{Addr: server.Addr()}),
		"RESP2":          redis.NewClient(&redis.Options{Addr: server.Addr(), Protocol: 2}),
		"unix socket":    redis.NewClient(&redis.Options{Network: "unix", Addr: socket}),
		"TLS":            redis.NewClient(&redis.Options{Addr: encrypted.Addr(), TLSConfig: certs.ClientConfig()}),
		"database 3":     redis.NewClient(&redis.Options{Addr: server.Addr(), DB: 3}),
		"one connection": redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: 1, PipelinePoolSize: -1}),
		"ctx time-outs":  redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true}),
	} {
		t.Run(name, func(t *testing.T) {
			node := newAsker(t, client)
			woken, _ := node.subscribe(t, name)
			var all sync.WaitGroup
			for i := range 20 {
				all.Go(func() {
					a, err := node.take(t.Context(), fmt.Sprint(i), name)
					assert.NoError(t, err)
					assert.Equal(t, redisnode.Done, a)
					_, err = node.drop(t.Context(), fmt.Sprint(i), name)
					assert.NoError(t, err)
				})
			}
			all.Wait()
			node.handOver(t, name)
			told(t, woken, "release")
			locktest.Eventually(t, soon, "it is free", func() bool {
				s, err := node.inspect(t.Context(), name)
				require.NoError(t, err)
				if s.Held { // a copy of the holder's request has come late, since the machine is busy
					_, err = node.drop(t.Context(), name, "holder")
					require.NoError(t, err)
				}
				return !s.Held
			})
			servers, err := node.Servers(t.Context())
			require.NoError(t, err)
			assert.Equal(t, "master", servers[0].Role)
		})
	}
}

func TestAKeyThatTheACLForbidsIsItsCallersAlone(t *testing.T) {
	server := lab.StartRedis(t, lab.WithUser("locker", "on", ">secret", "+@all", "~locker:2:*"))
	node := newAsker(t, redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "locker",
		Password: "secret"}))
	load(t, node)
	// As narrow as a rule can be: all names but those with an x.
	server.MustDo(t, "ACL", "SETUSER", "locker", "resetkeys", "~locker:2:*[0-9]}*", "~locker:2:tokens")
	server.AllAtOnce(t, 64, func(i int) {
		name := "n" + strconv.Itoa(i)
		if i%8 == 7 {
			name += "x"
		}
		a, err := node.take(t.Context(), name, "me")
		if i%8 == 7 {
			var e *redisnode.Error
			if assert.ErrorAs(t, err, &e) {
				assert.True(t, e.Refused)
			}
			return
		}
		assert.NoError(t, err)
		assert.Equal(t, redisnode.Done, a)
	})
}

func TestAWrongPasswordIsRefusedToEachOfMany(t *testing.T) {
	server := lab.StartRedis(t, lab.WithUser("default", "off"),
		lab.WithUser("locker", "on", ">secret", "+@all", "~*"))
	node := newAsker(t, redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "locker",
		Password: "wrong"}))
	var all sync.WaitGroup
	began := time.Now()
	for i := range 64 {
		all.Go(func() {
			_, err := node.take(t.Context(), strconv.Itoa(i), "me")
			var e *redisnode.Error
			if assert.ErrorAs(t, err, &e) {
				assert.True(t, e.Refused, e)
				// On a machine that stalls, a connection may look silent first.
				assert.False(t, e.Unknown && time.Since(began) < 100*time.Millisecond, "nothing was sent")
				assert.NotContains(t, e.Error(), "wrong\"")
			}
		})
	}
	all.Wait()
}

func TestForgottenScriptsAreNotSentForWhoHasLeft(t *testing.T) {
	server, proxy, node := behindProxy(t, 2*soon, redis.Options{ReadTimeout: 500 * time.Millisecond})
	load(t, node)
	server.MustDo(t, "SCRIPT", "FLUSH")
	value := rand.Text()
	held := make(chan *lab.Link, 1)
	proxy.OnRequest(value, func(l *lab.Link) {
		l.Replies(lab.Hold)
		held <- l
	})
	for sent := false; !sent; { // a busy machine may not send it in that time
		ctx, cancel := context.WithTimeout(t.Context(), 40*time.Millisecond) // too short to go alone
		_, err := node.take(ctx, "n", value)
		sent = asError(t, err).Unknown
		cancel()
	}
	(<-held).Replies(lab.Pass) // NOSCRIPT arrives
	time.Sleep(50 * time.Millisecond)
	assert.Equal(t, int64(0), server.MustDo(t, "EXISTS", redisnode.LockKey("n")),
		"locked for a caller who has left long ago")
}

// A list inspects some locks at the same time, and yields them in the order of their names.
func TestEachInspectsSeveralAtTheSameTime(t *testing.T) {
	names := []string{"0", "1", "2", "3", "4", "5"}
	ctx, meeting := locktest.Within(t, soon), make(chan struct{})
	var found []string
	for name, err := range redisnode.Each(ctx, names, func(ctx context.Context, name string) (string, error) {
		select { // each is under way while another is
		case meeting <- struct{}{}:
		case <-meeting:
		case <-ctx.Done():
		}
		return name, ctx.Err()
	}) {
		require.NoError(t, err)
		found = append(found, name)
	}
	assert.Equal(t, names, found)
}
