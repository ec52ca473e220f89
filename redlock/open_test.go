package redlock_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/internal/redisnode"
	"github.com/golockers/locker/redlock"
	"github.com/golockers/locker/single"
)

var openers = driver.Openers{"redlock": redlock.Open, "redlocks": redlock.Open}

func TestProveOpenWithTLSAndPassword(t *testing.T) {
	lab.NeedProve(t)
	certs := lab.NewCerts(t)
	s := start(t, 3, lab.WithTLS(certs), lab.WithPassword("ses/ame"), lab.WithAppendOnly())
	for _, r := range s.servers { // as proven does, in the database of the URLs
		r.MustDo(t, "EVAL", "redis.call('SELECT', 2) return redis.call('SET', KEYS[1], ' before')", 1,
			redisnode.RunsKey)
	}
	hosts := strings.TrimPrefix(s.url(), "redlock://")
	ca := "ca=" + url.QueryEscape(certs.CAFile)
	for _, raw := range []string{
		"redlocks://:ses%2Fame@" + hosts + "/2?" + ca,
		"redlock://:ses%2Fame@" + hosts + "/2?tls=on&fencing=on&node_timeout=1s&restart_guard=1m&" + ca,
	} {
		c, err := locker.Open(t.Context(), raw, nil, openers)
		require.NoError(t, err)
		l := locktest.Lock(t, c, "x")
		_, fenced := l.Token()
		assert.Equal(t, strings.Contains(raw, "fencing=on"), fenced)
		require.NoError(t, l.Unlock(t.Context()))
		require.NoError(t, c.Close())
	}
	_, err := locker.Open(t.Context(), "redlocks://:wrong@"+hosts+"?"+ca, nil, openers)
	require.Error(t, err)
	assert.NotErrorIs(t, err, driver.ErrUnavailable, "a wrong password stays wrong")
	assert.Contains(t, err.Error(), "WRONGPASS")
	assert.NotContains(t, err.Error(), "wrong@")
}

func TestOpenRefusesWhatCannotWork(t *testing.T) {
	for raw, want := range map[string]string{
		"redlock://":                             "it has no host",
		"redlock://h1,h2,h3/x":                   "is not a number",
		"redlock://h1,h2,h3?quorum=2":            "unknown parameter",
		"redlock://h1,h2,h3?restart_guard=maybe": "restart_guard",
		"redlock://h1,h2,h3?fencing=perhaps":     "write on or off",
		"redlock://::1,h2":                       "brackets",
	} {
		_, err := locker.Open(t.Context(), raw, nil, openers)
		require.ErrorIs(t, err, driver.ErrInvalid, raw)
		assert.Contains(t, err.Error(), want, raw)
	}
	_, err := locker.Open(t.Context(), "redlock://user:sesame@127.0.0.1:1,[::1]:1,127.0.0.1:2", nil, openers)
	require.ErrorIs(t, err, driver.ErrUnavailable)
	assert.Contains(t, err.Error(), "[::1]:1")
	assert.NotContains(t, err.Error(), "sesame")
}

// A client with a shorter TTL than others would end its guard while their locks are still held. (It
// has MaxTTL 30 s, as have all whose URLs say nothing of it.)
func TestShorterTTLInURLDoesNotShortenTheGuard(t *testing.T) {
	s := start(t, 1)
	for params, want := range map[string]time.Duration{
		"":                              driver.DefaultTTL,
		"?ttl=2s":                       driver.DefaultTTL,
		"?ttl=2s&restart_guard=on":      driver.DefaultTTL,
		"?ttl=1m&restart_guard=1m":      time.Minute,
		"?ttl=2s&restart_guard=3m":      3 * time.Minute,
		"?ttl=2s&restart_guard=29500ms": 29500 * time.Millisecond,
	} {
		c, err := locker.Open(t.Context(), s.url()+params, nil, openers)
		require.NoError(t, err)
		assert.Equal(t, want, c.Guarantees().MaxTTL, params)
		_, err = c.TryLock(t.Context(), "x")
		if assert.ErrorIs(t, err, driver.ErrUnavailable, params) {
			assert.Contains(t, err.Error(), fmt.Sprintf("restart guard of %v", want), params)
		}
		require.NoError(t, c.Close())
	}
	for _, params := range []string{"?ttl=1m&restart_guard=30s", "?ttl=1m&restart_guard=on", "?ttl=1m"} {
		_, err := locker.Open(t.Context(), s.url()+params, nil, openers)
		require.ErrorIs(t, err, driver.ErrInvalid, "a TTL above what the guard rests on: %s", params)
	}
	_, err := locker.Open(t.Context(), s.url()+"?ttl=1m", nil, openers)
	require.ErrorContains(t, err, "restart_guard=1m0s", "it says what would be right")
}

