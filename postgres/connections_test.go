package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/postgres"
)

const ours = "FROM pg_stat_activity WHERE application_name = 'locker'"

// terminate ends the connections of the backends, and returns when they have ended.
func terminate(t *testing.T, s *lab.Postgres) {
	t.Helper()
	ended := s.Query(t, "SELECT array_agg(CASE WHEN pg_terminate_backend(pid) THEN pid END)::text "+ours)
	until(t, s, "0", "SELECT count(*) FROM pg_stat_activity WHERE pid = ANY(coalesce($1, '{}')::int[])", ended)
}

// A connection that was closed while it was idle is no outage, and no lock is refused for it.
func TestConnectionsThatWereClosed(t *testing.T) {
	t.Parallel()
	s := lab.StartPostgres(t)
	p := lab.StartProxy(t, s.Addr())
	for name, end := range map[string]func(){
		"by the server": func() { terminate(t, s) },
		"by a proxy": func() {
			p.Set(lab.Reset)
			p.Set(lab.Pass)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, pool := newBackend(t, s.URL(p.Addr(), "sslmode=disable", "application_name=locker",
				"pool_max_conns=8"), nil)
			fill := func() {
				var all []*pgxpool.Conn
				for range 8 {
					conn, err := pool.Acquire(t.Context())
					require.NoError(t, err)
					all = append(all, conn)
				}
				for _, conn := range all {
					conn.Release()
				}
			}
			g := acquire(t, b, "a", owner(1))
			for _, ask := range []func() error{
				func() error { _, err := locktest.Ask(t.Context(), b, request("b", owner(2))); return err },
				func() error { _, err := g.Hold.Renew(t.Context()); return err },
				func() error { _, err := b.Inspect(t.Context(), "a"); return err },
				func() error { return g.Hold.Release(t.Context(), 0) },
			} {
				fill()
				end()
				require.NoError(t, ask())
			}
			_, err := locktest.Break(t.Context(), b, "b")
			require.NoError(t, err)
		})
	}
}

// A server or a proxy that ends idle sessions ends neither leases nor waiting.
func TestIdleSessionsThatAreEnded(t *testing.T) {
	s, u := start(t)
	if version := s.Query(t, "SHOW server_version_num"); version < "140000" {
		t.Skipf("PostgreSQL %s ends no idle sessions", version)
	}
	s.Set(t, "idle_session_timeout", "400ms")
	s.Exec(t, "ALTER ROLE current_user SET idle_session_timeout = 0") // the questions asked here are not ended
	holder, waiter, job := newClient(t, u, nil), newClient(t, u, nil), newClient(t, u, nil)
	l := locktest.Lock(t, holder, "a", locker.TTL(6*time.Second))
	ready, got := startWaiters(t, waiter, "a", 1)
	for range 4 {
		// Longer than a session may be idle, and not so long that pgx asks whether it lives.
		time.Sleep(600 * time.Millisecond)
		j, err := job.TryLock(t.Context(), "job")
		require.NoError(t, err)
		require.NoError(t, j.Unlock(t.Context()))
	}
	require.NoError(t, l.Err())
	const listens = "SELECT pid " + ours + " AND query LIKE '%idle_session_timeout%'"
	until(t, s, "1", "SELECT count(*) FROM ("+listens+") l")
	before := s.Query(t, listens)
	time.Sleep(600 * time.Millisecond)
	require.Equal(t, before, s.Query(t, listens), "the connection that listens is not idle")
	<-ready

	// It ends all the same: the waiter is told of what comes after that.
	s.Exec(t, "SELECT pg_terminate_backend("+before+", 5000)")
	until(t, s, "1", "SELECT count(*) FROM ("+listens+") l")
	began := time.Now()
	require.NoError(t, l.Unlock(t.Context()))
	require.Less(t, (<-got).Sub(began), 5*time.Second, "before a poll")
}

// Connections that a proxy has forgotten, so that nothing answers on them, are left within the time of a
// request.
func TestConnectionsThatAProxyForgot(t *testing.T) {
	t.Parallel()
	s := lab.StartPostgres(t)
	p := lab.StartProxy(t, s.Addr())
	c := newClient(t, s.URL(p.Addr(), "sslmode=disable", "pool_max_conns=3", "pool_min_conns=3"), nil)
	l := locktest.Lock(t, c, "a", locker.TTL(time.Hour)) // no renewal comes in between
	// pgx asks a connection that was idle for so long whether it lives.
	until(t, s, "3", "SELECT count(*) "+ours+" AND clock_timestamp() - state_change > interval '1.1s'")
	p.Set(lab.HoldOpen)
	_, err := c.TryLock(t.Context(), "b")
	require.NoError(t, err)
	require.NoError(t, l.Renew(t.Context()))
}

