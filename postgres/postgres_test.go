package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/internal/refusal"
	"github.com/golockers/locker/postgres"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(os.Exit))
}

// owner is one that no other attempt has.
func owner(i int) string { return fmt.Sprintf("%040x", i) }

func request(name, owner string) driver.Request {
	return driver.Request{Name: name, Owner: owner, TTL: time.Minute, Lost: func() {}}
}

func acquire(t *testing.T, b driver.Backend, name, owner string) driver.Grant {
	t.Helper()
	g := locktest.Acquire(t, b, request(name, owner))
	return g
}

// A number that a client draws early and writes late must not be the token of a later grant.
func TestTokensRiseInTheOrderOfGrants(t *testing.T) {
	s, a, _ := server(t)
	b, _ := newBackend(t, s.URL(s.Addr(), "sslmode=disable"), nil)
	require.NoError(t, acquire(t, a, "first", owner(1)).Hold.Release(t.Context()))
	// The row of one owner is written a second after its token was drawn.
	s.Exec(t, `CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF NEW.owner = '`+owner(7)+`' THEN PERFORM pg_sleep(1); END IF; RETURN NEW; END $$`)
	s.Exec(t, `CREATE TRIGGER late BEFORE INSERT ON locker_locks FOR EACH ROW EXECUTE FUNCTION late()`)
	type answer struct {
		grant driver.Grant
		err   error
	}
	late := make(chan answer)
	go func() {
		g, err := locktest.Ask(t.Context(), a, request("name", owner(7)))
		late <- answer{g, err}
	}()
	require.Eventually(t, func() bool {
		return s.Query(t, `SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'`) == "1"
	}, 30*time.Second, 5*time.Millisecond)
	var other uint64
	if g, err := locktest.Ask(t.Context(), b, request("name", owner(8))); err == nil {
		other = g.Token
		require.NoError(t, g.Hold.Release(t.Context()))
		s.Exec(t, `DELETE FROM locker_locks WHERE owner = ''`) // as a sweep would
	} else {
		require.ErrorIs(t, err, driver.ErrHeld)
	}
	l := <-late
	require.NoError(t, l.err)
	assert.Greater(t, l.grant.Token, other)
}

// Of several asks for one row in one statement, only one would be answered.
func TestALeaseIsRenewedBySeveralAtOnce(t *testing.T) {
	t.Parallel()
	s := lab.StartPostgres(t)
	l := locktest.Lock(t, newClient(t, s.URL(s.Addr(), "sslmode=disable"), nil), "a")
	for range 20 {
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() { assert.NoError(t, l.Renew(t.Context())) })
		}
		all.Wait()
	}
	require.NoError(t, l.Unlock(t.Context()))
}

// Rows go when nobody has used them for a while; tokens do not begin again.
func TestRaiseTokenAndSweptRows(t *testing.T) {
	s, b, _ := server(t)
	other, _ := newBackend(t, s.URL(s.Addr(), "sslmode=disable"), nil)
	g := acquire(t, b, "a", owner(1))
	raiser, ok := g.Hold.(driver.TokenRaiser)
	require.True(t, ok)
	require.NoError(t, raiser.RaiseToken(t.Context(), 5), "less than it has may be")
	const far = 1_800_000_000_000_000
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			h := acquire(t, b, fmt.Sprint("other", i), owner(i))
			assert.NoError(t, h.Hold.(driver.TokenRaiser).RaiseToken(t.Context(), far+uint64(i)))
		})
	}
	all.Wait()
	require.NoError(t, g.Hold.Release(t.Context()))
	require.ErrorIs(t, raiser.RaiseToken(t.Context(), far), driver.ErrLost)
	last := acquire(t, other, "a", owner(2)).Token
	assert.Greater(t, last, uint64(far+7))
	require.ErrorIs(t, raiser.RaiseToken(t.Context(), 1<<63), driver.ErrInvalid)

	s.Exec(t, `UPDATE locker_locks SET expires = clock_timestamp() - interval '1 hour'`)
	require.NoError(t, postgres.Sweep(t.Context(), b))
	assert.Equal(t, "0", s.Query(t, `SELECT count(*) FROM locker_locks WHERE name <> ''`))
	assert.Greater(t, acquire(t, other, "a", owner(3)).Token, last)
}

