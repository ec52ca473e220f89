//go:build unix

package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/sqlguard"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/sqlstate"
)

func nothing(context.Context, *sql.Tx) error { return nil }

// everything calls whatever asks the database, and hands on the errors.
func everything(t *testing.T, s *store, db *sql.DB, name string, look func(what string, err error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	g, err := sqlguard.New(s.dialect, &sqlguard.Options{Table: name})
	require.NoError(t, err)
	look("Do", g.Do(ctx, db, nil, "r", 1, nothing))
	look("Raise", g.Raise(ctx, db, "r", 1))
	require.NoError(t, ctx.Err())
}

func testUnreachable(t *testing.T, s *store) {
	dsn := "file:" + filepath.Join(t.TempDir(), "no", "such.db") // where there is no directory
	if s.server != nil {
		p := lab.StartProxy(t, s.addr)
		p.Set(lab.Reset)
		dsn = s.dsn(p.Addr(), password)
	}
	everything(t, s, s.openDSN(t, dsn), "t", func(what string, err error) {
		require.ErrorIs(t, err, locker.ErrUnavailable, what)
		assert.NotContains(t, err.Error(), "\n", what)
		assert.NotContains(t, err.Error(), password, what)
	})
}

// The connection breaks before the commit: nothing is open then.
func testConnectionLost(t *testing.T, s *store) {
	if s.server == nil {
		t.Skip("there is no server")
	}
	p := lab.StartProxy(t, s.addr)
	db, direct := s.openDSN(t, s.dsn(p.Addr(), password)), s.open(t)
	g, name := s.guard(t, direct)
	st := s.state(t, direct)
	p.CutReply(name)
	checked := g.Do(t.Context(), db, nil, "r", 3, nothing)
	written := g.Do(t.Context(), db, nil, "r", 3, func(ctx context.Context, tx *sql.Tx) error {
		p.Set(lab.Reset)
		return st.write(ctx, tx, 3)
	})
	for _, err := range []error{checked, written} {
		require.ErrorIs(t, err, locker.ErrUnavailable, "what fn's driver says is told as what Check's does")
		require.NotErrorIs(t, err, fencing.ErrUnknown, "no commit was sent")
	}
	assert.Empty(t, st.history(t))
	assert.Zero(t, mark(t, g, direct, "r"))
}

// A wrong password and a table that nobody has created are mistakes, and the error keeps the secret.
func testNotAnOutage(t *testing.T, s *store) {
	const wrong = "Tr0ub4dor-and-3"
	for says, db := range map[string]*sql.DB{"never_made": s.open(t), "locker": s.openDSN(t, s.dsn(s.addr, wrong))} {
		if says == "locker" && s.server == nil {
			continue // there is nobody to ask for a password
		}
		everything(t, s, db, "never_made", func(what string, err error) {
			require.ErrorContains(t, err, says, what)
			require.NotErrorIs(t, err, locker.ErrUnavailable, what)
			assert.NotContains(t, err.Error(), wrong, what)
			assert.NotContains(t, err.Error(), "\n", what)
		})
	}
}

// Do reports an error of a statement in fn in the same way as one of the commit: a caller that asks for
// ErrUnknown gets it wherever it came from.
func TestWhatTheDriverSaysInFn(t *testing.T) {
	t.Parallel()
	s := startPostgres(t)
	db := s.open(t)
	g, _ := s.guard(t, db)
	for state, want := range map[string]error{"40003": fencing.ErrUnknown, "57P01": locker.ErrUnavailable} {
		err := g.Do(t.Context(), db, nil, "r", 1, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx,
				"DO $$ BEGIN RAISE EXCEPTION 'on purpose' USING ERRCODE = '"+state+"'; END $$")
			return err
		})
		require.ErrorIs(t, err, want)
		assert.Equal(t, state, sqlstate.Of(err))
		assert.ErrorContains(t, err, `sqlguard: write to "r"`)
	}
	own := errors.New("changed my mind")
	err := g.Do(t.Context(), db, nil, "r", 1, func(context.Context, *sql.Tx) error { return own })
	assert.Equal(t, own, err, "what is not the database's is returned as it is")
}

