package redisguard_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/internal/guardtest"
	"github.com/golockers/locker/internal/lab"
)

// leastRights are those that the package comment names.
var leastRights = []string{
	"on", ">secret", "resetkeys", "resetchannels", "-@all", "~fencing:1:*", "~app:*", "+evalsha", "+eval",
	"+get", "+set",
}

func TestTheRightsThatTheDocumentationNamesAreEnough(t *testing.T) {
	server := lab.StartRedis(t, lab.WithUser("default", "off"), lab.WithUser("app", leastRights...))
	for _, protocol := range []int{2, 3} {
		everyMethod(t, newClient(t, &redis.Options{Addr: server.Addr(), Username: "app", Password: "secret",
			Protocol: protocol}), fmt.Sprint("app:", protocol))
	}
}

func TestProveTheRightsThatTheDocumentationNamesAreEnoughOnACluster(t *testing.T) {
	lab.NeedProve(t)
	rights := append(leastRights[:len(leastRights):len(leastRights)], "+command", "+cluster|slots", "+asking")
	cluster := lab.StartCluster(t, lab.WithUser("default", "off"), lab.WithUser("app", rights...))
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), Username: "app",
		Password: "secret"})
	t.Cleanup(func() { _ = client.Close() })
	for i := range 10 {
		everyMethod(t, client, fmt.Sprint("app:", i))
	}
}

func everyMethod(t *testing.T, client redis.UniversalClient, resource string) {
	t.Helper()
	g := newGuard(t, client, nil)
	require.NoError(t, set(t.Context(), g, resource, 3, resource, ""))
	require.NoError(t, g.Raise(t.Context(), resource, 4))
	guardtest.Stale(t, set(t.Context(), g, resource, 2, resource, ""), resource, 2, 4)
	key, err := g.MarkKey(resource)
	require.NoError(t, err)
	assert.Equal(t, "4", client.Get(t.Context(), key).Val())
}

func TestMissingRightsAreNotAnOutageAndMoveNothing(t *testing.T) {
	server := lab.StartRedis(t, lab.WithUser("app", leastRights...))
	g := newGuard(t, newClient(t, &redis.Options{Addr: server.Addr(), Username: "app", Password: "secret"}), nil)
	require.NoError(t, set(t.Context(), g, "app:k", 1, "app:k", "v"))
	before := everything(t, server)
	refused := func(what string, err error) {
		t.Helper()
		require.Error(t, err, what)
		assert.NotErrorIs(t, err, locker.ErrUnavailable, what)
		assert.NotErrorIs(t, err, fencing.ErrUnknown, what)
		assert.NotErrorIs(t, err, fencing.ErrStale, what)
		assert.NotContains(t, err.Error(), "\n")
		assert.Equal(t, before, everything(t, server), what)
	}
	refused("a key", set(t.Context(), g, "others", 2, "others", ""))
	for _, command := range []string{"evalsha", "get", "set"} {
		server.MustDo(t, "ACL", "SETUSER", "app", "-"+command)
		refused(command, set(t.Context(), g, "app:k", 2, "app:k", ""))
		server.MustDo(t, "ACL", "SETUSER", "app", "+"+command)
	}
	server.MustDo(t, "ACL", "SETUSER", "app", "resetkeys", "~app:*")
	refused("the mark", set(t.Context(), g, "app:k", 2, "app:k", ""))
}

func TestWrongCredentialsAreNotAnOutage(t *testing.T) {
	server := lab.StartRedis(t, lab.WithPassword("right"))
	secret := lab.StartRedis(t, lab.WithTLS(lab.NewCerts(t)))
	for what, opts := range map[string]*redis.Options{
		"none": {}, "wrong": {Password: "hunter2"}, "wrong user": {Username: "nobody", Password: "hunter2"},
		"wrong, old protocol": {Password: "hunter2", Protocol: 2},
		"not trusted":         {TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12}},
	} {
		opts.Addr = server.Addr()
		if opts.TLSConfig != nil {
			opts.Addr = secret.Addr()
		}
		g := newGuard(t, newClient(t, opts), nil)
		for _, err := range []error{set(t.Context(), g, "k", 1, "k", ""), g.Raise(t.Context(), "k", 1)} {
			require.Error(t, err, what)
			assert.NotErrorIs(t, err, locker.ErrUnavailable, what)
			assert.NotErrorIs(t, err, fencing.ErrUnknown, what)
			assert.NotContains(t, err.Error(), "hunter2", what)
		}
	}
}