func TestTheTableIsMadeOnFirstUseOrNot(t *testing.T) {
	t.Parallel()
	s := lab.StartPostgres(t)
	url := s.URL(s.Addr(), "sslmode=disable")
	none, _ := newBackend(t, url, &postgres.Options{NoCreate: true})
	_, err := locktest.Ask(t.Context(), none, request("a", owner(1)))
	require.ErrorContains(t, err, "make the table with what postgres.Schema returns")
	require.NotErrorIs(t, err, driver.ErrUnavailable)
	_, err = locker.Open(t.Context(), url+"&create=off", nil, postgres.Openers)
	require.ErrorContains(t, err, "make the table")

	s.Exec(t, "CREATE SEQUENCE made")
	s.Exec(t, `CREATE FUNCTION meets() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
		IF nextval('made') = 1 THEN RAISE 'as where transactions are serializable' USING ERRCODE = '40001'; END IF;
		END $$`)
	s.Exec(t, "CREATE EVENT TRIGGER meets ON ddl_command_start WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION meets()")
	var all sync.WaitGroup
	for i := range 8 {
		b, _ := newBackend(t, url, nil)
		st, err := b.Inspect(t.Context(), "a")
		require.NoError(t, err)
		assert.False(t, st.Held)
		all.Go(func() {
			_, err := locktest.Ask(t.Context(), b, request(fmt.Sprint(i), owner(i)))
			assert.NoError(t, err)
		})
	}
	all.Wait()
	acquire(t, none, "a", owner(1))

	schema, err := postgres.Schema(`own.locks`)
	require.NoError(t, err)
	s.Exec(t, "CREATE SCHEMA own")
	for statement := range strings.SplitSeq(schema, ";") {
		s.Exec(t, statement)
	}
	own, _ := newBackend(t, url, &postgres.Options{Table: "own.locks", NoCreate: true})
	acquire(t, own, "a", owner(2))
	for _, bad := range []string{"a b", `a"`, "a.b.c", strings.Repeat("x", 56), "1a"} {
		_, err = postgres.Schema(bad)
		require.ErrorIs(t, err, driver.ErrInvalid, bad)
	}
}

// Operators list the locks that are held, and take a lock from its holder.
func TestBreakTellsWhoWaits(t *testing.T) {
	_, b, _ := server(t)
	st := driver.State{Name: "b", Held: true, Holder: "etcd 1"}
	require.ErrorIs(t, b.Break(t.Context(), st), driver.ErrInvalid, "it is another backend's")
	st.Holder = "postgres 1 " + owner(1)
	require.NoError(t, b.Break(t.Context(), st), "before there is a table")
	acquire(t, b, "b", owner(1))
	client := locker.New(b, nil)
	defer func() { require.NoError(t, client.Close()) }()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w := startWaiters(ctx, client, "b", 1)
	<-w.Ready
	_, err := locktest.Break(t.Context(), b, "b")
	require.NoError(t, err)
	select {
	case <-w.Got:
	case <-time.After(5 * time.Second): // before a poll
		t.Error("who waits is not told")
	}
	cancel()
	w.Done.Wait()
}

