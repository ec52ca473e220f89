//go:build unix

package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/fencing/sqlguard"
	"github.com/golockers/locker/internal/lab"
)

const password = "correct-horse" // of all servers

func postgresURL(addr, password string) string {
	return fmt.Sprintf("postgres://locker:%s@%s/postgres?sslmode=disable&connect_timeout=30", password, addr)
}

// startPostgres starts a PostgreSQL server.
func startPostgres(t *testing.T) *store {
	t.Helper()
	initdb, postgres := need(t, "initdb"), need(t, "postgres")
	dir := fromTemplate(t, "postgres", func(dir string) {
		file := filepath.Join(dir, "password")
		require.NoError(t, os.WriteFile(file, []byte(password), 0o644))
		run(t, dir, initdb, "-D", filepath.Join(dir, "data"), "-U", "locker", "--pwfile", file,
			"--auth", "scram-sha-256", "-E", "UTF8", "--locale", "C", "--no-sync")
	})
	data := filepath.Join(dir, "data")
	child, port := serve(t, func(port int) *lab.Child {
		c := startProcess(t, data, postgres, "-D", data, "-c", "listen_addresses=127.0.0.1", "-c", "port="+strconv.Itoa(port),
			"-c", "unix_socket_directories=", "-c", "fsync=off", "-c", "shared_buffers=16MB", "-c", "max_connections=60",
			"-c", "deadlock_timeout=100ms", "-c", "dynamic_shared_memory_type=mmap")
		// A fast shutdown: a server that is killed leaves shared memory behind.
		t.Cleanup(func() {
			if c.Running() {
				_ = syscall.Kill(c.Pid(), syscall.SIGINT)
				c.Wait(t, 30*time.Second)
			}
		})
		return c
	}, func(port int) error { return ping("pgx", postgresURL(address(port), password)) })
	return &store{
		name:    "PostgreSQL",
		dialect: sqlguard.Postgres,
		driver:  "pgx",
		server:  child.Process,
		addr:    address(port),
		dsn:     func(addr, password string) string { return postgresURL(addr, password) },
		levels:  []sql.IsolationLevel{sql.LevelDefault, sql.LevelReadUncommitted, sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable},
		again: func(err error) bool {
			var e *pgconn.PgError
			return errors.As(err, &e) && slices.Contains([]string{"40001", "40P01"}, e.Code)
		},
		blocked: `SELECT count(*) FROM pg_locks WHERE NOT granted`,
		commit:  "commit",
		number:  func(n int) string { return "$" + strconv.Itoa(n) },
		strict:  func(dsn string) string { return dsn + "&default_transaction_isolation=serializable" },
	}
}

func TestPostgres(t *testing.T) { suite(t, startPostgres(t)) }

// ping connects once.
func ping(driver, dsn string) error {
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return db.PingContext(ctx)
}
