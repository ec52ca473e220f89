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
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"modernc.org/sqlite"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/sqlguard"
	"github.com/golockers/locker/internal/lab"
)

// store is a database under test.
type store struct {
	name    string
	dialect sqlguard.Dialect
	driver  string
	dsn     func(addr, password string) string
	levels  []sql.IsolationLevel
	again   func(error) bool   // the driver's error says: do it again
	number  func(n int) string // the nth placeholder
	server  *lab.Process       // nil: there is none
	addr    string             // of the server
	blocked string             // asks how many wait for a lock; "": nobody knows
	locks   bool               // BEGIN or a mere read locks the whole database
	commit  string             // what the driver sends to commit, if there is a server
	strict  string             // in the DSN, makes SERIALIZABLE the default
	hasty   string             // the same, with a time limit for a driver whose commit does not heed its context
}

// suite is what every database has to pass.
func suite(t *testing.T, s *store) {
	require.NoError(t, ping(s.driver, s.dsn(s.addr, password)))
	for _, c := range []struct {
		name string
		test func(t *testing.T, s *store)
	}{
		{"suite", testSuite},
		{"refused", testRefused},
		{"together", testTogether},
		{"orders", testOrders},
		{"create", testCreate},
		{"tables", testTables},
		{"sweep", testSweep},
		{"sweep in use", testSweepInUse},
		{"unreachable", testUnreachable},
		{"connection lost", testConnectionLost},
		{"not an outage", testNotAnOutage},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, s) })
	}
}

func (s *store) open(t *testing.T) *sql.DB {
	t.Helper()
	return s.openDSN(t, s.dsn(s.addr, password))
}

func (s *store) openDSN(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(s.driver, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

var tables atomic.Int64

// table returns a name that no other test uses.
func table(kind string) string { return fmt.Sprintf("%s_%d", kind, tables.Add(1)) }

func (s *store) guard(t *testing.T, db *sql.DB) (*sqlguard.Guard, string) {
	t.Helper()
	name := table("marks")
	g, err := sqlguard.New(s.dialect, &sqlguard.Options{Table: name})
	require.NoError(t, err)
	require.NoError(t, g.Create(t.Context(), db))
	return g, name
}

func (s *store) exec(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	require.NoError(t, s.insist(func() error { _, err := db.ExecContext(t.Context(), statement); return err }))
}

// state is the resource: a row with the tokens that wrote it, in the order in which they did.
type state struct {
	store *store
	db    *sql.DB
	table string
}

// state makes a table with a row 1, and a row 2 that nobody writes to.
func (s *store) state(t *testing.T, db *sql.DB) *state {
	t.Helper()
	st := &state{store: s, db: db, table: table("state")}
	s.exec(t, db, "CREATE TABLE "+st.table+" (id BIGINT NOT NULL PRIMARY KEY, history TEXT NOT NULL)")
	s.exec(t, db, "INSERT INTO "+st.table+" VALUES (1, ''), (2, '')")
	return st
}

// write reads the row and writes what follows from it.
func (st *state) write(ctx context.Context, tx *sql.Tx, token fencing.Token) error {
	history, err := st.read(ctx, tx, 1)
	if err == nil {
		_, err = tx.ExecContext(ctx, "UPDATE "+st.table+" SET history = "+st.store.number(1)+" WHERE id = 1",
			history+token.String()+" ")
	}
	return err
}

type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func (st *state) read(ctx context.Context, db querier, id int) (history string, err error) {
	rows, err := db.QueryContext(ctx, fmt.Sprintf("SELECT history FROM %s WHERE id = %d", st.table, id))
	if err != nil {
		return "", err
	}
	defer func() { _ = rows.Close() }()
	if rows.Next() {
		err = rows.Scan(&history)
	}
	return history, errors.Join(err, rows.Err())
}

// history returns the tokens that wrote, each with a space behind it.
func (st *state) history(t *testing.T) (history string) {
	t.Helper()
	require.NoError(t, st.store.insist(func() (err error) { history, err = st.read(t.Context(), st.db, 1); return err }))
	return history
}

// mark returns the mark of a resource, 0 if there is none.
func mark(t *testing.T, g *sqlguard.Guard, db *sql.DB, resource string) fencing.Token {
	t.Helper()
	m, err := markOf(t.Context(), g, db, resource)
	require.NoError(t, err)
	return m
}

func markOf(ctx context.Context, g *sqlguard.Guard, db *sql.DB, resource string) (m fencing.Token, err error) {
	err = db.QueryRowContext(ctx, g.Statements().Mark, []byte(resource)).Scan(&m)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return m, err
}

// insist repeats do as long as the database asks for it.
func (s *store) insist(do func() error) error {
	for deadline := time.Now().Add(60 * time.Second); ; {
		err := do()
		if err == nil || !s.again(err) || errors.Is(err, fencing.ErrStale) || time.Now().After(deadline) {
			return err
		}
		time.Sleep(time.Millisecond) // what SQLite's own patience does
	}
}

// check is a transaction with a token and without a write.
func (s *store) check(t *testing.T, g *sqlguard.Guard, db *sql.DB, resource string,
	token fencing.Token) error {
	t.Helper()
	return s.insist(func() error {
		return g.Do(t.Context(), db, nil, resource, token,
			func(context.Context, *sql.Tx) error { return nil })
	})
}

func TestMain(m *testing.M) {
	lab.RunRole(lab.Roles{"holdRecord": holdRecord})
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
