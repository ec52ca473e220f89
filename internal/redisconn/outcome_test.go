package redisconn_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/redisconn"
)

func TestErrorRepliesSayWhatHappenedToTheRequest(t *testing.T) {
	type verdict struct{ unknown, refused bool }
	certainly, forGood, perhaps := verdict{}, verdict{refused: true}, verdict{unknown: true}
	for reply, want := range map[string]verdict{
		"LOADING Redis is loading the dataset in " +
			"memory": certainly,
		"READONLY You can't write against a read only " +
			"replica.": certainly,
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to " +
			"'no'.": certainly,
		"CLUSTERDOWN The cluster is down": certainly,
		"TRYAGAIN Multiple keys request during rehashing of " +
			"slot": certainly,
		"BUSY Redis is busy running a script.": certainly,
		"OOM command not allowed when used memory > " +
			"'maxmemory'.": certainly,
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to " +
			"disk.": certainly,
		"NOREPLICAS Not enough good replicas to " +
			"write.": certainly,
		"ERR max number of clients reached": certainly,
		"ERR Error running script (call to f_0): @user_script:3: @user_script: 3: OOM command not " +
			"allowed": certainly,
		"ERR user_script:5: Script killed by user with SCRIPT KILL... script: 0, on " +
			"@user_script:5.": certainly,
		"NOAUTH Authentication required.": forGood,
		"WRONGPASS invalid username-password pair or user is " +
			"disabled.": forGood,
		"NOPERM User bob has no permissions to run the 'evalsha' " +
			"command": forGood,
		"DENIED Redis is running in protected " +
			"mode": forGood,
		"ERR unknown command 'EVALSHA', with args beginning with: '0' " +
			"'4'": forGood,
		"ERR Error running script (call to f_0): @user_script:3: @user_script: 3: NOPERM this user can't run " +
			"this": forGood,
		"ERR ACL failure in script: User bob has no permissions to run the 'mget' command script: 3b92, on " +
			"@user_script:1.": forGood,
		"ERR Unknown command called from script script: 3b92, on @user_script:1.": forGood,
		"ERR upstream failure": perhaps,
		"WHATEVER":             perhaps,
	} {
		t.Run(reply[:min(len(reply), 20)], func(t *testing.T) {
			f, node := fake(t, "-"+reply+"\r\n")
			e := try(t, t.Context(), node)
			assert.Equal(t, want, verdict{e.Unknown, e.Refused}, reply)
			assert.Equal(t, "acquire", e.Op)
			assert.Equal(t, f.Addr(), e.Addr)
		})
	}
}

func TestErrorsNeverRepeatArguments(t *testing.T) {
	_, node := fake(t, "-ERR unknown command 'HELLO', with args beginning with: '3' 'AUTH' "+
		"'default' 'secret'\r\n")
	e := try(t, t.Context(), node)
	assert.NotContains(t, e.Error(), "secret")
	assert.Contains(t, e.Error(), "unknown command 'HELLO'")
}

// Another program at the address, or a proxy that is broken: trying again is no use.
func TestAnAnswerOfNoScriptOfOursIsRefused(t *testing.T) {
	for _, reply := range []string{"+OK\r\n", "$1\r\n1\r\n", ":-1\r\n", ":3\r\n", "*0\r\n", "*2\r\n:1\r\n:0\r\n",
		"*4\r\n:1\r\n:1\r\n:1\r\n:7\r\n"} {
		_, node := fake(t, reply)
		_, asked := node.inspect(t.Context(), "n")
		_, dropped := node.drop(t.Context(), "n", "me")
		for _, err := range []error{try(t, t.Context(), node), asked, dropped} {
			assert.ErrorContains(t, err, "a reply that this script does not give")
			assert.True(t, asError(t, err).Refused, reply)
			assert.True(t, asError(t, err).Unknown, reply)
		}
	}
}

// A server that is no Redis sends lengths that the driver panics at. That ends the
// request, and not the program.
func TestAnswersAtWhichTheDriverPanics(t *testing.T) {
	for _, reply := range []string{"$9223372036854775807\r\n", "*4611686018427387904\r\n",
		"*2\r\n$9223372036854775807\r\n"} {
		_, node := fake(t, reply)
		e := try(t, t.Context(), node)
		assert.True(t, e.Unknown)
		assert.ErrorContains(t, e, "cannot be read")
		var callers sync.WaitGroup
		for range 20 { // in pipelines, too
			callers.Go(func() {
				_, err := node.drop(t.Context(), "n", "me")
				assert.Error(t, err)
			})
		}
		callers.Wait()
	}
	for _, push := range []string{"$9223372036854775807\r\n", "*4611686018427387904\r\n", "*0\r\n",
		"*1\r\n:0\r\n", "*2\r\n$7\r\nmessage\r\n$1\r\nx\r\n"} {
		f, node := fake(t, push)
		go func() {
			_, err := node.Subscribe(t.Context(), "n", func() {})
			assert.Error(t, err, "%q", push)
		}()
		require.Eventually(t, func() bool { return f.Count("subscribe") > 1 }, soon, time.Millisecond,
			"it tries again")
	}
}

