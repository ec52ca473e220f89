package single_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"strings"
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
	"github.com/golockers/locker/single"
)

// backend returns a Backend that ends with the test, on clients that newClient makes.
func backend(t *testing.T, rdb redis.UniversalClient, opts *single.Options) *single.Backend {
	t.Helper()
	b, err := single.New(rdb, opts)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, b.Close()) })
	return b
}

func grant(t *testing.T, b *single.Backend, name string, minHold time.Duration) driver.Grant {
	t.Helper()
	g, err := locktest.Ask(t.Context(), b, driver.Request{Name: name, Owner: rand.Text(), Label: "me", TTL: ttl,
		MinHold: minHold})
	require.NoError(t, err)
	return g
}

func TestListAndBreak(t *testing.T) {
	t.Parallel()
	server, cluster := lab.StartRedis(t), lab.StartCluster(t)
	shards := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	t.Cleanup(func() { _ = shards.Close() })
	for kind, rdb := range map[string]redis.UniversalClient{"one": newClient(t,
		&redis.Options{Addr: server.Addr()}), "Cluster": shards} {
		t.Run(kind, func(t *testing.T) {
			b := backend(t, rdb, nil)
			names := []string{"a/1", "a/2", "a/{x}", "a/*", "a/[b]", "a/%", "b/1", "a"}
			for _, name := range names {
				grant(t, b, name, 0)
			}
			list := func(prefix string) map[string]driver.State {
				all := map[string]driver.State{}
				for st, err := range b.List(t.Context(), prefix) {
					require.NoError(t, err)
					assert.NotContains(t, all, st.Name)
					all[st.Name] = st
				}
				return all
			}
			assert.Len(t, list(""), len(names))
			assert.Len(t, list("a/*"), 1)
			some := list("a/")
			require.Len(t, some, 6)
			assert.True(t, some["a/{x}"].Held)
			assert.Equal(t, "me", some["a/{x}"].Label)
			for _, err := range b.List(t.Context(), "") { // a yield after the end would panic
				require.NoError(t, err)
				break
			}

			st, err := locktest.Break(t.Context(), b, "a/{x}")
			require.NoError(t, err)
			assert.True(t, st.Held)
			assert.Equal(t, "me", st.Label)
			grant(t, b, "a/{x}", 0)
			for _, owner := range []string{"one", "another"} {
				_, err = locktest.Ask(t.Context(), b, driver.Request{Name: "c", Owner: owner, Label: owner, TTL: ttl,
					Shared: true})
				require.NoError(t, err)
			}
			assert.Equal(t, 2, list("c")["c"].Sharers)
			st, err = locktest.Break(t.Context(), b, "c")
			require.NoError(t, err)
			assert.ElementsMatch(t, []string{"one", "another"}, st.Sharing)
			grant(t, b, "c", 0)
			st, err = locktest.Break(t.Context(), b, "free")
			require.NoError(t, err)
			assert.False(t, st.Held)
		})
	}
}

// Among many keys of others: what was found is yielded before the rest is looked for.
func TestListYieldsAsItGoes(t *testing.T) {
	server := lab.StartRedis(t)
	fill := `for i = 1, 20000 do redis.call('SET', 'cache:' .. i, '') end
		for i = 1, 100 do redis.call('SET', 'locker:2:{' .. i .. '}', '0000000000000001 me:') end`
	server.MustDo(t, "EVAL", fill, 0)
	b := backend(t, newClient(t, &redis.Options{Addr: server.Addr()}), nil)
	require.NoError(t, locktest.Lists(t.Context(), b))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	found, failed := 0, error(nil)
	for _, err := range b.List(ctx, "") {
		if failed = err; err == nil {
			found++
			cancel()
		}
	}
	require.ErrorIs(t, failed, context.Canceled)
	assert.Positive(t, found)
	assert.Less(t, found, 100)
}

