package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/conformance"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/postgres"
)

func TestConformance(t *testing.T) {
	// On a slow machine, eight histories at a time, each with three pools, need more connections than it has
	// by default.
	s := lab.StartPostgres(t, lab.WithConfig("max_connections", "300"))
	at := func(addr string) string { return s.URL(addr, "sslmode=disable") }
	conformance.Run(t, conformance.Harness{
		TTL: 600 * time.Millisecond,
		New: func(t conformance.T) driver.Backend { b, _ := connect(t, at(s.Addr()), nil); return b },
		Pair: func(t conformance.T) (driver.Backend, driver.Backend) {
			a, pool := connect(t, at(s.Addr()), nil)
			b, err := postgres.New(pool, nil)
			require.NoError(t, err)
			return a, b
		},
		Cut: func(t conformance.T) (driver.Backend, conformance.Fault) {
			cut, fault := conformance.Proxy(t, s.Addr())
			b, _ := connect(t, at(cut), nil)
			return b, fault
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
		URL:  at(s.Addr()),
		Open: conformance.OpenWith(postgres.Openers),
		// That of the server that was started again.
		KnownGoroutines: []string{"os.(*Process).pidfdWait"},
	})
}

// connect makes a Backend, which the caller closes, on a pool of its own.
func connect(t conformance.T, url string, opts *postgres.Options) (*postgres.Backend, *pgxpool.Pool) {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), url)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	b, err := postgres.New(pool, opts)
	require.NoError(t, err)
	return b, pool
}

func newBackend(t testing.TB, url string, opts *postgres.Options) (*postgres.Backend, *pgxpool.Pool) {
	t.Helper()
	b, pool := connect(t, url, opts)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b, pool
}

// start starts a server for a test that runs beside others.
func start(t *testing.T, opts ...lab.Option) (s *lab.Postgres, url string) {
	t.Helper()
	t.Parallel()
	s = lab.StartPostgres(t, opts...)
	return s, s.URL(s.Addr(), "sslmode=disable")
}

// server is start with a Backend.
func server(t *testing.T, opts ...lab.Option) (*lab.Postgres, *postgres.Backend, *pgxpool.Pool) {
	t.Helper()
	s, url := start(t, opts...)
	b, pool := newBackend(t, url, nil)
	return s, b, pool
}

// proxied is server with a proxy between it and the Backend, whose statements can be read there.
func proxied(t *testing.T) (*lab.Postgres, *lab.Proxy, *postgres.Backend) {
	t.Helper()
	s, _ := start(t)
	p := lab.StartProxy(t, s.Addr())
	b, _ := newBackend(t, s.URL(p.Addr(), "sslmode=disable", "default_query_exec_mode=exec"), nil)
	return s, p, b
}
