//go:build unix

package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/golockers/locker/fencing/sqlguard"
	"github.com/golockers/locker/internal/lab"
)

const password = lab.PostgresPassword // of all servers

func postgresURL(addr, password string) string {
	return fmt.Sprintf("postgres://locker:%s@%s/postgres?sslmode=disable&connect_timeout=30", password, addr)
}

// startPostgres starts a PostgreSQL server, with the password of all servers.
func startPostgres(t *testing.T) *store {
	t.Helper()
	server := lab.StartPostgres(t, lab.WithConfig("max_connections", "60"))
	return &store{
		name:    "PostgreSQL",
		dialect: sqlguard.Postgres,
		driver:  "pgx",
		server:  server.Process,
		addr:    server.Addr(),
		dsn:     postgresURL,
		levels: []sql.IsolationLevel{sql.LevelDefault, sql.LevelReadUncommitted, sql.LevelReadCommitted,
			sql.LevelRepeatableRead, sql.LevelSerializable},
		again: func(err error) bool {
			var e *pgconn.PgError
			return errors.As(err, &e) && slices.Contains([]string{"40001", "40P01"}, e.Code)
		},
		blocked: `SELECT count(*) FROM pg_locks WHERE NOT granted`,
		commit:  "\vcommit",
		number:  func(n int) string { return "$" + strconv.Itoa(n) },
		strict:  "&default_transaction_isolation=serializable",
		hasty:   "&default_transaction_isolation=serializable",
	}
}

func TestPostgres(t *testing.T) {
	t.Parallel()
	suite(t, startPostgres(t))
}

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
