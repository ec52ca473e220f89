package postgres_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
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
	return locktest.Acquire(t, b, request(name, owner))
}

// refused asks for what is held.
func refused(t *testing.T, b driver.Backend, req driver.Request, because ...any) {
	t.Helper()
	_, err := locktest.Ask(t.Context(), b, req)
	require.ErrorIs(t, err, driver.ErrHeld, because...)
}

// begin begins a transaction that is rolled back with the test.
func begin(t *testing.T, pool *pgxpool.Pool) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

// until returns when a query returns that. Each question costs the server a process of its own.
func until(t *testing.T, s *lab.Postgres, want, query string, args ...any) {
	t.Helper()
	locktest.Eventually(t, 30*time.Second, query+" is "+want, func() bool {
		time.Sleep(8 * time.Millisecond)
		return s.Query(t, query, args...) == want
	})
}

// rows adds locks with names of that prefix, and those numbers, owner and end; each number is a token, too.
func rows(t *testing.T, s *lab.Postgres, prefix string, from, to int, owner, expires string) {
	t.Helper()
	s.Exec(t, `INSERT INTO locker_locks SELECT convert_to($1||i, 'UTF8'), '', `+owner+`, '', i, 'epoch', 'epoch', `+expires+`,
		false, 'epoch', '' FROM generate_series($2::int, $3::int) i ON CONFLICT DO NOTHING`, prefix, from, to)
}

func TestTheTableIsMadeOnFirstUseOrNot(t *testing.T) {
	s, url := start(t)
	none, _ := newBackend(t, url, &postgres.Options{NoCreate: true})
	_, err := locktest.Ask(t.Context(), none, request("a", owner(1)))
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
		require.NoError(t, b.Break(t.Context(), driver.State{Name: "a", Held: true, Holder: "postgres 1 " + owner(1)}))
		require.ErrorIs(t, b.Break(t.Context(), driver.State{Name: "a", Held: true, Holder: "etcd 1"}), driver.ErrInvalid)
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

// Every way in which pgx sends statements will do, and every name.
func TestQueryModes(t *testing.T) {
	_, url := start(t)
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		c := newClient(t, url+"&default_query_exec_mode="+mode, nil)
		l, err := c.Lock(t.Context(), "a\x00ä'")
		require.NoError(t, err, mode)
		_, err = c.TryLock(t.Context(), "a\x00ä'")
		require.ErrorIs(t, err, driver.ErrHeld, mode)
		require.NoError(t, l.Renew(t.Context()), mode)
		require.NoError(t, l.Unlock(t.Context()), mode)
	}
}

// A commit that fails after all statements have succeeded is no grant; one whose proxy has lost the server
// may be. What the server has undone to end a deadlock is sent again, and nobody is told of it.
func TestACommitThatFailsIsNoGrant(t *testing.T) {
	s, b, _ := server(t)
	acquire(t, b, "first", owner(1))
	script(t, s, `CREATE SEQUENCE deadlocks;
		CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF NEW.name <> '40P01' OR nextval('deadlocks') = 1 THEN
			RAISE 'at the commit' USING ERRCODE = convert_from(NEW.name, 'UTF8'); END IF; RETURN NULL; END $$;
		CREATE CONSTRAINT TRIGGER fail AFTER INSERT ON locker_locks DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW WHEN (NEW.name > '') EXECUTE FUNCTION fail()`) // and no sweep
	for code, undone := range map[string]bool{"53100": true, "08006": false} {
		g, err := locktest.Ask(t.Context(), b, request(code, owner(2)))
		require.ErrorIs(t, err, driver.ErrUnavailable)
		require.ErrorContains(t, err, "at the commit")
		assert.Equal(t, undone, g.Hold == nil, code)
	}
	acquire(t, b, "40P01", owner(2))
	assert.Equal(t, "2", s.Query(t, "SELECT last_value FROM deadlocks"))
}

// A time-out of the backend's own is not the caller's, whose context lives.
func TestATimeoutOfItsOwnIsNotTheCallers(t *testing.T) {
	_, url := start(t)
	b, pool := newBackend(t, url+"&pool_max_conns=1", &postgres.Options{Timeout: 50 * time.Millisecond})
	conn, err := pool.Acquire(t.Context()) // all that there are
	require.NoError(t, err)
	defer conn.Release()
	_, err = locktest.Ask(t.Context(), b, request("a", owner(1)))
	require.ErrorIs(t, err, driver.ErrUnavailable)
	require.NotErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "no free connection in the pool, for 50ms")
}

// A change that a crash must not undo is on disk, even if the server is told not to wait for it: of a release
// that keeps, it would leave the lock for its TTL.
func TestWhatACrashMustNotUndoIsOnDisk(t *testing.T) {
	s, b, _ := server(t, lab.WithConfig("synchronous_commit", "off"), lab.WithConfig("wal_writer_delay", "10s"))
	raiser := acquire(t, b, "a", owner(1)).Hold.(driver.TokenRaiser)
	acquire(t, b, "b", owner(2))
	alone, shared := acquire(t, b, "c", owner(3)).Hold, locktest.Acquire(t, b, sharer("d", 4)).Hold
	for what, change := range map[string]func() error{
		"RaiseToken":        func() error { return raiser.RaiseToken(t.Context(), 1<<40) },
		"Break":             func() error { _, err := locktest.Break(t.Context(), b, "b"); return err },
		"keep":              func() error { return alone.Release(t.Context(), time.Minute) },
		"keep, of a sharer": func() error { return shared.Release(t.Context(), time.Minute) },
	} {
		before := s.Query(t, "SELECT pg_current_wal_insert_lsn()")
		require.NoError(t, change(), what)
		assert.Equal(t, "t", s.Query(t, "SELECT pg_current_wal_flush_lsn() > $1::pg_lsn", before), what)
	}
}

// A transaction that outlasts its lease by far, or has locked a lock's row, is not asked about a hundred
// times a second.
func TestWaitersAskLessOftenWhileATransactionGoesOn(t *testing.T) {
	s, url := start(t)
	b, pool := newBackend(t, url+"&pool_max_conns=8", nil) // a transaction of each keeps one
	holder := locktest.Client(t, b, nil)
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
		"swept": func(name string, _ *locker.Lease, _ pgx.Tx) error {
			s.Exec(t, "DELETE FROM locker_locks WHERE name = $1", []byte(name))
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := locktest.Lock(t, holder, name, locker.TTL(time.Hour))
			tx := begin(t, pool)
			require.NoError(t, postgres.Held(t.Context(), tx, l))
			require.NoError(t, end(name, l, tx))
			way := lab.StartProxy(t, s.Addr())
			var asked atomic.Int32
			way.Watch(func(_ *lab.Link, reply bool, data []byte, _ bool) {
				if !reply && bytes.Contains(data, []byte("nextval")) {
					asked.Add(1)
				}
			})
			waiter := newClient(t, s.URL(way.Addr(), "sslmode=disable", "default_query_exec_mode=exec"), nil)
			began := time.Now()
			got := later(func() error { _, err := waiter.Lock(t.Context(), name); return err })
			time.Sleep(2 * time.Second) // what is measured is how little happens
			requests := float64(asked.Load())
			assert.Less(t, requests, 25*time.Since(began).Seconds(), "a 200th of a second apart, there would be hundreds")
			require.NoError(t, tx.Commit(t.Context()))
			_ = l.Unlock(t.Context())
			require.NoError(t, <-got)
		})
	}
}