func TestNewRefusesWhatCannotWork(t *testing.T) {
	c := func() *redis.Client { return newClient(t, &redis.Options{Addr: "127.0.0.1:1"}) }
	one := c()
	follows := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m",
		SentinelAddrs: []string{"127.0.0.1:1"}})
	t.Cleanup(func() { _ = follows.Close() })
	for what, nodes := range map[string][]*redis.Client{"no nodes": nil, "is nil": {c(), nil, c()},
		"same client": {one, c(), one}, "Sentinel": {c(), follows}} {
		_, err := redlock.New(nodes, nil)
		require.ErrorIs(t, err, driver.ErrInvalid, what)
		assert.Contains(t, err.Error(), what)
	}
	for _, o := range []redlock.Options{{NodeTimeout: -1}, {NodeTimeout: time.Microsecond},
		{MaxTTL: time.Millisecond}, {MaxTTL: 1e18}} {
		_, err := redlock.New([]*redis.Client{c()}, &o)
		require.ErrorIs(t, err, driver.ErrInvalid)
	}
}

// A lock that lasts longer than MaxTTL shows that another client has a longer one, and that the
// guard of this one is too short for its locks.
func TestLockLongerThanMaxTTLIsWarnedOf(t *testing.T) {
	s := durable(t, 1)
	var log bytes.Buffer
	long := s.backend(t, redlock.Options{MaxTTL: time.Minute})
	short := s.backend(t, redlock.Options{MaxTTL: 10 * time.Second,
		Logger: slog.New(slog.NewTextHandler(&log, nil))})
	g := acquire(t, long, "x", 10*time.Second)
	refused(t, short, "x", 10*time.Second)
	assert.Empty(t, log.String(), "as long as it may be")
	release(t, g)
	g = acquire(t, long, "x", time.Minute)
	for range 3 {
		refused(t, short, "x", 10*time.Second)
	}
	assert.Equal(t, 1, strings.Count(log.String(), "level=WARN"), log.String())
	assert.Contains(t, log.String(), s.servers[0].Addr())
	release(t, g)
}

// A minority that hangs is waited for neither by Open nor by Close, which ends what hangs there.
func TestHungMinorityIsNotWaitedForByOpenAndClose(t *testing.T) {
	lab.NeedPause(t)
	s := durable(t, 5)
	hang := func(nodes ...int) (undo func()) {
		for _, i := range nodes {
			s.servers[i].Pause()
		}
		return func() {
			for _, i := range nodes {
				s.servers[i].Resume()
			}
		}
	}
	const most = 1500 * time.Millisecond
	for what, nodes := range map[string][]int{"before Open": {3, 4}, "after Open": {0, 3}} {
		try := 0
		lab.Again(t, func() bool { // a machine that stalls is late, too
			try++
			undo := func() {}
			defer func() { undo() }()
			if what == "before Open" {
				undo = hang(nodes...)
			}
			began := time.Now()
			c, err := locker.Open(t.Context(), s.url()+"?node_timeout=1s", nil, openers)
			require.NoError(t, err)
			opened := time.Since(began)
			if what == "after Open" {
				undo = hang(nodes...)
			}
			// Each its own name: a node that hung through the release keeps the lock for its TTL.
			l := locktest.Lock(t, c, fmt.Sprint(what, try))
			require.NoError(t, l.Unlock(t.Context()))
			began = time.Now()
			assert.NoError(t, c.Close(), what)
			return opened < most && time.Since(began) < most
		})
	}
}

