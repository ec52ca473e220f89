package postgres_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/internal/refusal"
	"github.com/golockers/locker/postgres"
)

// However many new names there are, old rows go: with ten thousand rows per client in ten minutes, the table
// grew for ever above 17 new names a second, and always where clients live for less than ten minutes.
func TestOldRowsGoWithTheLoad(t *testing.T) {
	t.Parallel()
	s := lab.StartPostgres(t)
	u := s.URL(s.Addr(), "sslmode=disable")
	first, _ := newBackend(t, u, nil)
	acquire(t, first, "held", owner(1))
	s.Exec(t, `INSERT INTO locker_locks SELECT convert_to('n'||i, 'UTF8'), '', '', 1000 + i,
		clock_timestamp() - interval '11 minutes', false
		FROM generate_series(1, 25000) i`)
	s.Exec(t, `INSERT INTO locker_locks SELECT convert_to('young'||i, 'UTF8'), '', '', 1,
		clock_timestamp() - interval '9 minutes', false
		FROM generate_series(1, 100) i`)
	s.Exec(t,
		`UPDATE locker_locks SET expires = 'epoch' WHERE name = ''`) // the last pass was long ago
	for range 3 {
		b, _ := newBackend(t, u, nil) // a program that begins
		acquire(t, b, "new "+time.Now().String(), owner(2))
	}
	require.Eventually(t, func() bool {
		return s.Query(t,
			"SELECT count(*) FROM locker_locks WHERE name LIKE 'n%' AND name NOT LIKE 'new%'") == "0"
	}, 30*time.Second, 20*time.Millisecond)
	assert.Equal(t, "101", s.Query(t,
		"SELECT count(*) FROM locker_locks WHERE name LIKE 'young%' OR name = 'held'"))
	require.Eventually(t, func() bool {
		return s.Query(t,
			"SELECT label FROM locker_locks WHERE name = ''") == "[]"
	}, 30*time.Second, 10*time.Millisecond)
	assert.Equal(t, "26000", s.Query(t, "SELECT token FROM locker_locks WHERE name = ''"),
		"what was swept is remembered")
}

// A transaction that called Held may outlast the row.
func TestWaitersAskSeldomWhoseRowWasSwept(t *testing.T) {
	t.Parallel()
	s := lab.StartPostgres(t)
	u := s.URL(s.Addr(), "sslmode=disable")
	b, pool := newBackend(t, u, nil)
	c := locker.New(b, nil)
	defer func() { require.NoError(t, c.Close()) }()
	l := locktest.Lock(t, c, "a")
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	require.NoError(t, postgres.Held(t.Context(), tx, l))
	s.Exec(t, "DELETE FROM locker_locks WHERE name = 'a'")
	other, _ := newBackend(t, u, nil)
	req := request("a", owner(1))
	req.Wait = true
	_, err = locktest.Ask(t.Context(), other, req)
	var held *refusal.Error
	require.ErrorAs(t, err, &held)
	assert.Equal(t, 500*time.Millisecond, held.Remaining)
	require.NoError(t, tx.Commit(t.Context()))
	acquire(t, other, "a", owner(2))
}

// A transaction that has begun long ago makes a lock slow that is used all the time, and Check names it.
func TestCheckNamesAnOldSnapshot(t *testing.T) {
	t.Parallel()
	s := lab.StartPostgres(t, lab.WithClock())
	b, pool := newBackend(t, s.URL(s.Addr(), "sslmode=disable"), nil)
	acquire(t, b, "a", owner(1))
	_, dump := newBackend(t, s.URL(s.Addr(), "sslmode=disable", "application_name=pg_dump"), nil)
	tx, err := dump.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT count(*) FROM locker_locks")
	require.NoError(t, err)
	old := func() driver.Finding {
		all, err := b.Check(t.Context())
		require.NoError(t, err)
		for _, f := range all {
			if strings.HasPrefix(f.What, "oldest snapshot") {
				return f
			}
		}
		t.Fatal("it is not looked at")
		return driver.Finding{}
	}
	assert.Equal(t, driver.SeverityOK, old().Severity)
	s.JumpClock(t, time.Hour)
	pool.Reset()
	f := old()
	assert.Equal(t, driver.SeverityWarning, f.Severity)
	assert.Contains(t, f.Advice, "pg_dump")
}
