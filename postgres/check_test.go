package postgres_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
	"github.com/golockers/locker/internal/locktest"
	"github.com/golockers/locker/postgres"
)

// Check says what breaks a promise, and what to change.
func TestCheck(t *testing.T) {
	t.Parallel()
	s := lab.StartPostgres(t)
	s.Exec(t, "CREATE USER few PASSWORD 'secret'")
	b, _ := newBackend(t, s.URL(s.Addr(), "sslmode=disable"), nil)
	acquire(t, b, "a", owner(1))
	few, _ := newBackend(t, strings.Replace(s.URL(s.Addr(), "sslmode=disable"),
		"locker:"+lab.PostgresPassword, "few:secret", 1), &postgres.Options{FailoverSafe: true})
	worst := func(b *postgres.Backend) map[string]driver.Severity {
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
	assert.Equal(t, map[string]driver.Severity{"fsync": driver.SeverityProblem}, worst(b))
	assert.Equal(t, map[string]driver.Severity{"fsync": driver.SeverityProblem,
		"synchronous_standby_names": driver.SeverityProblem, "sight": driver.SeverityProblem,
		"rights on locker_locks": driver.SeverityProblem}, worst(few))
	s.Exec(t, "GRANT SELECT, INSERT, UPDATE, DELETE ON locker_locks TO few")
	assert.Contains(t, worst(few), "rights on locker_locks", "it cannot draw tokens")
	s.Exec(t, "GRANT USAGE ON SEQUENCE locker_locks_tokens TO few")
	assert.NotContains(t, worst(few), "rights on locker_locks")

	g, err := locktest.Ask(t.Context(), b, request("b", owner(2)))
	require.NoError(t, err, "it is served all the same")
	require.NoError(t, g.Hold.Release(t.Context()))
}

// Where no lock can be had, the check and the error of Acquire both say what is in the way.
func TestWhatIsInTheWayIsSaid(t *testing.T) {
	t.Parallel()
	s := lab.StartPostgres(t)
	s.Exec(t, "REVOKE CREATE ON SCHEMA public FROM PUBLIC") // the default since 15
	s.Exec(t, "CREATE USER plain PASSWORD 'secret'")
	s.Exec(t, "CREATE USER reader PASSWORD 'secret'")
	s.Exec(t, "ALTER USER reader SET default_transaction_read_only = on")
	s.Exec(t, "GRANT CREATE ON SCHEMA public TO reader")
	as := func(user string, params ...string) string {
		url := s.URL(s.Addr(), append(params, "sslmode=disable")...)
		return strings.Replace(url, "locker:"+lab.PostgresPassword, user+":secret", 1)
	}
	const nowhere = "options=-c%20search_path%3D"
	for name, c := range map[string]struct {
		url            string
		opts           postgres.Options
		finding, found string
		advice, says   string
	}{
		"no right to make it": {as("plain"), postgres.Options{}, "rights on locker_locks", "too few",
			"GRANT CREATE ON SCHEMA public", "GRANT CREATE ON SCHEMA"},
		"no schema": {as("plain", nowhere), postgres.Options{}, "table locker_locks", "is not there",
			"search_path names no schema", "search_path does not lead to it"},
		"no schema, not to be made": {as("plain", nowhere), postgres.Options{NoCreate: true}, "table locker_locks",
			"is not there", "search_path names no schema", "search_path does not lead to it"},
		"a schema that is not there": {as("plain"), postgres.Options{Table: "nowhere.locks"}, "table nowhere.locks",
			"is not there", "make the schema nowhere", `schema "nowhere" does not exist`},
		"read-only": {as("reader"), postgres.Options{}, "writable", "no", "set default_transaction_read_only = off",
			"default_transaction_read_only is on, and the server is no standby"},
	} {
		b, _ := newBackend(t, c.url, &c.opts)
		all, err := b.Check(t.Context())
		require.NoError(t, err, name)
		i := slices.IndexFunc(all, func(f driver.Finding) bool { return strings.HasPrefix(f.What, c.finding+" of ") })
		require.GreaterOrEqual(t, i, 0, "%s: %v", name, all)
		assert.Equal(t, driver.SeverityProblem, all[i].Severity, name)
		assert.Equal(t, c.found, all[i].Found, name)
		assert.Contains(t, all[i].Advice, c.advice, name)
		_, err = locktest.Ask(t.Context(), b, request("a", owner(1)))
		require.ErrorContains(t, err, c.says, name)
	}
	_, err := locker.Open(t.Context(), as("reader", "target_session_attrs=read-write"), nil, postgres.Openers)
	require.ErrorContains(t, err, "or default_transaction_read_only is on")

	// What is there needs no right to make it.
	b, _ := newBackend(t, s.URL(s.Addr(), "sslmode=disable"), nil)
	acquire(t, b, "a", owner(2))
	s.Exec(t, "GRANT SELECT, INSERT, UPDATE, DELETE ON locker_locks TO plain")
	s.Exec(t, "GRANT USAGE ON SEQUENCE locker_locks_tokens TO plain")
	plain, _ := newBackend(t, as("plain"), nil)
	all, err := plain.Check(t.Context())
	require.NoError(t, err)
	assert.Contains(t, all, driver.Finding{What: "rights on locker_locks of " + s.Addr() + "/postgres", Found: "enough"})
	acquire(t, plain, "b", owner(3))
	reader, _ := newBackend(t, as("reader"), nil)
	s.Exec(t, "GRANT SELECT, INSERT, UPDATE, DELETE ON locker_locks TO reader")
	s.Exec(t, "GRANT USAGE ON SEQUENCE locker_locks_tokens TO reader")
	_, err = locktest.Ask(t.Context(), reader, request("c", owner(4)))
	require.ErrorContains(t, err, "default_transaction_read_only is on, and the server is no standby")
}