// A transaction of the holder's that began in time keeps the next holder out until it has ended.
func TestHeldKeepsTheNextHolderOut(t *testing.T) {
	t.Parallel()
	s := lab.StartPostgres(t)
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			b, pool := newBackend(t, s.URL(s.Addr(), "sslmode=disable"), nil)
			name := "held at " + string(level)
			client := locker.New(b, nil)
			defer func() { require.NoError(t, client.Close()) }()
			other, _ := newBackend(t, s.URL(s.Addr(), "sslmode=disable"), nil)
			begin := func() pgx.Tx {
				tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
				require.NoError(t, err)
				t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
				return tx
			}
			lease := locktest.Lock(t, client, name, locker.TTL(time.Minute))

			tx := begin()
			require.NoError(t, postgres.Held(t.Context(), tx, lease))
			require.NoError(t, lease.Renew(t.Context()), "a renewal does not wait for the transaction")
			s.Exec(t, `UPDATE locker_locks SET expires = clock_timestamp() WHERE name = $1`,
				[]byte(name)) // it was paused for long
			_, err := locktest.Ask(t.Context(), other, request(name, owner(1)))
			require.ErrorIs(t, err, driver.ErrHeld)
			require.NoError(t, tx.Commit(t.Context()))
			next := acquire(t, other, name, owner(1))

			// Too late.
			tx = begin()
			require.ErrorIs(t, postgres.Held(t.Context(), tx, lease), driver.ErrLost)
			require.ErrorIs(t, tx.Commit(t.Context()), pgx.ErrTxClosed)

			// A snapshot from the time when it held does not deceive it.
			require.NoError(t, next.Hold.Release(t.Context()))
			again := locktest.Lock(t, client, name+" again", locker.TTL(time.Minute))
			tx = begin()
			_, err = tx.Exec(t.Context(), "SELECT count(*) FROM locker_locks")
			require.NoError(t, err)
			s.Exec(t, `UPDATE locker_locks SET expires = clock_timestamp() WHERE name = $1`,
				[]byte(name+" again"))
			acquire(t, other, name+" again", owner(2))
			require.Error(t, postgres.Held(t.Context(), tx, again))
			require.ErrorIs(t, tx.Commit(t.Context()), pgx.ErrTxClosed)
		})
	}
}

// A waiter who comes while the lock is being released would not be told of it, and must not be sent away for
// as long as the holder's lease would have lasted.
func TestAWaiterThatMeetsAReleaseAsksAgain(t *testing.T) {
	s, b, pool := server(t)
	acquire(t, b, "a", owner(1))
	refused := func() time.Duration {
		req := request("a", owner(2))
		req.Wait = true
		_, err := locktest.Ask(t.Context(), b, req)
		var held *refusal.Error
		require.ErrorAs(t, err, &held)
		return held.Remaining
	}
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), "UPDATE locker_locks SET owner = ''")
	require.NoError(t, err)
	assert.Less(t, refused(), time.Second, "a release is under way")
	require.NoError(t, tx.Rollback(t.Context()))
	assert.Greater(t, refused(), 30*time.Second)
	assert.Equal(t, "true", s.Query(t, "SELECT waited FROM locker_locks WHERE name <> ''"))
	assert.Greater(t, refused(), 30*time.Second, "it is marked already")
}

// Every way in which pgx sends statements will do, and every name.
func TestQueryModes(t *testing.T) {
	t.Parallel()
	s := lab.StartPostgres(t)
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec",
		"simple_protocol"} {
		c := newClient(t, s.URL(s.Addr(), "sslmode=disable", "default_query_exec_mode="+mode), nil)
		l, err := c.Lock(t.Context(), "a\x00ä'")
		require.NoError(t, err, mode)
		_, err = c.TryLock(t.Context(), "a\x00ä'")
		require.ErrorIs(t, err, driver.ErrHeld, mode)
		require.NoError(t, l.Renew(t.Context()), mode)
		require.NoError(t, l.Unlock(t.Context()), mode)
	}
}

// A commit that fails after all statements have succeeded is no grant; one whose proxy has lost the server may be.
func TestACommitThatFailsIsNoGrant(t *testing.T) {
	s, b, _ := server(t)
	acquire(t, b, "first", owner(1))
	s.Exec(t,
		`CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN RAISE 'at the commit' USING ERRCODE = convert_from(NEW.name, 'UTF8'); END $$`)
	s.Exec(t,
		`CREATE CONSTRAINT TRIGGER fail AFTER INSERT ON locker_locks DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW EXECUTE FUNCTION fail()`)
	for code, undone := range map[string]bool{"53100": true, "08006": false} {
		g, err := locktest.Ask(t.Context(), b, request(code, owner(2)))
		require.ErrorIs(t, err, driver.ErrUnavailable)
		require.ErrorContains(t, err, "at the commit")
		assert.Equal(t, undone, g.Hold == nil, code)
	}
}

