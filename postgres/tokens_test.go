package postgres_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/postgres"
)

// Tokens rise whatever becomes of the sequence: a guard refuses every holder after one that fell.
func TestTokensRiseWithoutTheirSequence(t *testing.T) {
	s, url := start(t)
	running, _ := newBackend(t, url, nil)
	last := uint64(0)
	next := func(b *postgres.Backend, name string) {
		t.Helper()
		g := acquire(t, b, name, owner(int(last)))
		require.Greater(t, g.Token, last, name)
		last = g.Token
		require.NoError(t, g.Hold.Release(t.Context(), 0))
	}
	for range 20 {
		next(running, "a")
	}
	for _, harm := range []string{
		"DROP SEQUENCE locker_locks_tokens",
		"ALTER SEQUENCE locker_locks_tokens RESTART",
	} {
		s.Exec(t, harm)
		next(running, "a") // a client that runs
		s.Exec(t, harm)
		fresh, _ := newBackend(t, url, nil)
		next(fresh, "new at "+harm) // one that starts, with a name that has no row
		next(running, "a")

		// The rows that had the last tokens are gone, and those of sharers.
		locktest.Acquire(t, running, sharer("shared", 1))
		refused(t, running, request("shared", owner(2)))
		s.Exec(t, "UPDATE locker_locks SET expires = clock_timestamp() - interval '1 hour'")
		require.NoError(t, postgres.Sweep(t.Context(), running))
		until(t, s, "0", "SELECT count(*) FROM locker_locks WHERE name <> ''") // the other client may have the turn
		s.Exec(t, harm)
		next(running, "a")
	}
	// RaiseToken is remembered as well.
	g := acquire(t, running, "a", owner(1000))
	last = 1 << 60 // the clock is below it
	require.NoError(t, g.Hold.(driver.TokenRaiser).RaiseToken(t.Context(), last))
	require.ErrorIs(t, g.Hold.(driver.TokenRaiser).RaiseToken(t.Context(), 1<<63), driver.ErrInvalid)
	s.Exec(t, "ALTER SEQUENCE locker_locks_tokens RESTART")
	next(running, "b")
}

// Tables of one name in two schemas are two tables.
func TestTwoSchemas(t *testing.T) {
	s, url := start(t)
	s.Exec(t, "CREATE SCHEMA one")
	s.Exec(t, "CREATE SCHEMA two")
	one, pool := newBackend(t, url+"&search_path=one", nil)
	two, _ := newBackend(t, url+"&search_path=two", nil)
	client := locktest.Client(t, one, nil)
	l := locktest.Lock(t, client, "a", locker.TTL(time.Minute))
	tx := begin(t, pool)
	_, err := tx.Exec(t.Context(), "SET LOCAL search_path = two")
	require.NoError(t, err)
	require.NoError(t, postgres.Held(t.Context(), tx, l), "whatever search_path the transaction has")
	g := acquire(t, two, "a", owner(1))

	// A message in one wakes nobody in the other.
	woken := make(chan string, 10)
	for _, name := range []string{"a", "last"} {
		stop, err := one.Notify(t.Context(), name, func() { woken <- name })
		require.NoError(t, err)
		t.Cleanup(stop)
	}
	for len(woken) > 0 {
		<-woken // they are told that the connection hears
	}
	s.Exec(t, "UPDATE two.locker_locks SET waited = true")
	require.NoError(t, g.Hold.Release(t.Context(), 0))
	s.Exec(t, "UPDATE one.locker_locks SET waited = true")
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, l.Unlock(t.Context()))
	s.Exec(t, "SELECT pg_notify('locker_locks', 'one/'||encode('last', 'hex'))") // it comes after all others
	var told []string
	for !slices.Contains(told, "last") {
		select {
		case name := <-woken:
			told = append(told, name)
		case <-time.After(30 * time.Second):
			require.Fail(t, "nobody is woken")
		}
	}
	assert.Equal(t, []string{"a", "last"}, told, "by a release of its own, once")

	// The table is moved under clients that run.
	require.NoError(t, acquire(t, one, "b", owner(2)).Hold.Release(t.Context(), 0))
	before := acquire(t, two, "b", owner(3))
	s.Exec(t, "CREATE SCHEMA three")
	s.Exec(t, "ALTER ROLE locker SET search_path = two, three")
	moving, _ := newBackend(t, s.URL(s.Addr(), "sslmode=disable"), nil)
	require.NoError(t, acquire(t, moving, "c", owner(4)).Hold.Release(t.Context(), 0))
	s.Exec(t, "ALTER TABLE two.locker_locks SET SCHEMA three")
	refused(t, moving, request("b", owner(5)))
	after := acquire(t, moving, "d", owner(6))
	assert.Greater(t, after.Token, before.Token)
}

// However many new names there are, old rows go: with ten thousand rows per client in ten minutes, the table
// grew for ever above 17 new names a second, and always where clients live for less than ten minutes.
func TestOldRowsGoWithTheLoad(t *testing.T) {
	s, u := start(t)
	first, _ := newBackend(t, u, nil)
	acquire(t, first, "held", owner(1))
	s.Exec(t, "UPDATE locker_locks SET token = 1 WHERE name = 'held'")
	rows(t, s, "n", 1, 25000, "''", "clock_timestamp() - interval '11 minutes'")
	rows(t, s, "young", 1, 100, "''", "clock_timestamp() - interval '9 minutes'")
	s.Exec(t,
		`UPDATE locker_locks SET expires = 'epoch' WHERE name = ''`) // the last pass was long ago
	for range 3 {
		b, _ := newBackend(t, u, nil) // a program that begins
		acquire(t, b, "new "+time.Now().String(), owner(2))
	}
	until(t, s, "0", "SELECT count(*) FROM locker_locks WHERE name LIKE 'n%' AND name NOT LIKE 'new%'")
	assert.Equal(t, "101", s.Query(t,
		"SELECT count(*) FROM locker_locks WHERE name LIKE 'young%' OR name = 'held'"))
	assert.Equal(t, "25000", s.Query(t, "SELECT token FROM locker_locks WHERE name = ''"),
		"what was swept is remembered")
}
