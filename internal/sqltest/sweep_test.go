//go:build unix

package sqltest_test

import (
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/sqlguard"
)

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
		s.exec(t, db, g.Schema())
		s.exec(t, db, g.Schema())
		require.NoError(t, s.check(t, g, db, "r", 2), name)
		require.ErrorIs(t, s.check(t, g, db, "r", 1), fencing.ErrStale, name)
	}
}

// age makes marks older than they are.
func (s *store) age(t *testing.T, db *sql.DB, table string, by time.Duration, where string) {
	t.Helper()
	s.exec(t, db, fmt.Sprintf("UPDATE %s SET used = used - %d %s", table, int(by/time.Second), where))
}

func testSweep(t *testing.T, s *store) {
	db := s.open(t)
	g, name := s.guard(t, db)
	_, err := g.Sweep(t.Context(), db, time.Minute-1)
	require.ErrorIs(t, err, locker.ErrInvalid)
	const many = 1100 // more than are looked for at once
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	for i := range many {
		require.NoError(t, g.Check(t.Context(), tx, fmt.Sprint("old", i), 9))
	}
	require.NoError(t, tx.Commit())
	s.age(t, db, name, 3*time.Hour, "")
	require.NoError(t, s.check(t, g, db, "young", 9))
	require.NoError(t, s.check(t, g, db, "old0", 9), "used again")
	for age, want := range map[time.Duration]int64{290 * 365 * 24 * time.Hour: 0, 4 * time.Hour: 0} {
		n, err := g.Sweep(t.Context(), db, age)
		require.NoError(t, err)
		assert.Equal(t, want, n)
	}
	n, err := g.Sweep(t.Context(), db, 2*time.Hour)
	require.NoError(t, err)
	assert.EqualValues(t, many-1, n)
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
	s.age(t, db, name, 3*time.Hour, "")
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	require.NoError(t, g.Check(t.Context(), tx, "r", 9))
	swept := make(chan error, 1)
	go func() { _, err := g.Sweep(t.Context(), db, 2*time.Hour); swept <- err }()
	s.untilBlocked(t, db)
	require.NoError(t, tx.Commit())
	require.NoError(t, <-swept)
	require.ErrorIs(t, s.check(t, g, db, "r", 8), fencing.ErrStale)
}
