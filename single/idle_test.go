package single_test

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/internal/redisnode"
	"github.com/golockers/locker/single"
)

// ready has the driver make its first connection, which it does not expect to make
// twice at once: what it learns there it writes down without a lock.
func ready(t *testing.T, client *redis.Client) {
	t.Helper()
	require.NoError(t, client.Ping(t.Context()).Err())
}

// request asks for a name that nobody else asks for.
func request() driver.Request {
	return driver.Request{Name: rand.Text(), Owner: rand.Text(), TTL: time.Minute}
}

func lock(t *testing.T, b *single.Backend) error {
	t.Helper()
	_, err := locktest.Ask(t.Context(), b, request())
	return err
}

// idle makes so many idle connections in the pool of a client.
func idle(t *testing.T, client redis.UniversalClient, n int) {
	t.Helper()
	var all []*redis.Conn
	for range n {
		c := client.(*redis.Client).Conn()
		for c.Ping(t.Context()).Err() != nil { // it was closed, too
			require.NoError(t, c.Close())
			c = client.(*redis.Client).Conn()
		}
		all = append(all, c)
	}
	for _, c := range all {
		require.NoError(t, c.Close())
	}
	locktest.Eventually(t, soon, "they are in the pool", func() bool { // a look for closed ones may have one of them
		return int(client.PoolStats().IdleConns) >= n
	})
}

// Over TLS the driver does not see that an idle connection was closed. Whatever is
// asked then is asked again, although all connections of the pool are closed.
func TestIdleConnectionsThatWereClosedCostNothing(t *testing.T) {
	certs := lab.NewCerts(t)
	server := lab.StartRedis(t, lab.WithTLS(certs))
	rdb := newClient(t, &redis.Options{Addr: server.Addr(), TLSConfig: certs.ClientConfig(), MaxRetries: -1,
		PipelineReadBufferSize: 1 << 16}) // pipelines have a pool of their own
	ready(t, rdb)
	b, ctx := backend(t, rdb, nil), t.Context()
	held := func() (driver.Request, driver.Grant) {
		req := request()
		g := locktest.Acquire(t, b, req)
		return req, g
	}
	closed := func(what string, f func() error) {
		t.Helper()
		for range 2 { // alone and by way of the queue
			idle(t, rdb, 4)
			server.HangUp(t)
			require.NoError(t, f(), what)
		}
	}
	closed("acquire", func() error {
		g, err := locktest.Ask(ctx, b, request())
		assert.NotNil(t, g.Hold)
		return err
	})
	req, g := held()
	closed("renew", func() error { _, err := g.Hold.Renew(ctx); return err })
	closed("raise", func() error { return g.Hold.(driver.TokenRaiser).RaiseToken(ctx, g.Token+1) })
	copied := 0
	closed("refused", func() error {
		g, err := locktest.Ask(ctx, b, driver.Request{Name: req.Name, Owner: rand.Text(), TTL: time.Minute})
		assert.ErrorIs(t, err, driver.ErrHeld)
		if g.Hold == nil { // on a busy machine the request before may have just thrown away all that are closed
			return nil
		}
		copied++
		if err := g.Hold.Undo(ctx); !errors.Is(err, driver.ErrLost) {
			return err
		}
		// The driver has not done with a copy, on a busy machine.
		locktest.Eventually(t, soon, "it is undone", func() bool { return g.Hold.Undo(ctx) == nil })
		return nil
	})
	assert.Positive(t, copied, "the first copy of the request may still arrive: it has to be taken back")
	closed("inspect", func() error { _, err := b.Inspect(ctx, req.Name); return err })
	closed("list", func() error { return locktest.Lists(ctx, b) })
	closed("check", func() error { _, err := b.Check(ctx); return err })
	closed("notify", func() error { _, err := b.Notify(ctx, rand.Text(), func() {}); return err })
	var all []driver.Grant
	for range 9 {
		_, g := held()
		all = append(all, g)
	}
	next := func() (g driver.Grant) { g, all = all[0], all[1:]; return g }
	closed("release", func() error { return next().Hold.Release(ctx, 0) })
	closed("break", func() error { req, _ := held(); _, err := locktest.Break(ctx, b, req.Name); return err })
	for range 3 { // with pass, the connections are closed before it and not before the acquire
		lab.Again(t, func() bool {
			req, g := held()
			p, ok := g.Hold.(driver.Passer)
			if !ok {
				return false // it met a closed connection that was still there, and was sent twice
			}
			idle(t, rdb, 4)
			server.HangUp(t)
			_, err := p.Pass(ctx, driver.Request{Name: req.Name, Owner: rand.Text(), TTL: time.Minute}, false)
			require.NoError(t, err, "pass")
			return true
		})
	}

	for range 2 {
		idle(t, rdb, 4)
		locktest.Eventually(t, soon, "there are idle connections of pipelines", func() bool {
			_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error { return p.Ping(ctx).Err() })
			return err == nil && rdb.PoolStats().PipelineStats.IdleConns > 0
		})
		server.HangUp(t)
		var callers sync.WaitGroup
		for range 50 { // they share pipelines and scripts
			callers.Go(func() {
				g, err := locktest.Ask(ctx, b, request())
				if assert.NoError(t, err) {
					assert.NoError(t, g.Hold.Release(ctx, 0))
				}
			})
		}
		callers.Wait()
	}
}