func TestAQuestionThatChangesNothingIsNeverUnknown(t *testing.T) {
	lab.NeedPause(t)
	server := lab.StartRedis(t)
	node := newAsker(t, redis.NewClient(&redis.Options{Addr: server.Addr(), ReadTimeout: 50 * time.Millisecond,
		MaxRetries: -1}))
	load(t, node)
	server.Pause()
	_, err := node.Servers(t.Context())
	assert.False(t, asError(t, err).Unknown)
	server.Resume()
}

func TestAServerThatIsNotThereIsNotAskedAndNotRefusing(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())
	node := newAsker(t, redis.NewClient(&redis.Options{Addr: addr, DialerRetries: 1}))
	e := try(t, t.Context(), node)
	assert.False(t, e.Unknown)
	assert.False(t, e.Refused)
	assert.Equal(t, addr, e.Addr)
}

func TestWhatTheConfigurationRefusesIsRefused(t *testing.T) {
	certs := lab.NewCerts(t)
	secured := lab.StartRedis(t, lab.WithPassword("right"))
	encrypted := lab.StartRedis(t, lab.WithTLS(certs), lab.WithConfig("tls-auth-clients", "yes"))
	plain := lab.StartRedis(t)
	withoutCert := certs.ClientConfig()
	withoutCert.Certificates = nil
	for name, opts := range map[string]*redis.Options{
		"no password":            {Addr: secured.Addr()},
		"wrong password":         {Addr: secured.Addr(), Password: "wrong-secret"},
		"no such user":           {Addr: secured.Addr(), Username: "nobody", Password: "wrong-secret"},
		"no such database":       {Addr: plain.Addr(), DB: 9999},
		"unknown authority":      {Addr: encrypted.Addr(), TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12}},
		"no client certificate":  {Addr: encrypted.Addr(), TLSConfig: withoutCert},
		"client closed by owner": {Addr: plain.Addr()},
	} {
		t.Run(name, func(t *testing.T) {
			opts.DialerRetries = 1
			client := redis.NewClient(opts)
			if name == "client closed by owner" {
				require.NoError(t, client.Close())
			}
			node := newAsker(t, client)
			e := try(t, t.Context(), node)
			for range 200 {
				// The server says why and hangs up, which may be what is seen first: on a
				// busy machine, tens of times in a row.
				if e.Refused || name != "no client certificate" {
					break
				}
				e = try(t, t.Context(), node)
			}
			assert.True(t, e.Refused, "%v", e)
			if name != "no client certificate" { // a first copy may have met the hanging up
				assert.False(t, e.Unknown, "%v", e)
			}
			assert.NotContains(t, e.Error(), "wrong-secret")
		})
	}
}

func TestAReplicaIsNoPlaceForALock(t *testing.T) {
	primary := lab.StartRedis(t)
	replica := lab.StartRedis(t, lab.ReplicaOf(primary.Addr()))
	node := newAsker(t, redis.NewClient(&redis.Options{Addr: replica.Addr()}))
	e := try(t, t.Context(), node)
	assert.ErrorContains(t, e, "READONLY")
	assert.False(t, e.Unknown)
	assert.False(t, e.Refused, "it may become the primary")
	servers, err := node.Servers(t.Context())
	require.NoError(t, err)
	require.Len(t, servers, 1)
	assert.Equal(t, "slave", servers[0].Role)
}

func TestAClientThatMovesLocksIsRefused(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer func() { _ = ring.Close() }()
	_, err := redisconn.New(ring, soon)
	require.ErrorContains(t, err, "Ring")
	_, err = redisconn.New(struct{ redis.UniversalClient }{ring}, soon)
	require.ErrorContains(t, err, "*redis.ClusterClient", "a Ring may be inside")
	_, err = redisconn.New(nil, soon)
	require.Error(t, err)
}