// Who may not run INFO cannot have the guard; without the guard it works.
func TestUserWithoutRightsToLookNeedsNoGuard(t *testing.T) {
	rights := []string{"on", ">secret", "~locker:2:*", "&locker:2:*", "+@connection", "+eval", "+evalsha",
		"+get", "+mget", "+set", "+del", "+exists",
		"+pexpire", "+pttl", "+time", "+publish", "+subscribe", "+unsubscribe"}
	s := start(t, 1, lab.WithUser("default", "off"), lab.WithUser("plain", rights...))
	b := on(t, redlock.Options{NoRestartGuard: true},
		newClient(t, &redis.Options{Addr: s.servers[0].Addr(), Username: "plain", Password: "secret"}))
	release(t, acquire(t, b, "x", time.Minute))
	require.NoError(t, b.Close())

	for _, user := range []string{"plain:wrong", "nobody:secret"} { // it is no right that is missing there
		_, err := locker.Open(t.Context(), "redlock://"+user+"@"+s.servers[0].Addr()+"?restart_guard=off", nil, openers)
		require.ErrorContains(t, err, "WRONGPASS")
		assert.NotErrorIs(t, err, driver.ErrUnavailable)
	}
}

// Whatever is mistyped in a URL, no error repeats a part of the user or the password.
func TestNoPartOfAPasswordIsInAnError(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // nothing is connected to
	all := driver.Openers{"redlock": redlock.Open, "redis": single.Open, "redis+sentinel": single.Open}
	n := 0
	for _, scheme := range []string{"redlock", "redis"} {
		for _, c := range "/?#@:,;&=%[]{} \"'\\<>|^`~!$*()+.-_0" {
			for _, d := range []string{"", "@", "?", "/", "="} {
				for _, form := range []string{"%s://Us3r:%s@127.0.0.1:1", "%s://:%s@127.0.0.1:1",
					"%s://%s@127.0.0.1:1/0?ttl=1s", "%s://%s:x@127.0.0.1:1,127.0.0.1:2", "%s://127.0.0.1:1?%s=1"} {
					secret := "S3cret" + string(c) + "Pa5s" + d + "W0rd"
					_, err := locker.Open(ctx, fmt.Sprintf(form, scheme, secret), nil, all)
					if err == nil {
						continue
					}
					n++
					for _, part := range []string{"Us3r", "S3cret", "Pa5s", "W0rd"} {
						assert.NotContains(t, err.Error(), part, form+" "+secret)
					}
				}
			}
		}
	}
	assert.Greater(t, n, 1000)
	_, err := locker.Open(t.Context(), "redlock://h1,Us3r:S3cret@h2", nil, all)
	require.ErrorIs(t, err, driver.ErrInvalid)
	assert.Contains(t, err.Error(), "user or password", "it would be one node")
}

// A node that refuses this client is one node less, as a dead one is: a process that starts goes on with the
// majority, warns once, and check fails. Only a majority that refuses is an error, which no wait would help.
func TestAMinorityThatRefusesIsOneNodeLess(t *testing.T) {
	t.Parallel()
	may := []string{"on", ">sesame", "~*", "&*", "+@all"}
	node := func(opts ...lab.Option) *nodes { return start(t, 1, append(opts, lab.WithAppendOnly())...) }
	barred := func(rule string) string {
		return node(lab.WithUser("locker", append(may[:len(may):len(may)], rule)...)).proven(t).servers[0].Addr()
	}
	well := start(t, 2, lab.WithUser("locker", may...), lab.WithAppendOnly()).proven(t)
	secure := node(lab.WithTLS(lab.NewCerts(t)), lab.WithUser("locker", may...)).servers[0].Addr()
	for refusal, refuses := range map[string]string{
		"WRONGPASS":     node(lab.WithPassword("other")).servers[0].Addr(),
		"'evalsha'":     barred("-evalsha"),
		"'info'":        barred("-info"),
		"'script|load'": barred("-script"),
		"DB index":      node(lab.WithUser("locker", may...), lab.WithConfig("databases", "1")).servers[0].Addr(),
		"Redis Cluster": node(lab.WithUser("locker", may...), lab.WithConfig("cluster-enabled", "yes")).servers[0].Addr(),
		"":              secure, // hangs up on who does not speak TLS, as a dead one
	} {
		t.Run(refusal, func(t *testing.T) {
			var log bytes.Buffer
			database := "/0?"
			if refusal == "DB index" {
				database = "/1?restart_guard=off&"
			}
			open := func(addrs ...string) (*locker.Client, error) {
				return locker.Open(t.Context(), "redlock://locker:sesame@"+strings.Join(addrs, ",")+database+"node_timeout=2s",
					&locker.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}, openers)
			}
			lab.Again(t, func() bool { // it may be too slow to be asked
				log.Reset()
				c, err := open(well.servers[0].Addr(), refuses, well.servers[1].Addr())
				require.NoError(t, err)
				for range 5 {
					require.NoError(t, locktest.Lock(t, c, "x").Unlock(t.Context()))
				}
				found, err := c.Check(t.Context())
				require.NoError(t, err)
				assert.True(t, slices.ContainsFunc(found, func(f driver.Finding) bool {
					return f.Severity >= driver.SeverityWarning && strings.Contains(f.What, refuses)
				}), found)
				require.NoError(t, c.Close())
				told := strings.Count(log.String(), "refuses this client")
				require.LessOrEqual(t, told, 1, log.String())
				return refusal == "" || told == 1
			})
			if refusal == "" {
				_, err := open(refuses)
				require.ErrorContains(t, err, "if the server wants TLS, write redlocks")
				return
			}
			assert.Contains(t, log.String(), "node="+refuses)
			assert.Contains(t, log.String(), refusal)

			log.Reset()
			c, err := open(well.servers[0].Addr(), refuses) // both are needed
			if err == nil {
				_, err = c.TryLock(t.Context(), "x")
				require.NoError(t, c.Close())
			} else {
				assert.Empty(t, log.String(), "it is an error already")
			}
			require.Error(t, err)
			assert.NotErrorIs(t, err, driver.ErrUnavailable, "nothing changes by itself")
		})
	}
}

