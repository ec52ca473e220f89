package redisnode_test

import (
	"context"
	"crypto/tls"
	"errors"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/redisnode"
)

func TestErrorRepliesSayWhatHappenedToTheRequest(t *testing.T) {
	type verdict struct{ unknown, refused bool }
	for want, replies := range map[verdict][]string{
		{}: { // it certainly was not carried out
			"LOADING Redis is loading the dataset in memory",
			"READONLY You can't write against a read only replica.",
			"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
			"CLUSTERDOWN The cluster is down",
			"TRYAGAIN Multiple keys request during rehashing of slot",
			"BUSY Redis is busy running a script.",
			"OOM command not allowed when used memory > 'maxmemory'.",
			"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
			"NOREPLICAS Not enough good replicas to write.",
			"ERR max number of clients reached",
			"ERR Error running script (call to f_0): @user_script:3: @user_script: 3: OOM command not allowed",
			"ERR user_script:5: Script killed by user with SCRIPT KILL... script: 0, on @user_script:5.",
		},
		{refused: true}: { // nor will it ever be
			"NOAUTH Authentication required.",
			"WRONGPASS invalid username-password pair or user is disabled.",
			"NOPERM User bob has no permissions to run the 'evalsha' command",
			"DENIED Redis is running in protected mode",
			"ERR unknown command 'EVALSHA', with args beginning with: '0' '4'",
			"ERR Error running script (call to f_0): @user_script:3: @user_script: 3: NOPERM this user can't run this",
			"ERR ACL failure in script: User bob has no permissions to run the 'mget' command script: 3b92, on @user_script:1.",
			"ERR Unknown command called from script script: 3b92, on @user_script:1.",
		},
		{unknown: true}: { // perhaps it was
			"ERR upstream failure",
			"WHATEVER",
		},
	} {
		for _, reply := range replies {
			t.Run(reply[:min(len(reply), 20)], func(t *testing.T) {
				f, node := fake(t, "-"+reply+"\r\n")
				var e *redisnode.Error
				lab.Again(t, func() bool { // on a busy machine a copy may be under way, and the outcome unknown
					began := time.Now()
					e = try(t, t.Context(), node)
					return want == verdict{e.Unknown, e.Refused} || time.Since(began) < 100*time.Millisecond
				})
				assert.Equal(t, want, verdict{e.Unknown, e.Refused}, reply)
				assert.Equal(t, "acquire", e.Op)
				assert.Equal(t, f.Addr(), e.Addr)
			})
		}
	}
}

func TestErrorsNeverRepeatArguments(t *testing.T) {
	_, node := fake(t, "-ERR unknown command 'HELLO', with args beginning with: '3' 'AUTH' "+
		"'default' 'secret'\r\n")
	e := try(t, t.Context(), node)
	assert.NotContains(t, e.Error(), "secret")
	assert.Contains(t, e.Error(), "unknown command 'HELLO'")
}

// The driver prints what a dialer says to standard error: not what a URL has in the host's place, which may be half of
// a password.
func TestAFailedDialDoesNotSayWhereTo(t *testing.T) {
	hosts := []string{"127.0.0.1:1", "[::1]:1", "p4ss.invalid:6379", "p4ss", "p4ss:w0rd:6379"}
	dial := redisnode.Dialer(nil, time.Second, hosts...)
	for _, host := range hosts {
		_, err := dial(t.Context(), "tcp", host)
		if assert.Error(t, err) {
			assert.NotContains(t, err.Error(), host)
			assert.NotContains(t, err.Error(), "p4ss")
			assert.NotContains(t, err.Error(), "w0rd")
		}
	}
	_, err := dial(t.Context(), "tcp", "127.0.0.1:1")
	assert.ErrorIs(t, err, syscall.ECONNREFUSED)
	assert.Equal(t, redisnode.Passing, redisnode.Classify(err))
	_, err = dial(t.Context(), "tcp", "127.0.0.2:1")
	assert.ErrorContains(t, err, "cannot connect to 127.0.0.2:1: ", "which Sentinels have named")
}

// Another program at the address, or a proxy that is broken: trying again is no use.
func TestAnAnswerOfNoScriptOfOursIsRefused(t *testing.T) {
	const one, shared = "*1\r\n", "*1\r\n*7\r\n$23\r\nshared 0000000000000001\r\n:1\r\n$-1\r\n:0\r\n"
	for _, reply := range []string{"+OK\r\n", "$1\r\n1\r\n", ":1\r\n", "*0\r\n", "*2\r\n:1\r\n:1\r\n", one + ":-1\r\n",
		one + ":0\r\n", one + ":3\r\n", one + "*0\r\n", one + "*2\r\n:1\r\n:0\r\n", one + "*2\r\n:99\r\n:0\r\n",
		one + "*3\r\n:-1\r\n:0\r\n+x\r\n", one + "*4\r\n:1\r\n:1\r\n:1\r\n:7\r\n",
		one + "*7\r\n:1\r\n:1\r\n:1\r\n:7\r\n:1\r\n:1\r\n*0\r\n", shared + ":1\r\n:1\r\n*0\r\n",
		shared + ":0\r\n:1\r\n*1\r\n+a\r\n", shared + ":1\r\n:1\r\n*2\r\n+a\r\n+b\r\n", shared + ":1\r\n:1\r\n:1\r\n"} {
		f, node := fake(t, reply)
		f.Answer("info", sameRun)
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
		f, node := fake(t, reply)
		f.Answer("info", sameRun)
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
			began := time.Now()
			e := try(t, t.Context(), node)
			slow := time.Since(began) >= 100*time.Millisecond // a copy may be under way
			for range 200 {
				// The server says why and hangs up, which may be what is seen first: on a
				// busy machine, tens of times in a row.
				if e.Refused || name != "no client certificate" {
					break
				}
				e = try(t, t.Context(), node)
			}
			assert.True(t, e.Refused, "%v", e)
			if name != "no client certificate" && !slow { // a first copy may have met the hanging up
				assert.False(t, e.Unknown, "%v", e)
			}
			assert.NotContains(t, e.Error(), "wrong-secret")
		})
	}
}