// Each answer of the server becomes an error that says what it means.
func TestErrorsSayWhetherToTryAgain(t *testing.T) {
	t.Parallel()
	s := lab.StartPostgres(t)
	url := s.URL(s.Addr(), "sslmode=disable")
	b, _ := newBackend(t, url, nil)
	acquire(t, b, "a", owner(1))
	try := func(url string) error {
		c, err := locker.Open(t.Context(), url, nil, postgres.Openers)
		if err == nil {
			defer func() { _ = c.Close() }()
			var l *locker.Lease
			if l, err = c.TryLock(t.Context(), "b"); err == nil {
				err = l.Unlock(t.Context())
			}
		}
		return err
	}
	require.NoError(t, try(url))
	for text, want := range map[string]struct {
		url string
		may bool // be tried again
	}{
		"password":          {strings.Replace(url, lab.PostgresPassword, "hunter2", 1), false},
		"does not exist":    {strings.Replace(url, "/postgres?", "/nowhere?", 1), false},
		"failed to connect": {strings.Replace(url, s.Addr(), "127.0.0.1:1", 1), true},
		"statement timeout": {url + "&options=-c%20statement_timeout%3D1", true},
		"read-only":         {url + "&options=-c%20default_transaction_read_only%3Don", true},
		"target_session":    {url + "&target_session_attrs=nonsense", false},
		"unknown parameter": {url + "&sslmod=x", false},
		"permission denied": {strings.Replace(url, "locker:"+lab.PostgresPassword, "nobody:secret", 1),
			false},
		"too many clients": {strings.Replace(url, "locker:"+lab.PostgresPassword, "few:secret", 1), true},
	} {
		t.Run(text, func(t *testing.T) {
			switch text {
			case "permission denied":
				s.Exec(t, "CREATE USER nobody PASSWORD 'secret'")
			case "too many clients":
				s.Exec(t, "CREATE USER few PASSWORD 'secret' CONNECTION LIMIT 0")
				text = "too many connections"
			case "statement timeout":
				s.Exec(t,
					`CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
					$$ BEGIN PERFORM pg_sleep(0.1); RETURN NEW; END $$`)
				s.Exec(t,
					`CREATE TRIGGER slow BEFORE INSERT ON locker_locks FOR EACH ROW EXECUTE FUNCTION slow()`)
				defer s.Exec(t, `DROP FUNCTION slow CASCADE`)
			}
			err := try(want.url)
			require.ErrorContains(t, err, text)
			assert.Equal(t, want.may, errors.Is(err, driver.ErrUnavailable), "%v", err)
			assert.NotContains(t, err.Error(), "\n")
			assert.NotContains(t, err.Error(), "hunter2")
			assert.NotContains(t, err.Error(), lab.PostgresPassword)
		})
	}
}

// A time-out of the backend's own is not the caller's, whose context lives.
func TestATimeoutOfItsOwnIsNotTheCallers(t *testing.T) {
	t.Parallel()
	s := lab.StartPostgres(t)
	b, pool := newBackend(t, s.URL(s.Addr(), "sslmode=disable", "pool_max_conns=1"),
		&postgres.Options{Timeout: 50 * time.Millisecond})
	conn, err := pool.Acquire(t.Context()) // all that there are
	require.NoError(t, err)
	defer conn.Release()
	_, err = locktest.Ask(t.Context(), b, request("a", owner(1)))
	require.ErrorIs(t, err, driver.ErrUnavailable)
	require.NotErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "no free connection in the pool, for 50ms")
}