// A name that leads to another server from now on: connections to the one before,
// which is a replica now, are given up at once, all of them.
func TestAnAddressThatMoves(t *testing.T) {
	before := lab.StartRedis(t)
	after := lab.StartRedis(t, lab.ReplicaOf(before.Addr()))
	var addr atomic.Value
	addr.Store(before.Addr())
	rdb := newClient(t, &redis.Options{Addr: "redis.example:6379", MaxRetries: -1,
		Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, addr.Load().(string))
		}})
	ready(t, rdb)
	b := backend(t, rdb, nil)
	held := request()
	g := locktest.Acquire(t, b, held)
	idle(t, rdb, 4)
	require.Eventually(t, func() bool { return after.MustDo(t, "DBSIZE") == before.MustDo(t, "DBSIZE") },
		soon, time.Millisecond)
	after.MustDo(t, "REPLICAOF", "NO", "ONE")
	before.MustDo(t, "REPLICAOF", "127.0.0.1", after.Port())
	addr.Store(after.Addr())
	// The one before may be slow to refuse a request, so that this one is asked as well, which has not heard of it.
	moved := func(err error) bool {
		if err != nil {
			require.ErrorContains(t, err, "another has taken its place")
		}
		return err == nil
	}
	lab.Again(t, func() bool {
		_, err := b.Acquire(t.Context(), request())
		return moved(err)
	})
	again := false
	lab.Again(t, func() bool {
		err := g.Hold.Release(t.Context(), 0)
		if again && errors.Is(err, driver.ErrLost) {
			return true // the release before has removed it, after all
		}
		again = true
		return moved(err)
	})
	assert.Equal(t, int64(0), after.MustDo(t, "EXISTS", redisnode.LockKey(held.Name)))
}

// A password that was changed while clients were connected: who asks for it when it
// connects gets in, also if the answer of the first time was the old one. A password
// that cannot change is refused at once.
func TestAPasswordThatWasChanged(t *testing.T) {
	rights := func(password string) []string {
		return []string{"on", "resetpass", ">" + password, "~*", "&*", "+@all"}
	}
	certs := lab.NewCerts(t)
	server := lab.StartRedis(t, lab.WithTLS(certs), lab.WithUser("default", "off"),
		lab.WithUser("app", rights("one")...))
	var asked atomic.Int64
	var answers atomic.Value // of strings
	answers.Store([]string{"one"})
	rdb := newClient(t, &redis.Options{Addr: server.Addr(), TLSConfig: certs.ClientConfig(), MaxRetries: -1,
		CredentialsProvider: func() (string, string) {
			all := answers.Load().([]string)
			return "app", all[min(int(asked.Add(1)), len(all))-1]
		}})
	fixed := newClient(t, &redis.Options{Addr: server.Addr(), TLSConfig: certs.ClientConfig(),
		MaxRetries: -1, Username: "app", Password: "one"})
	ready(t, rdb)
	ready(t, fixed)
	b, old := backend(t, rdb, nil), backend(t, fixed, nil)
	require.NoError(t, lock(t, b))
	require.NoError(t, lock(t, old))
	server.MustDo(t, append([]any{"ACL", "SETUSER", "app"}, anys(rights("two"))...)...)
	server.HangUp(t)
	asked.Store(0)
	answers.Store([]string{"one", "two"})
	require.NoError(t, lock(t, b), "the second answer is the right one")
	server.HangUp(t)
	asked.Store(0)
	_, err := b.Check(t.Context())
	require.NoError(t, err)
	err = lock(t, old)
	require.ErrorContains(t, err, "WRONGPASS")
	assert.NotErrorIs(t, err, driver.ErrUnavailable)
	asked.Store(0)
	answers.Store([]string{"one"})
	server.HangUp(t)
	began := time.Now()
	err = lock(t, b)
	require.ErrorContains(t, err, "WRONGPASS", "no password is right any more")
	assert.NotErrorIs(t, err, driver.ErrUnavailable)
	copies := int64(time.Since(began) / (50 * time.Millisecond)) // at most, on a machine that is so slow
	assert.LessOrEqual(t, asked.Load(), 10+3*copies, "it is not asked for ever")
}

func anys(words []string) (all []any) {
	for _, w := range words {
		all = append(all, w)
	}
	return all
}

// A server's certificate that is replaced by one of another authority, which the
// client has learnt to trust meanwhile.
func TestProveACertificateThatWasReplaced(t *testing.T) {
	lab.NeedProve(t)
	one, two := lab.NewCerts(t), lab.NewCerts(t)
	server := lab.StartRedis(t, lab.WithTLS(one), lab.WithConfig("tls-auth-clients", "yes"))
	var current atomic.Pointer[lab.Certs]
	current.Store(one)
	config := one.ClientConfig()
	config.InsecureSkipVerify = true // what follows verifies
	config.VerifyConnection = func(s tls.ConnectionState) error {
		_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: current.Load().ClientConfig().RootCAs,
			DNSName: "localhost"})
		return err
	}
	config.Certificates = nil
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return &current.Load().ClientConfig().Certificates[0], nil
	}
	rdb := newClient(t, &redis.Options{Addr: server.Addr(), TLSConfig: config, MaxRetries: -1})
	ready(t, rdb)
	b := backend(t, rdb, nil)
	require.NoError(t, lock(t, b))
	idle(t, rdb, 5)
	server.SetCerts(t, two)
	server.HangUp(t)
	err := lock(t, b)
	require.Error(t, err, "the client does not trust it yet")
	assert.NotErrorIs(t, err, driver.ErrUnavailable)
	current.Store(two)
	require.NoError(t, lock(t, b))
}