func testCreate(t *testing.T, s *store) {
	db := s.open(t)
	for round := range 5 {
		g, err := sqlguard.New(s.dialect, &sqlguard.Options{Table: table("marks")})
		require.NoError(t, err)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() { assert.NoError(t, s.insist(func() error { return g.Create(t.Context(), db) }), round) })
		}
		wg.Wait()
		require.NoError(t, s.check(t, g, db, "r", 1))
		require.NoError(t, g.Create(t.Context(), db))
		assert.EqualValues(t, 1, mark(t, g, db, "r"), "creating it again leaves what is there")
	}
}

// Tables can be in a schema, have upper case, and be called like a keyword.
func testTables(t *testing.T, s *store) {
	db := s.open(t)
	schema := table("Schema")
	switch s.dialect {
	case sqlguard.Postgres:
		s.exec(t, db, `CREATE SCHEMA "`+schema+`"`)
	case sqlguard.MySQL:
		s.exec(t, db, "CREATE DATABASE `"+schema+"`")
	default:
		schema = "main"
	}
	for _, name := range []string{schema + ".order", schema + ".Order_Marks", "group", "Select"} {
		g, err := sqlguard.New(s.dialect, &sqlguard.Options{Table: name})
		require.NoError(t, err)
		s.exec(t, db, g.Statements().Create)
		s.exec(t, db, g.Statements().Create)
		require.NoError(t, s.check(t, g, db, "r", 2), name)
		require.ErrorIs(t, s.check(t, g, db, "r", 1), fencing.ErrStale, name)
	}
}

// age makes marks older than they are.
func (s *store) age(t *testing.T, db *sql.DB, table string, by time.Duration) {
	t.Helper()
	s.exec(t, db, fmt.Sprintf("UPDATE %s SET used = used - %d", table, int(by/time.Second)))
}

func testSweep(t *testing.T, s *store) {
	db := s.open(t)
	g, name := s.guard(t, db)
	for _, old := range []string{"old0", "old1", "old2"} {
		require.NoError(t, s.check(t, g, db, old, 9))
	}
	s.age(t, db, name, 3*time.Hour)
	require.NoError(t, s.check(t, g, db, "young", 9))
	require.NoError(t, s.check(t, g, db, "old0", 9), "used again")
	for age, want := range map[int]int64{290 * 365 * 24 * 3600: 0, 4 * 3600: 0, 2 * 3600: 2} {
		removed, err := db.ExecContext(t.Context(), g.Statements().Sweep, age)
		require.NoError(t, err)
		n, err := removed.RowsAffected()
		require.NoError(t, err)
		assert.Equal(t, want, n)
	}
	require.ErrorIs(t, s.check(t, g, db, "young", 8), fencing.ErrStale)
	require.ErrorIs(t, s.check(t, g, db, "old0", 8), fencing.ErrStale)
	require.NoError(t, s.check(t, g, db, "old1", 1), "what a Sweep costs: this holder passes again")
}

// A mark that is checked while a Sweep is about to remove it stays.
func testSweepInUse(t *testing.T, s *store) {
	if s.blocked == "" {
		t.Skip("a write locks the whole database: a Sweep cannot come between")
	}
	db := s.open(t)
	g, name := s.guard(t, db)
	require.NoError(t, s.check(t, g, db, "r", 9))
	s.age(t, db, name, 3*time.Hour)
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	require.NoError(t, g.Check(t.Context(), tx, "r", 9))
	swept := make(chan error, 1)
	go func() { _, err := db.ExecContext(t.Context(), g.Statements().Sweep, 2*3600); swept <- err }()
	s.untilBlocked(t, db)
	require.NoError(t, tx.Commit())
	require.NoError(t, <-swept)
	require.ErrorIs(t, s.check(t, g, db, "r", 8), fencing.ErrStale)
}
