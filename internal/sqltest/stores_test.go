//go:build unix

package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"modernc.org/sqlite"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/sqlguard"
	"github.com/golockers/locker/internal/lab"
)

func TestMain(m *testing.M) {
	lab.RunRole(nil)
	goleak.VerifyTestMain(m)
}

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

func mysqlDSN(addr, password string) string {
	return fmt.Sprintf("locker:%s@tcp(%s)/locker", password, addr)
}

// startMariaDB starts a MariaDB server with a few more settings.
func startMariaDB(t *testing.T, settings ...string) *store {
	t.Helper()
	server := lab.StartMariaDB(t, func(addr string) error { return ping("mysql", mysqlDSN(addr, password)) },
		settings...)
	return &store{
		name:    "MariaDB",
		dialect: sqlguard.MySQL,
		driver:  "mysql",
		server:  server,
		addr:    server.Addr(),
		dsn:     mysqlDSN,
		levels: []sql.IsolationLevel{sql.LevelDefault, sql.LevelReadUncommitted, sql.LevelReadCommitted,
			sql.LevelRepeatableRead, sql.LevelSerializable},
		again: func(err error) bool {
			var e *mysql.MySQLError
			return errors.As(err, &e) && slices.Contains([]uint16{1213, 1205, 1020}, e.Number)
		},
		// Not INNODB_TRX, which stands still while it is asked often.
		blocked: `SELECT variable_value FROM information_schema.GLOBAL_STATUS
			WHERE variable_name = 'INNODB_ROW_LOCK_CURRENT_WAITS'`,
		number: func(int) string { return "?" },
		commit: "COMMIT",
		strict: "?tx_isolation=%27SERIALIZABLE%27",
		hasty:  "?tx_isolation=%27SERIALIZABLE%27&readTimeout=1s",
	}
}

func TestMariaDB(t *testing.T) {
	t.Parallel()
	suite(t, startMariaDB(t))
}

// Newer releases fail a transaction that locks what has changed since it first
// read; older ones go on.
func TestMariaDBSnapshotIsolation(t *testing.T) {
	t.Parallel()
	s := startMariaDB(t, "--innodb-snapshot-isolation=ON")
	suite(t, s)
}

// A connection with autocommit=0 commits nothing by itself: what a Sweep did would
// be undone when it closes, and keep others waiting until then.
func TestMariaDBWithoutAutocommit(t *testing.T) {
	t.Parallel()
	s := startMariaDB(t)
	direct := s.open(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	marks, table := s.guard(t, direct)
	db := s.openDSN(t, s.dsn(s.addr, password)+"?autocommit=0")
	db.SetMaxOpenConns(1)
	for token := fencing.Token(7); token < 9; token++ { // the second time with a connection that has looked before
		require.NoError(t, s.check(t, marks, direct, "r", token))
		s.age(t, direct, table, 3*time.Hour, "")
		n, err := marks.Sweep(ctx, db, time.Hour)
		require.NoError(t, err)
		assert.EqualValues(t, 1, n)
		assert.Zero(t, mark(t, marks, direct, "r"), "others see it, and do not wait for it")
	}
	require.NoError(t, s.check(t, marks, db, "r", 9))
	require.NoError(t, marks.Raise(ctx, db, "r", 10))
	require.NoError(t, db.Close())
	assert.EqualValues(t, 10, mark(t, marks, direct, "r"), "it was not undone")
}

// openSQLite has a database in a file of its own, with a few more parameters.
func openSQLite(t *testing.T, name, parameters string) *store {
	file := filepath.Join(t.TempDir(), "test.db")
	return &store{
		name:    name,
		dialect: sqlguard.SQLite,
		driver:  "sqlite",
		dsn:     func(string, string) string { return fmt.Sprintf("file:%s?%s", file, parameters) },
		levels:  []sql.IsolationLevel{sql.LevelDefault, sql.LevelSerializable},
		again: func(err error) bool {
			var e *sqlite.Error
			return errors.As(err, &e) && (e.Code()&0xff == 5 || e.Code()&0xff == 6) // BUSY, LOCKED
		},
		number: func(int) string { return "?" },
		locks:  !strings.Contains(parameters, "wal"),
	}
}

func TestSQLite(t *testing.T) {
	t.Parallel()
	suite(t, openSQLite(t, "SQLite", "_pragma=busy_timeout(10000)&_pragma=synchronous(off)"))
}

func TestSQLiteWAL(t *testing.T) {
	t.Parallel()
	suite(t, openSQLite(t, "SQLite",
		"_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)&_pragma=synchronous(normal)"))
}

func TestSQLiteImmediate(t *testing.T) {
	t.Parallel()
	suite(t, openSQLite(t, "SQLite",
		"_pragma=busy_timeout(10000)&_pragma=synchronous(off)&_txlock=immediate"))
}

// Without a time-out everything that meets another fails at once.
func TestSQLiteWithoutPatience(t *testing.T) {
	t.Parallel()
	suite(t, openSQLite(t, "SQLite", "_pragma=journal_mode(wal)&_pragma=synchronous(normal)"))
}
