package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/postgres"
)

// Tokens rise whatever becomes of the sequence: a guard refuses every holder after one that fell.
func TestTokensRiseWithoutTheirSequence(t *testing.T) {
	t.Parallel()
	s := lab.StartPostgres(t)
	url := s.URL(s.Addr(), "sslmode=disable")
	running, _ := newBackend(t, url, nil)
	last := uint64(0)
	next := func(b *postgres.Backend, name string) {
		t.Helper()
		g := acquire(t, b, name, owner(int(last)))
		require.Greater(t, g.Token, last, name)
		last = g.Token
		require.NoError(t, g.Hold.Release(t.Context()))
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

		// The rows that had the last tokens are gone.
		s.Exec(t, "UPDATE locker_locks SET expires = clock_timestamp() - interval '1 hour'")
		require.NoError(t, postgres.Sweep(t.Context(), running))
		require.Equal(t, "0", s.Query(t, "SELECT count(*) FROM locker_locks WHERE name <> ''"))
		s.Exec(t, harm)
		next(running, "a")
	}
	// RaiseToken is remembered as well.
	g := acquire(t, running, "a", owner(1000))
	last = 1 << 50
	require.NoError(t, g.Hold.(driver.TokenRaiser).RaiseToken(t.Context(), last))
	s.Exec(t, "ALTER SEQUENCE locker_locks_tokens RESTART")
	next(running, "b")
}

// A sequence that hands out numbers in no order is refused, and said to be the reason.
func TestASequenceOutOfOrderIsRefused(t *testing.T) {
	t.Parallel()
	s := lab.StartPostgres(t)
	url := s.URL(s.Addr(), "sslmode=disable")
	running, _ := newBackend(t, url, nil)
	acquire(t, running, "a", owner(1))
	for how, wrong := range map[string]string{
		"CACHE": "CACHE 32", "INCREMENT": "INCREMENT -1", "CYCLE": "CYCLE",
	} {
		t.Run(how, func(t *testing.T) {
			s.Exec(t, "ALTER SEQUENCE locker_locks_tokens MINVALUE -5 "+wrong)
			defer s.Exec(t, "ALTER SEQUENCE locker_locks_tokens CACHE 1 NO CYCLE INCREMENT 1")
			_, err := locker.Open(t.Context(), url, nil, postgres.Openers)
			require.ErrorContains(t, err, how)
			fresh, _ := newBackend(t, url, nil)
			_, err = locktest.Ask(t.Context(), fresh, request("b", owner(2)))
			require.ErrorContains(t, err, how)
			require.NotErrorIs(t, err, driver.ErrUnavailable)
		})
	}
	// One that runs is refused as soon as a token does not rise.
	s.Exec(t, "ALTER SEQUENCE locker_locks_tokens CACHE 32")
	a, _ := newBackend(t, url+"&pool_max_conns=1", nil)
	b, _ := newBackend(t, url+"&pool_max_conns=1", nil)
	s.Exec(t, "ALTER SEQUENCE locker_locks_tokens CACHE 1")
	acquire(t, a, "x", owner(3))
	acquire(t, b, "y", owner(4))
	s.Exec(t, "ALTER SEQUENCE locker_locks_tokens CACHE 32")
	kept := acquire(t, a, "kept", owner(5)).Hold
	last, refused := uint64(0), 0
	for i := range 100 {
		g, err := []*postgres.Backend{a, b}[i%2].Acquire(t.Context(), request("z", owner(100+i)))
		if err != nil {
			require.ErrorContains(t, err, "CACHE")
			refused++
			continue
		}
		require.Greater(t, g.Token, last)
		last = g.Token
		require.NoError(t, g.Hold.Release(t.Context()))
	}
	assert.NotZero(t, refused)
	_, err := kept.Renew(t.Context())
	require.NoError(t, err, "a lease needs no token any more")
	require.NoError(t, kept.Release(t.Context()))
}

// Tables of one name in two schemas are two tables.
func TestTwoSchemas(t *testing.T) {
	t.Parallel()
	s := lab.StartPostgres(t)
	s.Exec(t, "CREATE SCHEMA one")
	s.Exec(t, "CREATE SCHEMA two")
	url := s.URL(s.Addr(), "sslmode=disable")
	one, pool := newBackend(t, url+"&search_path=one", nil)
	two, _ := newBackend(t, url+"&search_path=two", nil)
	client := locker.New(one, nil)
	defer func() { require.NoError(t, client.Close()) }()
	l := locktest.Lock(t, client, "a", locker.TTL(time.Minute))
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), "SET LOCAL search_path = two")
	require.NoError(t, err)
	require.NoError(t, postgres.Held(t.Context(), tx, l), "whatever search_path the transaction has")
	g := acquire(t, two, "a", owner(1))

	// A message in one wakes nobody in the other.
	woken := make(chan struct{}, 10)
	stop, err := one.Notify(t.Context(), "a", func() { woken <- struct{}{} })
	require.NoError(t, err)
	defer stop()
	for len(woken) > 0 {
		<-woken // they are told that the connection hears
	}
	s.Exec(t, "UPDATE two.locker_locks SET waited = true")
	require.NoError(t, g.Hold.Release(t.Context()))
	s.Exec(t, "UPDATE one.locker_locks SET waited = true")
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, l.Unlock(t.Context()))
	select {
	case <-woken:
	case <-time.After(30 * time.Second):
		t.Error("a release of its own wakes nobody")
	}
	assert.Empty(t, woken)

	// The table is moved under clients that run.
	require.NoError(t, acquire(t, one, "b", owner(2)).Hold.Release(t.Context()))
	before := acquire(t, two, "b", owner(3))
	s.Exec(t, "CREATE SCHEMA three")
	s.Exec(t, "ALTER ROLE locker SET search_path = two, three")
	moving, _ := newBackend(t, s.URL(s.Addr(), "sslmode=disable"), nil)
	require.NoError(t, acquire(t, moving, "c", owner(4)).Hold.Release(t.Context()))
	s.Exec(t, "ALTER TABLE two.locker_locks SET SCHEMA three")
	_, err = locktest.Ask(t.Context(), moving, request("b", owner(5)))
	require.ErrorIs(t, err, driver.ErrHeld)
	after := acquire(t, moving, "d", owner(6))
	assert.Greater(t, after.Token, before.Token)
}