func TestCheck(t *testing.T) {
	server := lab.StartRedis(t)
	b := backend(t, newClient(t, &redis.Options{Addr: server.Addr()}), &single.Options{Timeout: soon})
	all, err := b.Check(t.Context())
	require.NoError(t, err)
	var what []string
	for _, f := range all {
		what = append(what, strings.Fields(f.What)[0])
	}
	assert.ElementsMatch(t, strings.Fields("version role maxmemory-policy appendonly rights server replicas"), what)
	bad := check(t, b)
	assert.True(t, strings.HasPrefix(bad, "warning appendonly") && !strings.Contains(bad, "\n"), bad)
	server.MustDo(t, "CONFIG", "SET", "maxmemory", "1gb")
	server.MustDo(t, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	assert.Contains(t, check(t, b), "problem maxmemory-policy")
}

// check returns what Check says that is worse than fine, as "severity what: found (advice)".
func check(t *testing.T, b *single.Backend) string {
	t.Helper()
	all, err := b.Check(t.Context())
	require.NoError(t, err)
	var bad []string
	for _, f := range all {
		assert.Equal(t, f.Severity == driver.SeverityOK, f.Advice == "", f.What)
		if f.Severity != driver.SeverityOK {
			bad = append(bad, fmt.Sprintf("%v %s: %s (%s)", f.Severity, f.What, f.Found, f.Advice))
		}
	}
	return strings.Join(bad, "\n")
}

// Behind one address are two servers: two clients hold one lock.
func TestCheckFindsTwoServersBehindOneAddress(t *testing.T) {
	certs := lab.NewCerts(t)
	for kind, opts := range map[string][]lab.Option{"plain": nil, "TLS": {lab.WithTLS(certs)}} {
		one, two := lab.StartRedis(t, opts...), lab.StartRedis(t, opts...)
		for addr, many := range map[string]bool{balancer(t, one.Addr(), two.Addr()): true, balancer(t, one.Addr()): false} {
			o := &redis.Options{Addr: addr}
			if opts != nil {
				o.TLSConfig = certs.ClientConfig()
			}
			found := check(t, backend(t, newClient(t, o), &single.Options{Timeout: soon}))
			assert.Equal(t, many, strings.Contains(found, "problem server behind "+addr+": 16 connections lead to 2 servers"),
				"%s: %s", kind, found)
		}
	}
}

// balancer returns an address at which the connections go to servers in turn.
func balancer(t *testing.T, servers ...string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for i := 0; ; i++ {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", servers[i%len(servers)])
			if err != nil {
				_ = conn.Close()
				continue
			}
			pipe := func(to, from net.Conn) {
				_, _ = io.Copy(to, from)
				_ = to.Close()
			}
			go pipe(server, conn)
			go pipe(conn, server)
		}
	}()
	return l.Addr().String()
}

// What the user may not do is a finding, with what follows from it; so is what it may not ask.
func TestCheckNamesWhatTheUserMayNotDo(t *testing.T) {
	server := lab.StartRedis(t, lab.WithAppendOnly())
	for what, want := range map[string]string{
		"":              "",
		"resetchannels": "warning rights|it may not run: publish locker:2:{locker-check}:wake, subscribe|waiters are not woken",
		"-subscribe":    "warning rights|+subscribe, with|waiters are not woken",
		"-info":         "info INFO|NOPERM|whether there is only one at this address",
		"-eval":         "problem rights|NOPERM|+eval and +evalsha",
		"resetkeys":     "problem rights|mget locker:2:{locker-check}, set|locks have no tokens",
		"-set":          "problem rights|set locker:2:{locker-check}|locks cannot be had",
		"-pexpire":      "problem rights|pexpire|or not be kept",
		"-zadd":         "info rights|zadd locker:2:{locker-check}:shared|locks cannot be shared",
	} {
		server.MustDo(t, "ACL", "SETUSER", "locker", "reset", "on", ">secret", "~*", "&*", "+@all")
		if what != "" {
			server.MustDo(t, "ACL", "SETUSER", "locker", what)
		}
		found := check(t, backend(t, newClient(t, &redis.Options{Addr: server.Addr(), Username: "locker",
			Password: "secret"}), &single.Options{Timeout: soon}))
		for _, part := range strings.Split(want, "|") {
			assert.Contains(t, found, part, what)
		}
		assert.Equal(t, want == "", found == "", found)
	}
	fake := lab.StartFakeRedis(t, ":-1\r\n")
	fake.Answer("info", "-ERR unknown command 'INFO', with args beginning with: \r\n")
	found := check(t, backend(t, newClient(t, &redis.Options{Addr: fake.Addr()}), nil))
	assert.Contains(t, found, "unknown command 'INFO'", "it is renamed")
	assert.Contains(t, found, "this server does not tell")
	assert.NotContains(t, found, "problem")
}