func TestAClientThatMovesLocksIsRefused(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer func() { _ = ring.Close() }()
	_, err := redisnode.New(ring, soon)
	require.ErrorContains(t, err, "Ring")
	_, err = redisnode.New(struct{ redis.UniversalClient }{ring}, soon)
	require.ErrorContains(t, err, "*redis.ClusterClient", "a Ring may be inside")
	_, err = redisnode.New(nil, soon)
	require.Error(t, err)
}

// A server that hangs up on everybody is not asked for ever; and each request is sent once where it does not say which
// run it is, since INFO is renamed or, as here by itself, refused.
func TestAServerThatAlwaysHangsUpIsAskedAFewTimes(t *testing.T) {
	f, node := fake(t, "")
	for _, renamed := range []bool{true, false} {
		if f, node = fake(t, ""); renamed {
			f.Answer("info", "-ERR unknown command 'INFO', with args beginning with: 'server'\r\n")
		}
		e := try(t, t.Context(), node)
		assert.True(t, e.Unknown)
		assert.False(t, e.Refused)
		assert.Equal(t, 1, f.Count("eval")+f.Count("evalsha"))
	}
	var callers sync.WaitGroup
	for range 50 { // they share pipelines
		callers.Go(func() {
			_, err := node.drop(t.Context(), "n", "me")
			assert.Error(t, err)
		})
	}
	callers.Wait()
	assert.LessOrEqual(t, f.Count("evalsha"), 4*51)
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
	call := func() *redisnode.Attempt {
		return node.takeAttempt("n", "me").Storing(&undo, 0) // it is over a moment after it was sent
	}
	gone := func() bool { return !onItsWay() }
	over, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, node.Do(over, call()).Err)
	require.Eventually(t, gone, soon, time.Millisecond, "it was never sent")
	require.Nil(t, node.Do(t.Context(), call()).Err)
	require.Eventually(t, gone, soon, time.Millisecond, "it was answered")

	server.Pause()
	c := call()
	c.Limit = 200 * time.Millisecond
	told := make(chan struct{})
	node.Start(c, func(*redisnode.Attempt) { close(told) })
	<-told
	require.True(t, onItsWay(), "its answer is not waited for any more")
	server.Resume()
	require.Eventually(t, gone, soon, time.Millisecond, "the driver is done with it")

	server.Pause()
	var all []*redisnode.Attempt
	for range 200 {
		one := call()
		node.Start(one, func(*redisnode.Attempt) {})
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
	node.Start(call(), func(*redisnode.Attempt) {})
	require.True(t, onItsWay())
	server.Resume()
	require.NoError(t, node.Close())
	node.Start(call(), func(a *redisnode.Attempt) { assert.ErrorIs(t, a.Err, redisnode.ErrClosed) })
	require.Eventually(t, gone, soon, time.Millisecond, "it is closed")
}

// The maker of an attempt may hold a mutex that its told takes, also where Start finds the Node closed.
func TestStartTellsNobodyItself(t *testing.T) {
	_, node := setUp(t)
	for _, state := range []string{"open", "closed"} {
		if state == "closed" {
			require.NoError(t, node.Close())
		}
		var mu sync.Mutex
		woken := make(chan struct{}, 1)
		go func() {
			mu.Lock()
			defer mu.Unlock()
			node.Start(node.takeAttempt("n", "me"), func(*redisnode.Attempt) {
				mu.Lock()
				defer mu.Unlock()
				woken <- struct{}{}
			})
		}()
		told(t, woken, state)
	}
}

// Either an attempt is withdrawn, and then never sent, or its maker is told: it is not sent between the two steps of a
// withdrawal.
func TestAWithdrawnAttemptIsNotSent(t *testing.T) {
	server, node := setUp(t)
	load(t, node)
	counts := map[bool]int{}
	for i := 0; i < 100 || i < 5000 && (counts[true] == 0 || counts[false] == 0); i++ {
		name, woken := strconv.Itoa(i), make(chan struct{}, 1)
		a := node.takeAttempt(name, "me")
		node.Start(a, func(*redisnode.Attempt) { woken <- struct{}{} })
		for range i % 10 {
			runtime.Gosched()
		}
		withdrawn := node.Withdraw(a)
		if counts[withdrawn]++; !withdrawn {
			told(t, woken, "it was sent")
		}
		node.mustTake(t, "behind", "me") // whatever was sent before is done
		there := server.MustDo(t, "EXISTS", redisnode.LockKey(name)) == int64(1)
		require.Equal(t, withdrawn, !there, name)
		require.Empty(t, woken)
	}
	t.Log(counts)
}
