//go:build unix

package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
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

func (s *store) exec(t *testing.T, db *sql.DB, statement string, args ...any) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, err := db.ExecContext(t.Context(), statement, args...)
		if !s.again(err) {
			require.NoError(t, err)
		}
		return err == nil
	}, 20*time.Second, time.Millisecond)
}

// state is the resource: a row with the last token that wrote it, and all of
// them, in the order in which they did.
type state struct {
	store *store
	db    *sql.DB
	table string
}

// state makes a table with a row 1, and a row 2 that nobody writes to.
func (s *store) state(t *testing.T, db *sql.DB) *state {
	t.Helper()
	st := &state{store: s, db: db, table: table("state")}
	s.exec(t, db,
		"CREATE TABLE "+st.table+" (id BIGINT NOT NULL PRIMARY KEY, token BIGINT NOT NULL, history TEXT NOT NULL)")
	s.exec(t, db, "INSERT INTO "+st.table+" VALUES (1, 0, ''), (2, 0, '')")
	return st
}

// write reads the row and writes what follows from it.
func (st *state) write(ctx context.Context, tx *sql.Tx, token fencing.Token) error {
	var history string
	err := tx.QueryRowContext(ctx, "SELECT history FROM "+st.table+" WHERE id = 1").Scan(&history)
	if err != nil {
		return err
	}
	n := st.store.number
	_, err = tx.ExecContext(ctx,
		"UPDATE "+st.table+" SET token = "+n(1)+", history = "+n(2)+" WHERE id = 1", int64(token),
		history+token.String()+" ")
	return err
}

// snapshot reads the other row.
func (st *state) snapshot(ctx context.Context, tx *sql.Tx) error {
	var token int64
	return tx.QueryRowContext(ctx, "SELECT token FROM "+st.table+" WHERE id = 2").Scan(&token)
}

// history returns the tokens that wrote, the last of them first checked against
// the row's token.
func (st *state) history(t *testing.T) []fencing.Token {
	t.Helper()
	var last int64
	var text string
	require.Eventually(t, func() bool {
		err := st.db.QueryRowContext(t.Context(),
			"SELECT token, history FROM "+st.table+" WHERE id = 1").Scan(&last, &text)
		if !st.store.again(err) {
			require.NoError(t, err)
		}
		return err == nil
	}, 20*time.Second, time.Millisecond)
	tokens := []fencing.Token{}
	for _, field := range strings.Fields(text) {
		token, err := fencing.Parse(field)
		require.NoError(t, err)
		tokens = append(tokens, token)
	}
	if len(tokens) > 0 {
		require.EqualValues(t, last, tokens[len(tokens)-1])
	}
	return tokens
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