// A password and certificates that are replaced in their files are read again with the next connection. A server
// that cannot prove who it is is refused.
func TestProveCredentialsThatAreReplaced(t *testing.T) {
	lab.NeedProve(t)
	t.Parallel()
	certs := lab.NewCerts(t)
	s := lab.StartPostgres(t, lab.WithTLS(certs))
	s.Exec(t, "CREATE USER jobs PASSWORD 'first'")
	s.Exec(t, "GRANT CREATE ON SCHEMA public TO jobs")
	dir := t.TempDir()
	file := filepath.Join(dir, "pgpass")
	password := func(word string) {
		s.Exec(t, "ALTER USER jobs PASSWORD '"+word+"'")
		require.NoError(t, os.WriteFile(file, []byte("*:*:*:jobs:"+word+"\n"), 0o600))
	}
	password("first")
	ca := filepath.Join(dir, "ca.pem")
	replace := func(from, to string) {
		text, err := os.ReadFile(from)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(to, text, 0o600))
	}
	replace(certs.CAFile, ca)
	u := strings.Replace(s.URL(s.Addr(), "sslmode=verify-full", "sslrootcert="+url.QueryEscape(ca),
		"passfile="+url.QueryEscape(file)),
		"locker:"+lab.PostgresPassword, "jobs", 1)
	c, waiter := newClient(t, u, nil), newClient(t, u, nil)
	_, err := locker.Open(t.Context(), s.URL(s.Addr(), "sslmode=verify-full"), nil, postgres.Openers)
	require.ErrorContains(t, err, "certificate")
	require.Equal(t, "t", s.Query(t, "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN (SELECT pid "+ours+") a USING (pid)"))
	for what, change := range map[string]func(){
		"password": func() { password("second") },
		"certificates": func() {
			next := lab.NewCerts(t)
			replace(next.CertFile, filepath.Join(s.Dir(), "data", "server.crt"))
			replace(next.KeyFile, filepath.Join(s.Dir(), "data", "server.key"))
			replace(next.CAFile, ca)
			s.Exec(t, "SELECT pg_reload_conf()")
		},
	} {
		t.Run(what, func(t *testing.T) {
			l := locktest.Lock(t, c, "a", locker.TTL(10*time.Second))
			ready, got := startWaiters(t, waiter, "a", 1)
			<-ready
			change()
			terminate(t, s)
			require.NoError(t, l.Renew(t.Context()))
			require.NoError(t, l.Unlock(t.Context()))
			<-got
		})
	}
	// A user whose time is over is refused, and says so; a lease lasts as long as its connections do.
	l := locktest.Lock(t, c, "b")
	s.Exec(t, "ALTER USER jobs VALID UNTIL '2001-01-01'")
	require.NoError(t, l.Renew(t.Context()))
	terminate(t, s)
	_, err = c.TryLock(t.Context(), "c")
	require.ErrorContains(t, err, "password")
	require.NotErrorIs(t, err, driver.ErrUnavailable)
	s.Exec(t, "ALTER USER jobs VALID UNTIL 'infinity'")
	require.NoError(t, l.Renew(t.Context()))
}

// A name in the address that leads elsewhere is looked up with each connection, also by the one that listens.
func TestProveAnAddressThatMoves(t *testing.T) {
	lab.NeedProve(t)
	t.Parallel()
	s := lab.StartPostgres(t, lab.WithConfig("listen_addresses", "127.0.0.1,127.0.0.2"))
	config, err := pgxpool.ParseConfig(fmt.Sprintf(
		"postgres://locker:%s@db.test:%d/postgres?sslmode=disable&application_name=locker",
		lab.PostgresPassword, s.Port()))
	require.NoError(t, err)
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}} // so that the server knows which one it was
		return from.DialContext(ctx, network, addr)
	}
	var now atomic.Value
	now.Store("127.0.0.2")
	config.ConnConfig.LookupFunc = func(_ context.Context, host string) ([]string, error) {
		if host != "db.test" {
			return nil, errors.New("no such host")
		}
		return []string{now.Load().(string)}, nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	b, err := postgres.New(pool, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()); pool.Close() })
	c := locktest.Client(t, b, nil)
	l, err := newClient(t, s.URL(s.Addr(), "sslmode=disable", "application_name=holder"),
		nil).Lock(t.Context(), "a")
	require.NoError(t, err)
	ready, got := startWaiters(t, c, "a", 1)
	<-ready
	const away = "SELECT count(*) " + ours + " AND client_addr = '127.0.0.2'"
	require.NotEqual(t, "0", s.Query(t, away))
	now.Store("127.0.0.1")
	terminate(t, s)
	require.NoError(t, l.Unlock(t.Context()))
	<-got
	assert.Equal(t, "0", s.Query(t, away))
}