// A client that takes a node of a Cluster for a server of its own is told so by its first lock, and by Check.
func TestANodeOfAClusterIsNoServerOfItsOwn(t *testing.T) {
	server := lab.StartRedis(t, lab.WithConfig("cluster-enabled", "yes"))
	server.MustDo(t, "CLUSTER", "ADDSLOTSRANGE", 0, 16383)
	b := backend(t, newClient(t, &redis.Options{Addr: server.Addr()}), nil)
	_, err := locktest.Ask(t.Context(), b, driver.Request{Name: "n", Owner: rand.Text(), TTL: ttl})
	require.ErrorContains(t, err, "CROSSSLOT")
	require.ErrorContains(t, err, "write redis+cluster://")
	require.NotErrorIs(t, err, driver.ErrUnavailable)
	assert.Contains(t, check(t, b), "problem kind of "+server.Addr())
}

// A user who may have the names of one prefix alone can open, lock and check.
func TestAUserForOnePrefix(t *testing.T) {
	server := lab.StartRedis(t, lab.WithAppendOnly(), lab.WithUser("app", "on", ">secret", "~locker:2:{app/*",
		"~locker:2:tokens*", "&locker:2:{app/*", "+@all"))
	c, err := locker.Open(t.Context(), "redis://app:secret@"+server.Addr()+"?prefix=app/", nil, openers)
	require.NoError(t, err)
	require.NoError(t, locktest.Lock(t, c, "n").Unlock(t.Context()))
	found, err := c.Check(t.Context())
	require.NoError(t, err)
	for _, f := range found {
		assert.Equal(t, driver.SeverityOK, f.Severity, f)
	}
	require.NoError(t, c.Close())
}

// The leftover of an unknown outcome lasts as long as MinHold, and so does the note that
// keeps a late copy of the request out.
func TestALeftoverIsKeptOutForAsLongAsMinHold(t *testing.T) {
	server := lab.StartRedis(t)
	proxy := lab.StartProxy(t, server.Addr())
	b := backend(t, newClient(t, &redis.Options{Addr: proxy.Addr(), ReadTimeout: 300 * time.Millisecond}),
		&single.Options{Timeout: 300 * time.Millisecond})
	late := func(name string, acquire func(driver.Request) (driver.Grant, error)) {
		t.Helper()
		req := driver.Request{Name: name, Owner: rand.Text(), TTL: ttl, MinHold: time.Hour}
		proxy.Replies(lab.Drop)
		g, err := acquire(req)
		require.ErrorIs(t, err, driver.ErrUnavailable)
		proxy.PassNew()
		locktest.Eventually(t, soon, "the driver is done", func() bool { return g.Hold.Undo(t.Context()) == nil })
		assert.Greater(t, server.TTL(t, redisnode.LockKey(name)+":void:"+req.Owner+":"), 50*time.Minute)
	}
	late("n", func(req driver.Request) (driver.Grant, error) { return locktest.Ask(t.Context(), b, req) })
	lab.Again(t, func() bool { // on a busy machine it is not granted in time, or a copy of the request may be under way
		name := rand.Text()
		g, err := locktest.Ask(t.Context(), b, driver.Request{Name: name, Owner: rand.Text(), TTL: ttl})
		h, ok := g.Hold.(driver.Passer)
		if err != nil || !ok {
			return false
		}
		late(name, func(req driver.Request) (driver.Grant, error) { return h.Pass(t.Context(), req, false) })
		return true
	})
}

func TestATokenThatTheCounterCannotHoldIsRefused(t *testing.T) {
	b := backend(t, newClient(t, &redis.Options{Addr: lab.StartRedis(t).Addr()}), nil)
	g := grant(t, b, "n", 0)
	assert.ErrorIs(t, g.Hold.(driver.TokenRaiser).RaiseToken(t.Context(), 1<<60), driver.ErrInvalid)
}

// The error says what a wrong URL leads to.
func TestProveOpenSaysWhatWouldBeRight(t *testing.T) {
	lab.NeedProve(t)
	sentinel, cluster := lab.StartSentinel(t, 1), lab.StartCluster(t)
	for url, want := range map[string]string{
		"redis+sentinel://" + strings.Join(sentinel.Addrs(),
			",") + "?master_name=nobody": "watch no master of this name",
		"redis://" + cluster.Addrs()[0]: "write redis+cluster://",
	} {
		_, err := locker.Open(t.Context(), url, nil, openers)
		require.ErrorContains(t, err, want)
		assert.NotErrorIs(t, err, driver.ErrUnavailable, "that does not get better")
	}
}