// A server that hangs up on everybody is not asked for ever.
func TestAServerThatAlwaysHangsUpIsAskedAFewTimes(t *testing.T) {
	f, node := fake(t, "")
	e := try(t, t.Context(), node)
	assert.True(t, e.Unknown)
	assert.False(t, e.Refused)
	assert.LessOrEqual(t, f.Count("evalsha"), 4)
	var callers sync.WaitGroup
	for range 50 { // they share pipelines
		callers.Go(func() {
			_, err := node.drop(t.Context(), "n", "me")
			assert.Error(t, err)
		})
	}
	callers.Wait()
	assert.LessOrEqual(t, f.Count("evalsha"), 4*51)

	// A pool that is filled up again all the time never runs out of idle connections.
	const idle = 5
	f = lab.StartFakeRedis(t, "")
	full := newAsker(t, redis.NewClient(&redis.Options{Addr: f.Addr(), Protocol: 2, MinIdleConns: idle}))
	_ = try(t, t.Context(), full)
	assert.LessOrEqual(t, f.Count("evalsha"), 4+idle)
}

// The driver may have a second pool, for pipelines. If its idle connections were all closed, each costs one try.
func TestIdleConnectionsOfPipelinesCount(t *testing.T) {
	const idle = 8
	certs := lab.NewCerts(t) // otherwise the driver sees by itself that they were closed
	server := lab.StartRedis(t, lab.WithTLS(certs))
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), TLSConfig: certs.ClientConfig(), MaxRetries: -1,
		ReadTimeout: -1, DialTimeout: soon, PipelineReadBufferSize: 1 << 16, PipelinePoolSize: idle})
	defer func() { _ = client.Close() }()
	pipelined := func(block bool) error {
		pipe := client.Pipeline()
		pipe.Ping(t.Context())
		if block {
			pipe.BLPop(t.Context(), 0, "go on")
		}
		_, err := pipe.Exec(t.Context())
		return err
	}
	require.NoError(t, pipelined(false)) // the first connection is made alone
	var all sync.WaitGroup
	for range idle {
		all.Go(func() { assert.NoError(t, pipelined(true)) })
	}
	require.Eventually(t, func() bool {
		return strings.Contains(server.MustDo(t, "INFO", "clients").(string), "blocked_clients:8")
	}, soon, time.Millisecond)
	server.MustDo(t, "RPUSH", "go on", 1, 2, 3, 4, 5, 6, 7, 8)
	all.Wait()
	stats := client.PoolStats()
	require.Zero(t, stats.IdleConns)
	require.EqualValues(t, idle, stats.PipelineStats.IdleConns)
	server.HangUp(t)
	retry := redisconn.NewRetry(client)
	for err := pipelined(false); err != nil; err = pipelined(false) {
		require.True(t, retry.Worth(err), "%v", err)
	}
}

// A request counts as on its way for as long as the driver has it, whatever its caller was told meanwhile.
func TestWhenARequestIsOnItsWay(t *testing.T) {
	lab.NeedPause(t)
	server, node := setUp(t)
	load(t, node)
	down := errors.New("down")
	var undo driver.Undo
	onItsWay := func() bool {
		return undo.Undo(t.Context(), func(context.Context) error { return down }) != nil
	}
	call := func() *redisconn.Call {
		k := redisconn.KeysOf("n", "me", "", "")
		c := node.takes.Call("acquire", "n", 1, k.Lock, "", k.Value(), ttl.Milliseconds())
		c.Undo = &undo // Lasts is 0: it is over a moment after it was sent
		return c
	}
	gone := func() bool { return !onItsWay() }
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := node.Do(over, call())
	require.Error(t, err)
	require.Eventually(t, gone, soon, time.Millisecond, "it was never sent")
	_, err = node.Do(t.Context(), call())
	require.NoError(t, err)
	require.Eventually(t, gone, soon, time.Millisecond, "it was answered")

	server.Pause()
	c := call()
	c.Limit = 200 * time.Millisecond
	told := make(chan struct{})
	_, ok := node.Start(c, func(*redisconn.Call) { close(told) })
	require.True(t, ok)
	<-told
	require.True(t, onItsWay(), "its answer is not waited for any more")
	server.Resume()
	require.Eventually(t, gone, soon, time.Millisecond, "the driver is done with it")

	server.Pause()
	var all []redisconn.Started
	for range 200 {
		one, _ := node.Start(call(), func(*redisconn.Call) {})
		all = append(all, one)
	}
	withdrawn := 0
	for _, one := range all {
		if node.Withdraw(one) {
			withdrawn++
		}
	}
	server.Resume()
	require.Eventually(t, gone, soon, time.Millisecond, "%d were withdrawn", withdrawn)
	server.Pause()
	_, _ = node.Start(call(), func(*redisconn.Call) {})
	require.True(t, onItsWay())
	server.Resume()
	require.NoError(t, node.Close())
	_, ok = node.Start(call(), func(*redisconn.Call) {})
	require.False(t, ok)
	require.Eventually(t, gone, soon, time.Millisecond, "it is closed")
}