// Held waits no longer than the timeout: for a server that says nothing, whether the lease is there or over,
// or for a connection to look for the table, when tx has the pool's only one.
func TestHeldWaitsNoLongerThanTheTimeout(t *testing.T) {
	s, direct, _ := server(t)
	acquire(t, direct, "c", owner(3)) // the table is there
	for _, what := range []string{"silent", "over and silent", "no connection"} {
		t.Run(what, func(t *testing.T) {
			p := lab.StartProxy(t, s.Addr())
			b, pool := newBackend(t, s.URL(p.Addr(), "sslmode=disable", "pool_max_conns=2"),
				&postgres.Options{NoCreate: true, Timeout: time.Second})
			l := locktest.Lock(t, locktest.Must(locker.New(b, &locker.Options{TTL: time.Hour})), what)
			var before pgx.Tx
			switch what {
			case "over and silent":
				require.NoError(t, l.Unlock(t.Context()))
			case "no connection":
				s.Exec(t, "DROP TABLE locker_locks")
				_, err := locktest.Ask(t.Context(), b, request("b", owner(2)))
				require.ErrorContains(t, err, "is gone")
				before = begin(t, pool)
			}
			tx := begin(t, pool)
			if before == nil {
				p.Set(lab.Hold)
				defer p.Set(lab.Reset)
			}
			select {
			case err := <-later(func() error { return postgres.Held(context.Background(), tx, l) }):
				require.Error(t, err)
				require.Equal(t, what == "over and silent", !errors.Is(err, driver.ErrUnavailable))
				require.Error(t, tx.Commit(t.Context()))
			case <-time.After(30 * time.Second):
				require.Fail(t, "it waits for ever")
			}
		})
	}
}

// settles is how long waiters are not refused when the connection for wake-ups has proved to hear.
const settles = time.Second

// A thousand goroutines that wait cost one connection, and nothing is sent while nothing changes.
func TestProveWaitersCostOneConnectionAndNoQuery(t *testing.T) {
	lab.NeedProve(t)
	t.Parallel()
	s := lab.StartPostgres(t)
	holder, err := newClient(t, s.URL(s.Addr(), "sslmode=disable"), nil).Lock(t.Context(), "a",
		locker.TTL(time.Hour))
	require.NoError(t, err)
	p := lab.StartProxy(t, s.Addr())
	c := newClient(t, s.URL(p.Addr(), "sslmode=disable", "application_name=waiting",
		"pool_max_conn_idle_time=100ms", "pool_health_check_period=100ms"), nil)
	ready, got := startWaiters(t, c, "a", 1000)
	<-ready
	const connections = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'waiting'"
	locktest.Eventually(t, time.Minute, "two seconds without a poll", func() bool {
		until(t, s, "1", connections) // those of the pool, which are idle, go
		polls := c.Stats().Attempts
		sent := p.Stats().Requests.Sent
		time.Sleep(2 * time.Second) // what is measured is that nothing happens
		now, connected := p.Stats().Requests.Sent, s.Query(t, connections)
		until(t, s, "1", connections) // a poll is counted when it has ended
		if c.Stats().Attempts != polls {
			return false
		}
		assert.Equal(t, sent, now)
		assert.Equal(t, "1", connected)
		return true
	})
	require.NoError(t, holder.Unlock(t.Context()))
	select {
	case <-got:
	case <-time.After(4 * time.Second): // the next poll comes later
		t.Error("nobody was told of the release")
	}
}

// startWaiters has so many goroutines wait for name, until the test ends. They poll until they are told of
// releases: ready is closed when they were refused twice, and not again for the time of settles.
func startWaiters(t *testing.T, c *locker.Client, name string, goroutines int) (ready chan struct{}, got chan time.Time) {
	ready, got = make(chan struct{}), make(chan time.Time, goroutines)
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	t.Cleanup(func() { cancel(); done.Wait() })
	refused := c.Stats().Refused
	for range goroutines {
		done.Go(func() {
			l, err := c.Lock(ctx, name)
			if err != nil {
				return
			}
			got <- time.Now()
			<-ctx.Done()
			_ = l.Unlock(context.WithoutCancel(ctx))
		})
	}
	done.Go(func() {
		last, since := refused, time.Now()
		for ; ctx.Err() == nil; time.Sleep(time.Millisecond) {
			now := c.Stats()
			if now.Waiting != goroutines || now.Refused < refused+2 || now.Refused != last {
				last, since = now.Refused, time.Now()
			} else if time.Since(since) > settles {
				close(ready)
				return
			}
		}
	})
	return ready, got
}
