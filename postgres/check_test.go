package postgres_test

import (
	"errors"
	"slices"
	"strings"
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

// Where no lock can be had, the error says what is in the way, and whether to try again, in one line without
// secrets; what is a matter of the server's settings, Check says as well.
func TestWhatIsInTheWayIsSaid(t *testing.T) {
	s, b, _ := server(t)
	acquire(t, b, "a", owner(1))
	script(t, s, `REVOKE CREATE ON SCHEMA public FROM PUBLIC; -- the default since 15
		CREATE USER nobody PASSWORD 'secret'; CREATE USER few PASSWORD 'secret' CONNECTION LIMIT 0;
		CREATE USER plain PASSWORD 'secret'; CREATE USER reader PASSWORD 'secret';
		ALTER USER reader SET default_transaction_read_only = on;
		GRANT SELECT, INSERT, UPDATE, DELETE ON locker_locks TO plain, reader;
		GRANT USAGE ON SEQUENCE locker_locks_tokens TO plain, reader;
		CREATE TABLE old (name bytea PRIMARY KEY, owner text, label bytea, token bigint, expires timestamptz,
			waited boolean);
		CREATE SEQUENCE old_tokens`)
	own := s.URL(s.Addr(), "sslmode=disable")
	as := func(user string, params ...string) string {
		url := s.URL(s.Addr(), append(params, "sslmode=disable")...)
		return strings.Replace(url, "locker:"+lab.PostgresPassword, user+":secret", 1)
	}
	const nowhere = "options=-c%20search_path%3D"
	type options = postgres.Options
	for what, c := range map[string]struct {
		url                    string
		opts                   options
		says                   string
		again                  bool
		finding, found, advice string // of Check; advice "" if it finds nothing
	}{
		"a wrong password":       {url: strings.Replace(own, lab.PostgresPassword, "hunter2", 1), says: "password"},
		"no such database":       {url: strings.Replace(own, "/postgres?", "/nowhere?", 1), says: "does not exist"},
		"nobody there":           {url: "postgres://127.0.0.1:1/db", says: "failed to connect", again: true},
		"a user in the password": {url: "postgres://hunter2:pw@127.0.0.1:1/db", says: "failed to connect", again: true},
		"a statement timeout": {url: own + "&options=-c%20statement_timeout%3D1", again: true,
			says: "statement timeout"},
		"no right":             {url: as("nobody"), says: "permission denied"},
		"too many connections": {url: as("few"), says: "too many connections", again: true},
		"nonsense":             {url: own + "&target_session_attrs=nonsense", says: "target_session"},
		"an unknown parameter": {url: own + "&sslmod=x", says: "unknown parameter"},
		"a server for reads only": {url: as("reader", "target_session_attrs=read-write"), again: true,
			says: "or default_transaction_read_only is on"},
		"read-only": {as("reader"), options{},
			"default_transaction_read_only is on, and the server is no standby", true, "writable", "no", "set default_transaction_read_only = off"},
		"no right to make it": {as("plain"), options{Table: "new"}, "GRANT CREATE ON SCHEMA", false,
			"rights on new", "too few", "GRANT CREATE ON SCHEMA public"},
		"not to be made": {own, options{Table: "new", NoCreate: true},
			"make the table with what postgres.Schema returns", false, "table new", "is not there", "make it with what postgres.Schema returns"},
		"no schema": {as("plain", nowhere), options{}, "search_path does not lead to it", false,
			"table locker_locks", "is not there", "search_path names no schema"},
		"no schema, not to be made": {as("plain", nowhere), options{NoCreate: true},
			"search_path does not lead to it", false, "table locker_locks", "is not there", "search_path names no schema"},
		"a schema that is not there": {as("plain"), options{Table: "nowhere.locks"},
			`schema "nowhere" does not exist`, false, "table nowhere.locks", "is not there", "make the schema nowhere"},
		"a table of an older release": {own, options{Table: "old"},
			"is that of an older release, which locks in another way: stop the programs that lock with the older " +
				"release, and DROP TABLE", false, "table old", "is of an older release",
			"stop the programs that lock with it, and DROP TABLE"},
		"no standby": {own, options{FailoverSafe: true}, "no synchronous standby", true,
			"synchronous_standby_names", "", "name each synchronous standby"},
		"a standby that is not seen": {as("plain"), options{FailoverSafe: true}, "GRANT pg_read_all_stats TO", false,
			"sight of the standby", "no", "GRANT pg_read_all_stats to the user"},
	} {
		t.Run(what, func(t *testing.T) {
			if what == "a statement timeout" {
				script(t, s, `CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
					$$ BEGIN PERFORM pg_sleep(0.1); RETURN NEW; END $$;
					CREATE TRIGGER slow BEFORE INSERT ON locker_locks FOR EACH ROW EXECUTE FUNCTION slow()`)
				defer s.Exec(t, "DROP FUNCTION slow CASCADE")
			}
			said := func(err error) {
				t.Helper()
				require.ErrorContains(t, err, c.says)
				assert.Equal(t, c.again, errors.Is(err, driver.ErrUnavailable), "%v", err)
				for _, no := range []string{"\n", "hunter2", "secret", lab.PostgresPassword} {
					assert.NotContains(t, err.Error(), no)
				}
			}
			url := c.url
			if c.opts.Table != "" {
				url += "&table=" + c.opts.Table
			}
			if c.opts.NoCreate {
				url += "&create=off"
			}
			if c.opts.FailoverSafe {
				url += "&failover_safe=on"
			}
			client, err := locker.Open(t.Context(), url, nil, postgres.Openers)
			if err == nil {
				_, err = client.TryLock(t.Context(), "b")
				require.NoError(t, client.Close())
			}
			said(err)
			if c.advice == "" {
				return
			}
			b, _ := newBackend(t, c.url, &c.opts)
			g, err := locktest.Ask(t.Context(), b, request("b", owner(2)))
			said(err)
			require.Nil(t, g.Hold, "nothing is left")
			all, err := b.Check(t.Context())
			require.NoError(t, err)
			i := slices.IndexFunc(all, func(f driver.Finding) bool { return strings.HasPrefix(f.What, c.finding+" of ") })
			require.GreaterOrEqual(t, i, 0, "%v", all)
			assert.Equal(t, driver.SeverityProblem, all[i].Severity)
			assert.Equal(t, c.found, all[i].Found)
			assert.Contains(t, all[i].Advice, c.advice)
		})
	}
	s.Exec(t, "DROP TABLE old")
	mine, _ := newBackend(t, own, &options{Table: "old"})
	acquire(t, mine, "a", owner(1))

	// What is there needs no right to make it, and who sees no standby may look at locks and break them.
	plain, _ := newBackend(t, as("plain"), nil)
	acquire(t, plain, "b", owner(3))
	blind, _ := newBackend(t, as("plain"), &postgres.Options{FailoverSafe: true})
	found, err := locktest.List(t.Context(), blind, "a")
	require.NoError(t, err)
	assert.Len(t, found, 1)
	_, err = locktest.Ask(t.Context(), blind, request("c", owner(2)))
	require.ErrorContains(t, err, "GRANT pg_read_all_stats TO", "it has looked, which does not make up for it")
	_, err = locktest.Break(t.Context(), blind, "a")
	require.NoError(t, err)
	acquire(t, b, "a", owner(3))

	// Check finds what breaks a promise, and nothing else.
	wrong := func(b *postgres.Backend) map[string]driver.Severity {
		all, err := b.Check(t.Context())
		require.NoError(t, err)
		bad := map[string]driver.Severity{}
		for _, f := range all {
			assert.Equal(t, f.Severity == driver.SeverityOK, f.Advice == "", "%v", f)
			if f.Severity > driver.SeverityInfo {
				bad[strings.Split(f.What, " of ")[0]] = f.Severity
			}
		}
		return bad
	}
	const problem = driver.SeverityProblem
	assert.Equal(t, map[string]driver.Severity{"fsync": problem}, wrong(b))
	assert.Equal(t, map[string]driver.Severity{"fsync": problem}, wrong(plain))
	nobody, _ := newBackend(t, as("nobody"), &postgres.Options{FailoverSafe: true})
	assert.Equal(t, map[string]driver.Severity{"fsync": problem, "synchronous_standby_names": problem, "sight": problem,
		"rights on locker_locks": problem}, wrong(nobody))
	s.Exec(t, "GRANT SELECT, INSERT, UPDATE, DELETE ON locker_locks TO nobody")
	assert.Contains(t, wrong(nobody), "rights on locker_locks", "it cannot draw tokens")
	s.Exec(t, "GRANT USAGE ON SEQUENCE locker_locks_tokens TO nobody")
	assert.NotContains(t, wrong(nobody), "rights on locker_locks")
}

// A transaction that has begun long ago makes a lock slow that is used all the time, and Check names it.
func TestCheckNamesAnOldSnapshot(t *testing.T) {
	s, b, pool := server(t, lab.WithClock())
	acquire(t, b, "a", owner(1))
	_, dump := newBackend(t, s.URL(s.Addr(), "sslmode=disable", "application_name=pg_dump"), nil)
	_, err := begin(t, dump).Exec(t.Context(), "DECLARE held CURSOR FOR SELECT FROM locker_locks") // a snapshot
	require.NoError(t, err)
	old := func() driver.Finding {
		all, err := b.Check(t.Context())
		require.NoError(t, err)
		i := slices.IndexFunc(all, func(f driver.Finding) bool { return strings.HasPrefix(f.What, "oldest snapshot") })
		require.GreaterOrEqual(t, i, 0)
		return all[i]
	}
	assert.Equal(t, driver.SeverityOK, old().Severity)
	s.JumpClock(t, time.Hour)
	pool.Reset()
	assert.Equal(t, driver.SeverityWarning, old().Severity)
	assert.Contains(t, old().Advice, "pg_dump")
}