// A change that a crash must not undo is on disk, even if the server is told not to wait for it.
func TestRaisedTokensAndBrokenLocksAreDurable(t *testing.T) {
	t.Parallel()
	s := lab.StartPostgres(t, lab.WithConfig("synchronous_commit", "off"),
		lab.WithConfig("wal_writer_delay", "10s"))
	b, _ := newBackend(t, s.URL(s.Addr(), "sslmode=disable"), nil)
	raiser := acquire(t, b, "a", owner(1)).Hold.(driver.TokenRaiser)
	acquire(t, b, "b", owner(2))
	for what, change := range map[string]func() error{
		"RaiseToken": func() error { return raiser.RaiseToken(t.Context(), 1<<40) },
		"Break":      func() error { _, err := locktest.Break(t.Context(), b, "b"); return err },
	} {
		before := s.Query(t, "SELECT pg_current_wal_insert_lsn()")
		require.NoError(t, change(), what)
		assert.Equal(t, "true", s.Query(t, "SELECT pg_current_wal_flush_lsn() > $1::pg_lsn", before), what)
	}
}

// A transaction that outlasts its lease by far, or has locked a lock's row, is not asked about a hundred times a
// second.
func TestWaitersAskLessOftenWhileATransactionGoesOn(t *testing.T) {
	t.Parallel()
	s := lab.StartPostgres(t)
	url := s.URL(s.Addr(), "sslmode=disable")
	b, pool := newBackend(t, url, nil)
	holder, waiter := locker.New(b, nil), newClient(t, url, nil)
	defer func() { require.NoError(t, holder.Close()) }()
	for name, end := range map[string]func(name string, l *locker.Lease, tx pgx.Tx) error{
		"locked": func(name string, _ *locker.Lease, tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), "SELECT FROM locker_locks WHERE name = $1 FOR UPDATE", []byte(name))
			return err
		},
		"expired": func(name string, _ *locker.Lease, _ pgx.Tx) error {
			s.Exec(t, `UPDATE locker_locks SET expires = clock_timestamp() WHERE name = $1`, []byte(name))
			return nil
		},
		"released": func(_ string, l *locker.Lease, _ pgx.Tx) error { return l.Unlock(t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			l := locktest.Lock(t, holder, name, locker.TTL(time.Hour))
			tx, err := pool.Begin(t.Context())
			require.NoError(t, err)
			defer func() { _ = tx.Rollback(context.Background()) }()
			require.NoError(t, postgres.Held(t.Context(), tx, l))
			require.NoError(t, end(name, l, tx))
			got := make(chan error, 1)
			before := waiter.Stats().Attempts
			go func() { _, err := waiter.Lock(t.Context(), name); got <- err }()
			time.Sleep(2 * time.Second) // what is measured is how little happens
			asked := waiter.Stats().Attempts - before
			assert.Less(t, asked, uint64(40), "a 200th of a second apart, there would be hundreds")
			require.NoError(t, tx.Commit(t.Context()))
			_ = l.Unlock(t.Context())
			require.NoError(t, <-got)
		})
	}
}

// In a mistyped URL the user's name may be a part of the password.
func TestAnErrorDoesNotNameTheUser(t *testing.T) {
	_, err := locker.Open(t.Context(), "postgres://sesame:pw@127.0.0.1:1/db", nil, postgres.Openers)
	require.ErrorIs(t, err, driver.ErrUnavailable)
	assert.NotContains(t, err.Error(), "sesame")
}

// What reads the whole table looks dear where tables are not to be read, as List does.
func TestNothingIsCompiledFirst(t *testing.T) {
	_, b, pool := server(t)
	acquire(t, b, "a", owner(1))
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	_, err = tx.Exec(t.Context(), postgres.ConditionsSQL, true, false, true)
	require.NoError(t, err)
	rows, err := tx.Query(t.Context(), "EXPLAIN (ANALYZE) SELECT max(token) FROM locker_locks WHERE owner <> ''")
	require.NoError(t, err)
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	assert.Contains(t, plan[1], "Scan")
	assert.NotContains(t, plan, "JIT:")
}