func TestAServerThatCannotWriteIsUnavailable(t *testing.T) {
	server := lab.StartRedis(t)
	client := newClient(t, &redis.Options{Addr: server.Addr()})
	g := newGuard(t, client, nil)
	require.NoError(t, set(t.Context(), g, "k", 1, "k", ""))
	before := everything(t, server)
	unavailable := func(what string, unknown bool) {
		t.Helper()
		err := set(t.Context(), g, "k", 2, "k", "")
		assert.ErrorIs(t, err, locker.ErrUnavailable, what)
		assert.Equal(t, unknown, errors.Is(err, fencing.ErrUnknown), "%s: %v", what, err)
		assert.NotErrorIs(t, err, fencing.ErrStale, what)
	}
	for _, trouble := range [][2]string{{"maxmemory", "1"}, {"min-replicas-to-write", "1"}} {
		server.MustDo(t, "CONFIG", "SET", trouble[0], trouble[1])
		unavailable(trouble[0], false)
		assert.Equal(t, before, everything(t, server))
		server.MustDo(t, "CONFIG", "SET", trouble[0], "0")
	}
	server.MustDo(t, "REPLICAOF", "127.0.0.1", "1")
	unavailable("a replica", false)
	server.MustDo(t, "REPLICAOF", "NO", "ONE")
	assert.Equal(t, before, everything(t, server))

	if lab.NeedPause(t); true {
		client = newClient(t, &redis.Options{Addr: server.Addr(), ReadTimeout: 100 * time.Millisecond})
		g = newGuard(t, client, nil)
		require.Eventually(t, func() bool { return g.Raise(t.Context(), "k", 1) == nil }, patience, time.Millisecond)
		server.Pause()
		unavailable("paused", true)
		assert.NotErrorIs(t, g.Raise(t.Context(), "k", 2), context.DeadlineExceeded, "not the caller's deadline")
		server.Resume()
	}
	server.Kill()
	unavailable("dead", false)
	require.NoError(t, client.Close())
	err := set(t.Context(), g, "k", 1, "k", "")
	assert.ErrorIs(t, err, redis.ErrClosed)
	assert.NotErrorIs(t, err, locker.ErrUnavailable)
}

// Raise asks again when the answer is lost. The driver does not.
func TestWhatMayBeRepeatedIs(t *testing.T) {
	server := lab.StartRedis(t)
	proxy := lab.StartProxy(t, server.Addr())
	g := newGuard(t, newClient(t, &redis.Options{Addr: proxy.Addr()}), nil)
	require.NoError(t, g.Raise(t.Context(), "k", 1))
	cut := proxy.CutReply("evalsha")
	before := server.Commands(t)
	require.NoError(t, g.Raise(t.Context(), "k", 2))
	assert.False(t, cut(), "the reply was not cut")
	assert.Equal(t, int64(2), server.Commands(t).Since(before)["evalsha"], "sent twice")
	assert.Equal(t, "2", server.MustDo(t, "GET", "fencing:1:{k}"))
}

// Over TLS the driver does not see that an idle connection was closed. A
// request that may be sent twice is. Run, which may not, has one before it that may.
func TestIdleConnectionsThatWereClosedCostNothing(t *testing.T) {
	certs := lab.NewCerts(t)
	server := lab.StartRedis(t, lab.WithTLS(certs))
	client := newClient(t, &redis.Options{Addr: server.Addr(), TLSConfig: certs.ClientConfig(), MaxRetries: -1})
	g := newGuard(t, client, nil)
	ctx := t.Context()
	require.NoError(t, set(ctx, g, "k", 1, "k", "v"))
	for what, ask := range map[string]func() error{
		"Raise": func() error { return g.Raise(ctx, "k", 1) },
		"Run": func() error {
			time.Sleep(1100 * time.Millisecond) // it was idle
			return g.Run(ctx, "r", 1, push, []string{"{r}:list"}, 1).Err()
		},
	} {
		var all []*redis.Conn
		for range 6 {
			c := client.Conn()
			for c.Ping(ctx).Err() != nil {
				require.NoError(t, c.Close())
				c = client.Conn()
			}
			all = append(all, c)
		}
		for _, c := range all {
			require.NoError(t, c.Close())
		}
		server.HangUp(t)
		require.NoError(t, ask(), what)
	}
	require.Equal(t, []any{"1"}, server.MustDo(t, "LRANGE", "{r}:list", 0, -1))
}