// A program that tries once and ends leaves no vote behind, for which the next one would have to wait.
func TestCloseRightAfterARefusalLeavesNoVote(t *testing.T) {
	s := start(t, 2, lab.WithAppendOnly())
	s.servers[0].MustDo(t, "SET", redisnode.RunsKey, " before") // the other may not vote yet
	tries := 0
	for range 20 {
		lab.Again(t, func() bool { // Close waits for a moment, and no longer
			tries++
			name := fmt.Sprint("x", tries)
			c, err := locker.Open(t.Context(), s.url(), nil, openers)
			require.NoError(t, err)
			_, err = c.TryLock(t.Context(), name)
			require.ErrorIs(t, err, driver.ErrUnavailable)
			began := time.Now()
			require.NoError(t, c.Close())
			if time.Since(began) > 250*time.Millisecond {
				return false
			}
			require.Zero(t, s.holders(t, name))
			return true
		})
	}
}

// A server that is a Cluster by itself has all keys, and may be a node; one that shares them with others may not.
func TestNodesOfClusters(t *testing.T) {
	t.Parallel()
	s := start(t, 3, lab.WithAppendOnly(), lab.WithConfig("cluster-enabled", "yes"))
	s.servers.MustDo(t, "CLUSTER", "ADDSLOTSRANGE", 0, 16383)
	address := func(addrs []string) string {
		return "redlock://" + strings.Join(addrs, ",") + "?restart_guard=off&node_timeout=1s"
	}
	var alone []string
	for _, r := range s.servers {
		alone = append(alone, r.Addr())
		within(t, 30*time.Second, "the cluster is up", func() bool {
			return strings.Contains(fmt.Sprint(r.MustDo(t, "CLUSTER", "INFO")), "cluster_state:ok")
		})
	}
	c, err := locker.Open(t.Context(), address(alone), nil, openers)
	require.NoError(t, err)
	defer c.Close()
	var all sync.WaitGroup
	for i := range 100 { // requests that share a call
		all.Go(func() {
			l, err := c.Lock(t.Context(), fmt.Sprint(i))
			if assert.NoError(t, err) {
				assert.NoError(t, l.Unlock(t.Context()))
			}
		})
	}
	all.Wait()
	found, err := c.Check(t.Context())
	require.NoError(t, err)
	assert.False(t, slices.ContainsFunc(found, func(f driver.Finding) bool { return f.Severity > driver.SeverityWarning }), found)

	_, err = locker.Open(t.Context(), address(lab.StartCluster(t).Addrs()), nil, openers)
	require.ErrorContains(t, err, "a node of a Redis Cluster")
	require.NotErrorIs(t, err, driver.ErrUnavailable)
	require.NotContains(t, err.Error(), "MOVED", "it is known before a key is looked for")
}
