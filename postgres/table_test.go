package postgres_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/postgres"
)

// A crash empties an UNLOGGED table, and the end of a session a TEMPORARY one: two would hold. What is no
// ordinary table may lead to one.
func TestATableThatDoesNotKeepLocksIsRefused(t *testing.T) {
	s, url := start(t)
	const swap = "ALTER TABLE locker_locks RENAME TO kept; "
	for name, c := range map[string]struct{ harm, mend, says string }{
		"altered": {"ALTER TABLE locker_locks SET UNLOGGED", "ALTER TABLE locker_locks SET LOGGED", "UNLOGGED"},
		"renamed into its place": {swap + "CREATE UNLOGGED TABLE locker_locks (LIKE kept INCLUDING ALL)",
			"DROP TABLE locker_locks; ALTER TABLE kept RENAME TO locker_locks", "UNLOGGED"},
		"a view": {swap + "CREATE VIEW locker_locks AS SELECT * FROM kept",
			"DROP VIEW locker_locks; ALTER TABLE kept RENAME TO locker_locks", "of another kind (v)"},
		"parted": {swap + "CREATE TABLE locker_locks (LIKE kept, PRIMARY KEY (name, sharer)) PARTITION BY HASH (name); " +
			"CREATE UNLOGGED TABLE part PARTITION OF locker_locks FOR VALUES WITH (MODULUS 1, REMAINDER 0)",
			"DROP TABLE locker_locks; ALTER TABLE kept RENAME TO locker_locks", "of another kind (p)"},
	} {
		running, _ := newBackend(t, url, nil)
		held := acquire(t, running, name, owner(1)).Hold
		shared := locktest.Acquire(t, running, sharer(name+" shared", 2)).Hold
		script(t, s, c.harm)
		fresh, _ := newBackend(t, url, nil)
		for who, b := range map[string]*postgres.Backend{"one that runs": running, "a new one": fresh} {
			_, err := locktest.Ask(t.Context(), b, request(name+" next", owner(3)))
			require.ErrorContains(t, err, "which a crash does not empty", "%s: %s", name, who)
			require.NotErrorIs(t, err, driver.ErrUnavailable)
			_, err = locktest.Ask(t.Context(), b, sharer(name+" shared", 4))
			require.ErrorContains(t, err, "which a crash does not empty", "%s: %s", name, who)
			all, err := b.Check(t.Context())
			require.NoError(t, err)
			assert.Contains(t, all, driver.Finding{Severity: driver.SeverityProblem, What: "table locker_locks of " +
				s.Addr() + "/postgres", Found: c.says, Advice: "locks need an ordinary table, which a crash does not " +
				"empty: ALTER TABLE … SET LOGGED, or name another"}, "%s: %s", name, who)
		}
		_, err := locker.Open(t.Context(), url, nil, postgres.Openers)
		require.ErrorContains(t, err, c.says, name)
		for _, h := range []driver.Hold{held, shared} {
			_, err = h.Renew(t.Context())
			require.Error(t, err, "what a crash would undo is no renewal: %s", name)
			require.NotErrorIs(t, err, driver.ErrLost)
		}
		script(t, s, c.mend)
		for _, h := range []driver.Hold{held, shared} {
			_, err = h.Renew(t.Context())
			require.NoError(t, err, name)
			require.NoError(t, h.Release(t.Context(), 0), name)
		}
	}
	temporary, _ := newBackend(t, url+"&search_path=pg_temp", nil)
	_, err := locktest.Ask(t.Context(), temporary, request("a", owner(5)))
	require.ErrorContains(t, err, "TEMPORARY")
}

// script executes several statements, as one transaction.
func script(t *testing.T, s *lab.Postgres, statements string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.URL(s.Addr(), "sslmode=disable", "default_query_exec_mode=simple_protocol"))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(context.Background())) }()
	_, err = conn.Exec(t.Context(), statements)
	require.NoError(t, err)
}

