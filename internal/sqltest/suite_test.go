//go:build unix

package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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

func (st *state) read(ctx context.Context, db sqlguard.Querier, id int) (history string, err error) {
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
	m, ok, err := g.Mark(t.Context(), db, resource)
	require.NoError(t, err)
	require.Equal(t, m != 0, ok)
	return m
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
