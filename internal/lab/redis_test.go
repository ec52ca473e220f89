package lab_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/internal/lab"
)

// client returns a client that does not try again and is closed with the test.
func client(t *testing.T, opts *redis.Options) *redis.Client {
	t.Helper()
	opts.MaxRetries = -1
	opts.DialerRetries = 1
	if opts.ReadTimeout == 0 {
		opts.ReadTimeout = 5 * time.Second
	}
	c := redis.NewClient(opts)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestRedisAnswersAsSoonAsItIsStarted(t *testing.T) {
	r := lab.StartRedis(t)
	require.NoError(t, client(t, &redis.Options{Addr: r.Addr()}).Set(t.Context(), "k", "v", 0).Err())
	assert.Equal(t, "v", r.MustDo(t, "GET", "k"))
	assert.Nil(t, r.MustDo(t, "GET", "absent"))
	assert.Equal(t, int64(1), r.MustDo(t, "DEL", "k"))
	assert.Equal(t, []any{nil, nil}, r.MustDo(t, "MGET", "a", "b"))
	_, err := r.Do("NOSUCH", "secret")
	var reply lab.ReplyError
	require.ErrorAs(t, err, &reply)
	assert.Contains(t, string(reply), "ERR unknown command")
	assert.Equal(t, "", r.MustDo(t, "CONFIG", "GET", "save").([]any)[1], "a server for tests saves nothing")
}

func TestRedisListensOnLoopbackOnly(t *testing.T) {
	r := lab.StartRedis(t)
	assert.Equal(t, []any{"bind", "127.0.0.1"}, r.MustDo(t, "CONFIG", "GET", "bind"))
}

func TestRedisServersOfManyTestsDoNotShareAPort(t *testing.T) {
	lab.Need(t, lab.ToolRedis) // where a skip is a skip
	const n = 8
	var wg sync.WaitGroup
	servers := make([]*lab.Redis, n)
	for i := range n {
		wg.Go(func() { servers[i] = lab.StartRedis(t) })
	}
	wg.Wait()
	for i, r := range servers {
		r.MustDo(t, "SET", "me", i)
	}
	for i, r := range servers {
		assert.Equal(t, fmt.Sprint(i), r.MustDo(t, "GET", "me"))
		assert.Equal(t, fmt.Sprint(r.Pid()), r.Info(t, "server")["process_id"])
	}
}

func TestRedisPausedDoesNotAnswerAndCatchesUp(t *testing.T) {
	r := lab.StartRedis(t)
	c := client(t, &redis.Options{Addr: r.Addr(), ReadTimeout: 100 * time.Millisecond})
	require.NoError(t, c.Ping(t.Context()).Err())
	r.Pause()
	err := c.Set(t.Context(), "k", "late", 0).Err()
	var timeout net.Error
	require.ErrorAs(t, err, &timeout, "a paused server must not answer")
	assert.True(t, timeout.Timeout())
	assert.True(t, r.Running())
	r.Resume()
	require.Eventually(t, func() bool { return r.MustDo(t, "GET", "k") == "late" }, 5*time.Second,
		5*time.Millisecond,
		"what was sent during a pause is carried out after it")
}

func TestRedisKilledComesBackEmptyOnTheSamePort(t *testing.T) {
	r := lab.StartRedis(t)
	r.MustDo(t, "SET", "k", "v")
	addr, pid := r.Addr(), r.Pid()
	r.Kill()
	assert.False(t, r.Running())
	_, err := connect(addr)
	require.Error(t, err, "a killed server must not accept")
	r.Kill() // does no harm
	r.Restart(t)
	assert.Equal(t, addr, r.Addr())
	assert.NotEqual(t, pid, r.Pid())
	assert.Nil(t, r.MustDo(t, "GET", "k"), "without persistence nothing survives")
	r.MustDo(t, "SET", "k", "v")
	r.Restart(t) // one that runs
	assert.Nil(t, r.MustDo(t, "GET", "k"))
}

func TestRedisPausedCanBeKilledAndStopped(t *testing.T) {
	r := lab.StartRedis(t)
	r.Pause()
	r.Kill()
	assert.False(t, r.Running())
	r.Restart(t)
	r.Pause()
	r.Stop()
	assert.False(t, r.Running())
	assert.Contains(t, r.Log(), "Redis is now ready to exit", "Stop ends a server in good order")
}

func TestRedisAppendOnlySurvivesAKill(t *testing.T) {
	r := lab.StartRedis(t, lab.WithAppendOnly())
	r.MustDo(t, "SET", "k", "v")
	r.Kill()
	r.Restart(t)
	assert.Equal(t, "v", r.MustDo(t, "GET", "k"))
	assert.Equal(t, []any{"appendfsync", "always"}, r.MustDo(t, "CONFIG", "GET", "appendfsync"))
}

func TestRedisIsNotReadyWhileItLoadsItsData(t *testing.T) {
	r := lab.StartRedis(t, lab.WithAppendOnly(),
		lab.WithConfig("key-load-delay", "100")) // µs per key
	// While it loads, a server answers after every 1024th command.
	r.MustDo(t, "EVAL", `for i = 1, 3000 do redis.call("SET", i, "some text") end`, 0)
	r.Restart(t)
	assert.Equal(t, "some text", r.MustDo(t, "GET", "2999"))
}

func TestRedisPasswordAndUsers(t *testing.T) {
	r := lab.StartRedis(t,
		lab.WithPassword(`open "sesame" \ é`),
		lab.WithUser("alice", "on", ">wonder", "~lock:*", "+get", "+hello", "+client"))
	assert.ErrorContains(t, client(t, &redis.Options{Addr: r.Addr()}).Ping(t.Context()).Err(), "NOAUTH")
	require.NoError(t, client(t, &redis.Options{Addr: r.Addr(),
		Password: `open "sesame" \ é`}).Ping(t.Context()).Err())
	alice := client(t, &redis.Options{Addr: r.Addr(), Username: "alice", Password: "wonder"})
	assert.ErrorIs(t, alice.Get(t.Context(), "lock:a").Err(), redis.Nil)
	assert.ErrorContains(t, alice.Get(t.Context(), "other").Err(), "NOPERM")
	r.MustDo(t, "SET", "other", "1") // Do may do everything
}

func TestRedisUnixSocket(t *testing.T) {
	r := lab.StartRedis(t, lab.WithSocket())
	c := client(t, &redis.Options{Network: "unix", Addr: r.Socket()})
	require.NoError(t, c.Set(t.Context(), "k", "v", 0).Err())
	r.Restart(t)
	assert.NoError(t, c.Ping(t.Context()).Err(), "a socket left over by a killed server is no obstacle")
	assert.LessOrEqual(t, len(r.Socket()), 103)
}

func TestRedisTLS(t *testing.T) {
	certs := lab.NewCerts(t)
	r := lab.StartRedis(t, lab.WithTLS(certs))
	r.MustDo(t, "SET", "k", "v")
	assert.Same(t, certs, r.Certs())
	require.NoError(t, client(t, &redis.Options{Addr: r.Addr(),
		TLSConfig: certs.ClientConfig()}).Ping(t.Context()).Err())

	byAddress := certs.ClientConfig()
	byAddress.ServerName = "127.0.0.1"
	byAddress.Certificates = nil
	require.NoError(t, client(t, &redis.Options{Addr: r.Addr(), TLSConfig: byAddress}).Ping(t.Context()).Err())

	stranger := lab.NewCerts(t).ClientConfig()
	var unknown *tls.CertificateVerificationError
	assert.ErrorAs(t, client(t, &redis.Options{Addr: r.Addr(),
		TLSConfig: stranger}).Ping(t.Context()).Err(), &unknown)
	assert.Error(t, client(t, &redis.Options{Addr: r.Addr(),
		ReadTimeout: time.Second}).Ping(t.Context()).Err(), "no plain text")
}

func TestRedisTLSAsksForClientCertificates(t *testing.T) {
	certs := lab.NewCerts(t)
	r := lab.StartRedis(t, lab.WithTLS(certs), lab.WithConfig("tls-auth-clients", "yes"))
	fromFiles, err := tls.LoadX509KeyPair(certs.ClientCertFile, certs.ClientKeyFile)
	require.NoError(t, err)
	config := certs.ClientConfig()
	config.Certificates = []tls.Certificate{fromFiles}
	require.NoError(t, client(t, &redis.Options{Addr: r.Addr(), TLSConfig: config}).Ping(t.Context()).Err())
	config = certs.ClientConfig()
	config.Certificates = nil
	assert.Error(t, client(t, &redis.Options{Addr: r.Addr(), TLSConfig: config}).Ping(t.Context()).Err())
}

// setReplicated sets a key and waits until the replicas have it.
func setReplicated(t *testing.T, primary *lab.Redis, key, value string, replicas int) {
	t.Helper()
	c := primary.Conn(t)
	_, err := c.Do("SET", key, value)
	require.NoError(t, err)
	n, err := c.Do("WAIT", replicas, 4000)
	require.NoError(t, err)
	require.EqualValues(t, replicas, n)
}

func TestRedisReplicaFollowsAndItsLinkCanBeCut(t *testing.T) {
	primary := lab.StartRedis(t, lab.WithPassword("secret"))
	proxy := lab.StartProxy(t, primary.Addr())
	replica := lab.StartRedis(t, lab.WithPassword("secret"), lab.ReplicaOf(proxy.Addr()))
	assert.Equal(t, "slave", replica.Info(t, "replication")["role"])
	setReplicated(t, primary, "k", "1", 1)
	assert.Equal(t, "1", replica.MustDo(t, "GET", "k"))
	proxy.Replies(lab.Hold)
	primary.MustDo(t, "SET", "k", "2")
	require.Eventually(t, func() bool { return proxy.Stats().Replies.Held > 0 }, 5*time.Second,
		5*time.Millisecond)
	assert.Equal(t, "1", replica.MustDo(t, "GET", "k"))
	proxy.Replies(lab.Pass)
	require.Eventually(t, func() bool { return replica.MustDo(t, "GET", "k") == "2" }, 5*time.Second,
		5*time.Millisecond)
}

func TestRedisReplicaOverTLS(t *testing.T) {
	certs := lab.NewCerts(t)
	primary := lab.StartRedis(t, lab.WithTLS(certs))
	replica := lab.StartRedis(t, lab.WithTLS(certs), lab.ReplicaOf(primary.Addr()))
	setReplicated(t, primary, "k", "1", 1)
	assert.Equal(t, "1", replica.MustDo(t, "GET", "k"))
}

func TestRedisClockJump(t *testing.T) {
	r := lab.StartRedis(t, lab.WithClock())
	r.MustDo(t, "SET", "short", "v", "PX", 30_000)
	r.MustDo(t, "SET", "long", "v", "PX", 90_000)
	r.JumpClock(t, time.Minute)
	assert.Nil(t, r.MustDo(t, "GET", "short"), "a forward jump expires keys early")
	assert.Equal(t, "v", r.MustDo(t, "GET", "long"))

	r.MustDo(t, "SET", "kept", "v", "PX", 2_000)
	r.JumpClock(t, -time.Minute)
	assert.Greater(t, r.MustDo(t, "PTTL", "kept"), int64(55_000), "a backward jump keeps keys")

	r.JumpClock(t, time.Hour)
	r.Restart(t)
	now, err := r.Time()
	require.NoError(t, err)
	assert.WithinDuration(t, time.Now().Add(time.Hour), now, 5*time.Second, "a jump outlives a restart")
	uptime := r.Info(t, "server")["uptime_in_seconds"]
	assert.Contains(t, []string{"0", "1", "2", "3"}, uptime)
	r.JumpClock(t, -time.Hour)

	// The event loop must go on after a jump back: it expires keys by itself.
	r.MustDo(t, "SET", "soon", "v", "PX", 50)
	require.Eventually(t, func() bool { return r.MustDo(t, "DBSIZE") == int64(0) }, 5*time.Second,
		10*time.Millisecond)
}

func TestRedisCountsTheCommandsOfOthers(t *testing.T) {
	for _, opts := range [][]lab.Option{nil, {lab.WithPassword("p")}} {
		r := lab.StartRedis(t, opts...)
		c := client(t, &redis.Options{Addr: r.Addr(), Password: passwordOf(opts), DisableIdentity: true})
		require.NoError(t, c.Ping(t.Context()).Err())
		before := r.Commands(t)
		assert.Zero(t, r.Commands(t).Since(before).Total, "asking does not count")
		for range 3 {
			require.NoError(t, c.Set(t.Context(), "k", "v", 0).Err())
		}
		require.NoError(t, c.Eval(t.Context(), `return redis.call("GET", "k")`, nil).Err())
		diff := r.Commands(t).Since(before)
		assert.Equal(t, map[string]int64{"set": 3, "eval": 1, "get": 1}, diff.ByName)
		assert.Equal(t, int64(5), diff.Total)

		r.Restart(t)
		assert.GreaterOrEqual(t, r.Commands(t).Total, int64(0), "a restart counts from zero")
	}
}

func passwordOf(opts []lab.Option) string {
	if len(opts) > 0 {
		return "p"
	}
	return ""
}

func TestRedisPassesConfiguration(t *testing.T) {
	r := lab.StartRedis(t, lab.WithConfig("maxmemory", "10mb"),
		lab.WithConfig("maxmemory-policy", "allkeys-lru"))
	assert.Equal(t, []any{"maxmemory-policy", "allkeys-lru"}, r.MustDo(t, "CONFIG", "GET", "maxmemory-policy"))
	conf, err := os.ReadFile(filepath.Join(r.Dir(), "redis.conf"))
	require.NoError(t, err)
	assert.Contains(t, string(conf), `maxmemory "10mb"`)
}

func TestRedisDoDoesNotHangOnAPausedServer(t *testing.T) {
	r := lab.StartRedis(t)
	r.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := r.Do("PING")
		done <- err
	}()
	select {
	case err := <-done:
		assert.Error(t, err)
	case <-ctx.Done():
		t.Error("Do hangs")
	}
}