// Holders are in the table that was renamed, or moved to where this client does not look: in a new one,
// others would be let in beside them.
func TestATableThatWasFoundIsNotMadeAgain(t *testing.T) {
	s, url := start(t)
	s.Exec(t, "CREATE SCHEMA away")
	for away, back := range map[string]string{
		"ALTER TABLE locker_locks RENAME TO old":       "ALTER TABLE old RENAME TO locker_locks",
		"ALTER TABLE locker_locks SET SCHEMA away":     "ALTER TABLE away.locker_locks SET SCHEMA public",
		"ALTER SCHEMA public RENAME TO elsewhere":      "ALTER SCHEMA elsewhere RENAME TO public",
		"ALTER TABLE locker_locks_tokens RENAME TO ts": "ALTER TABLE ts RENAME TO locker_locks_tokens",
	} {
		b, _ := newBackend(t, url, nil)
		looked, _ := newBackend(t, url, nil)
		held := acquire(t, b, "a", owner(1)).Hold
		_, err := looked.Inspect(t.Context(), "a")
		require.NoError(t, err)
		s.Exec(t, away)
		if strings.Contains(away, "tokens") { // the sequence alone may be made again
			s.Exec(t, "ALTER TABLE locker_locks RENAME TO old")
			back += "; ALTER TABLE old RENAME TO locker_locks"
		}
		for range 2 {
			for _, b := range []*postgres.Backend{b, looked} {
				_, err := locktest.Ask(t.Context(), b, request("a", owner(2)))
				require.ErrorContains(t, err, "is gone", away)
				require.NotErrorIs(t, err, driver.ErrUnavailable)
				_, err = b.Inspect(t.Context(), "a")
				require.ErrorContains(t, err, "is gone", "it is not free: %s", away)
			}
		}
		_, err = held.Renew(t.Context())
		require.ErrorContains(t, err, "is gone", away)
		assert.Equal(t, "<nil>", s.Query(t, "SELECT coalesce(to_regclass('public.locker_locks')::text, '<nil>')"))
		script(t, s, back)
		_, err = held.Renew(t.Context())
		require.NoError(t, err, "it is back: %s", away)
		require.NoError(t, held.Release(t.Context(), 0))
	}
}

// A large table is read in parts, which together are all of it.
func TestListOfALargeTable(t *testing.T) {
	s, b, _ := server(t)
	const names = 12_000
	acquire(t, b, "a", owner(1))
	for _, name := range []string{"b/01", "b/11999", "c"} {
		s.Exec(t, "DELETE FROM locker_locks WHERE name = $1", []byte(name))
		locktest.Acquire(t, b, sharer(name, 2))
	}
	rows(t, s, "b/", 1, names, "CASE WHEN i % 5 = 0 THEN '' ELSE 'x' END", "clock_timestamp() + interval '1 hour'")
	for prefix, want := range map[string]int{"b/": names*4/5 + 1, "": names*4/5 + 3, "b/11": 889, "d": 0} {
		found, err := locktest.List(t.Context(), b, prefix)
		require.NoError(t, err, prefix)
		seen := map[string]bool{}
		for _, st := range found {
			seen[st.Name] = st.Held && strings.HasPrefix(st.Name, prefix)
		}
		assert.NotContains(t, slices.Collect(maps.Values(seen)), false, prefix)
		assert.Len(t, seen, want, prefix)
		assert.Len(t, found, want, prefix)
	}
	n, last := 0, error(nil)
	for _, last = range b.List(t.Context(), "") {
		if n++; n == 1 {
			s.Exec(t, "ALTER TABLE locker_locks RENAME TO away")
		}
	}
	require.ErrorContains(t, last, "is gone")
	assert.Greater(t, n, 1000, "what was found before is yielded")
}

// What one request of a client has not found another may find, since a third has made it in between: it is
// not gone.
func TestManyRequestsFindNoTableAtOnce(t *testing.T) {
	s, url := start(t)
	for range 6 {
		script(t, s, "DROP TABLE IF EXISTS locker_locks; DROP SEQUENCE IF EXISTS locker_locks_tokens")
		var all sync.WaitGroup
		for client := range 2 {
			b, _ := newBackend(t, url, nil)
			for i := range 8 {
				all.Go(func() {
					req := request(fmt.Sprint(client, i), owner(i))
					req.Shared = i%2 == 0 // in a trip of its own
					_, err := b.Acquire(t.Context(), req)
					assert.NoError(t, err)
				})
			}
		}
		all.Wait()
	}
}

