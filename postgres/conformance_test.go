package postgres_test

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/conformance"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/postgres"
)

func TestConformance(t *testing.T) {
	// On a slow machine, eight histories at a time, each with three pools, need more connections than it has
	// by default.
	conform(t, lab.StartPostgres(t, lab.WithConfig("max_connections", "300")), nil, "sslmode=disable")
}

// The parameters of libpq reach the driver: a server that cannot prove who it is is refused.
func TestProveTLS(t *testing.T) {
	lab.NeedProve(t)
	t.Parallel()
	certs := lab.NewCerts(t)
	s := lab.StartPostgres(t, lab.WithTLS(certs))
	ca := "sslrootcert=" + url.QueryEscape(certs.CAFile)
	c := newClient(t, s.URL(s.Addr(), "sslmode=verify-full", ca), nil)
	l := locktest.Lock(t, c, "a")
	assert.Equal(t, "t", s.Query(t,
		`SELECT bool_or(ssl) FROM pg_stat_ssl s
			JOIN pg_stat_activity a USING (pid) WHERE application_name = 'locker'`))
	require.NoError(t, l.Unlock(t.Context()))
	_, err := locker.Open(t.Context(), s.URL(s.Addr(), "sslmode=verify-full"), nil, postgres.Openers)
	require.ErrorContains(t, err, "certificate")
}

// conform runs the suite.
func conform(t *testing.T, s *lab.Postgres, opts *postgres.Options, params ...string) {
	connect := func(ct conformance.T, addr string) driver.Backend {
		b, pool, err := dial(context.Background(), s.URL(addr, params...), opts)
		if err != nil {
			ct.Errorf("dial: %v", err)
			ct.FailNow()
		}
		ct.Cleanup(pool.Close)
		return b
	}
	conformance.Run(t, conformance.Harness{
		TTL: 600 * time.Millisecond,
		New: func(ct conformance.T) driver.Backend { return connect(ct, s.Addr()) },
		Pair: func(ct conformance.T) (driver.Backend, driver.Backend) {
			a, pool, err := dial(context.Background(), s.URL(s.Addr(), params...), opts)
			if err != nil {
				ct.Errorf("dial: %v", err)
				ct.FailNow()
			}
			ct.Cleanup(pool.Close)
			b, _ := postgres.New(pool, opts)
			return a, b
		},
		Cut: func(ct conformance.T) (driver.Backend, conformance.Fault) {
			cut, fault := conformance.Proxy(ct, s.Addr())
			return connect(ct, cut), fault
		},
		Delete: func(_ conformance.T, name string) {
			s.Exec(t, "DELETE FROM locker_locks WHERE name = $1", []byte(name))
		},
		Restart: func(conformance.T) { s.Restart(t) },
		Left: func(_ conformance.T, name string) []string {
			if label := s.Query(t,
				`SELECT owner FROM locker_locks
					WHERE name = $1 AND owner <> '' AND expires > clock_timestamp()`, []byte(name)); label != "" {
				return []string{label}
			}
			return nil
		},
		URL:  s.URL(s.Addr(), params...),
		Open: conformance.OpenWith(postgres.Openers),
		// That of the server that was started again.
		KnownGoroutines: []string{"os.(*Process).pidfdWait"},
	})
}

// dial makes a Backend on a pool of its own.
func dial(ctx context.Context, url string, opts *postgres.Options) (*postgres.Backend, *pgxpool.Pool, error) {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return nil, nil, err
	}
	b, err := postgres.New(pool, opts)
	return b, pool, err
}

func newBackend(t testing.TB, url string, opts *postgres.Options) (*postgres.Backend, *pgxpool.Pool) {
	t.Helper()
	b, pool, err := dial(t.Context(), url, opts)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, b.Close())
		pool.Close()
	})
	return b, pool
}

// server starts one for a test that runs beside others, and a Backend on it.
func server(t *testing.T, opts ...lab.Option) (*lab.Postgres, *postgres.Backend, *pgxpool.Pool) {
	t.Helper()
	t.Parallel()
	s := lab.StartPostgres(t, opts...)
	b, pool := newBackend(t, s.URL(s.Addr(), "sslmode=disable"), nil)
	return s, b, pool
}

// proxied is server with a proxy between it and the Backend, whose statements can be read there.
func proxied(t *testing.T) (*lab.Postgres, *lab.Proxy, *postgres.Backend) {
	t.Helper()
	t.Parallel()
	s := lab.StartPostgres(t)
	p := lab.StartProxy(t, s.Addr())
	b, _ := newBackend(t, s.URL(p.Addr(), "sslmode=disable", "default_query_exec_mode=exec"), nil)
	return s, p, b
}