// Plans are made once for a connection, mostly while the table is small. With 100,000 rows, a statement for a
// few names reads a few pages, also with the plan that it has from before.
func TestPlansDoNotReadALargeTable(t *testing.T) {
	s, b, _ := server(t, lab.WithConfig("autovacuum", "off"))
	require.NoError(t, acquire(t, b, "first", owner(1)).Hold.Release(t.Context(), 0))
	conn, err := pgx.Connect(t.Context(), s.URL(s.Addr(), "sslmode=disable", "default_query_exec_mode=simple_protocol"))
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	const names, owners, empty = `'{a, n5, n77, shared}'::bytea[]`, `'{a, b, c, d}'::text[]`, `'{"","","",""}'`
	const askers = names + "," + owners + ", '{1,2,3,4}', '{t,t,t,t}'"
	const callers = askers + "," + empty + "::bytea[], '{1,1,1,1}', '{1,1,1,1}'"
	args := map[string]string{
		"grant": callers, "tell": askers + ", '{f,f,f,f}'", "take": names + ", '{1,2,3,4}'::bigint[]", "close": names,
		"take shares": askers, "join": callers,
		"mark": names + "," + owners + ", true", "unmark": "'n5'::bytea, 'x'::text",
		"renew":   names + "," + empty + "::text[]," + owners + ", '{1,1,1,1}'",
		"release": names + "," + owners, "leave": names + "," + owners,
		"keep": names + "," + empty + "::text[]," + owners + ", '{1,1,1,1}'",
		"look": "'shared'::bytea", "list": "'n'::bytea, 'o'::bytea", "break": "'n5'::bytea, 'x'::text, 1",
		"held":  "'n5'::bytea, ''::text, 'x'::text",
		"floor": "1", "turn": "", "sweep": "'n5'::bytea, ''::text",
	}
	exec := func(sql string) {
		t.Helper()
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	explain := func(when string) {
		for name := range postgres.Statements() {
			if name == "conditions" {
				continue
			}
			exec("BEGIN")
			exec("SELECT set_config('locker.latched', '1,2,3,4', true), set_config('locker.alone', '1,2', true)")
			conditions(t, conn)
			call := `"` + name + `"`
			if args[name] != "" {
				call += "(" + args[name] + ")"
			}
			var text []byte
			require.NoError(t, conn.QueryRow(t.Context(), "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE "+call).Scan(&text), name)
			var plan []struct{ Plan map[string]any }
			require.NoError(t, json.Unmarshal(text, &plan))
			read := plan[0].Plan["Shared Hit Blocks"].(float64) + plan[0].Plan["Shared Read Blocks"].(float64)
			limit := map[string]float64{"sweep": 3000, "list": 60_000} // they look at 200 and at 10,000 rows
			assert.Less(t, read, cmp.Or(limit[name], 400), "%s, %s: %s", when, name, text)
			assert.NotContains(t, string(text), `"JIT"`, "it looks dear, and would be compiled first")
			exec("ROLLBACK")
		}
	}
	conditions(t, conn)
	for name, sql := range postgres.Statements() {
		exec(`PREPARE "` + name + `" AS ` + sql)
	}
	explain("small")
	rows(t, s, "n", 1, 100_000, "CASE WHEN i % 2 = 0 THEN '' ELSE 'x' END", "clock_timestamp() + interval '1 hour'")
	s.Exec(t, `INSERT INTO locker_locks SELECT 'shared', CASE WHEN i = 0 THEN '' ELSE 's'||i END,
		CASE WHEN i = 0 THEN 'shared' ELSE 's'||i END, '', 1, 'epoch', 'epoch', clock_timestamp() + interval '1 hour', false,
		'epoch', '' FROM generate_series(0, 50) i`)
	explain("grown")
	s.Exec(t, "ANALYZE locker_locks")
	explain("analyzed")
}

// conditions come before each statement.
func conditions(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	_, err := conn.Exec(t.Context(), postgres.Statements()["conditions"], true, false, true)
	require.NoError(t, err)
}
