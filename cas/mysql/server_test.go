package mysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker"
	"github.com/golockers/locker/cas"
	"github.com/golockers/locker/cas/castest"
	"github.com/golockers/locker/cas/mysql"
	"github.com/golockers/locker/cas/sqlstore"
	"github.com/golockers/locker/conformance"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/lab"
)

func storeOn(t conformance.T, db *sql.DB) *sqlstore.Store {
	s, err := sqlstore.New(context.Background(), db, sqlstore.MySQL(), nil)
	require.NoError(t, err)
	return s
}

func backend(t conformance.T, s *sqlstore.Store) driver.Backend {
	b, err := cas.New(s, nil)
	require.NoError(t, err)
	return b
}

func exec(t *testing.T, db *sql.DB, statements ...string) {
	for _, q := range statements {
		_, err := db.Exec(q)
		require.NoError(t, err, q)
	}
}

func swap(t *testing.T, s *sqlstore.Store, key, version string) string {
	next, err := s.Swap(t.Context(), key, version, []byte("value"))
	require.NoError(t, err)
	return next
}

// Whatever an application's connections are set to. In other character sets, too, names are bytes: no name changes a
// statement, and what one client writes is what another one reads.
func TestProveStore(t *testing.T) {
	lab.NeedProve(t)
	s := start(t, "--log-bin", "--binlog-format=statement", "--server-id=1")
	const old = "?tx_isolation=%27READ-UNCOMMITTED%27&binlog_format=%27ROW%27&interpolateParams=true" +
		"&sql_mode=%27ORACLE%2CANSI_QUOTES%2CNO_BACKSLASH_ESCAPES%2CEMPTY_STRING_IS_NULL%27&collation=latin1_swedish_ci"
	const off = "?tx_isolation=%27SERIALIZABLE%27&autocommit=0&clientFoundRows=true&time_zone=%27%2B05%3A45%27" +
		"&innodb_snapshot_isolation=1&sql_safe_updates=1&sql_select_limit=1&sql_mode=%27EMPTY_STRING_IS_NULL%27"
	for name, params := range map[string][]string{ // of the first client, of the second, ...
		"as they are":                {""},
		"dirty reads, and old modes": {old},
		"no autocommit":              {off},
		"a client in GBK":            {"?interpolateParams=true&character_set_client=gbk", ""},
		"a client in Latin-1":        {"?character_set_client=latin1", ""},
		"a connection in Latin-1":    {"?character_set_connection=latin1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clients := 0
			h := castest.Harness{New: func(t *testing.T) cas.Store {
				clients++
				return storeOn(t, open(t, dsn(s.Addr())+params[(clients-1)%len(params)]))
			}}
			if len(params) == 1 {
				h.Cut = func(t *testing.T) (cas.Store, conformance.Fault) {
					addr, fault := conformance.Proxy(t, s.Addr())
					return storeOn(t, open(t, dsn(addr)+params[0])), fault
				}
			}
			castest.Run(t, h)
		})
	}
}

// The time is that of the moment, in UTC, whatever the zone of the connection, and whenever it changes: SET timestamp
// moves NOW and UTC_TIMESTAMP, and not SYSDATE, as a change of the zone does with NOW alone.
func TestProveTheClock(t *testing.T) {
	lab.NeedProve(t)
	s := start(t)
	db := open(t, dsn(s.Addr()))
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	for behind, want := range map[time.Duration]time.Duration{ // how far NOW is behind SYSDATE, and what is added to it
		0: 0, 3 * time.Second: 3 * time.Second, 400 * time.Second: 400 * time.Second, time.Hour + 2*time.Second: 2 * time.Second,
		-time.Hour + 2*time.Second: 2 * time.Second, -30 * time.Minute: 0, 30 * time.Minute: 0, -10 * time.Millisecond: 0, 500 * time.Second: 0,
	} {
		_, err := conn.ExecContext(t.Context(), "SET timestamp = UNIX_TIMESTAMP(SYSDATE(6)) - ?", behind.Seconds())
		require.NoError(t, err)
		var added int64
		require.NoError(t, conn.QueryRowContext(t.Context(), "SELECT TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), "+
			sqlstore.MySQL().Now+")").Scan(&added))
		assert.InDelta(t, want.Seconds(), float64(added)/1e6, 1, "%v", behind)
	}
	_, err = conn.ExecContext(t.Context(), "SET timestamp = DEFAULT")
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	// A write that has waited for others is as old as its row, and a read says how old that is when it is read.
	k := storeOn(t, db)
	version := swap(t, k, "a", "")
	waits := func(block, end string, ask func()) (ended time.Time) {
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		for _, q := range []string{"BEGIN", block} {
			_, err := conn.ExecContext(t.Context(), q)
			require.NoError(t, err)
		}
		done := make(chan struct{})
		go func() { defer close(done); ask() }()
		time.Sleep(2 * time.Second) // it is what is measured
		ended = time.Now()
		_, err = conn.ExecContext(t.Context(), end)
		require.NoError(t, err)
		<-done
		return ended
	}
	ended := waits("SELECT * FROM locker_records FOR UPDATE", "COMMIT", func() { swap(t, k, "a", version) })
	e, err := k.Load(t.Context(), "a")
	require.NoError(t, err)
	assert.Less(t, e.Age, time.Since(ended)+time.Second)
	waits("LOCK TABLES locker_records WRITE", "UNLOCK TABLES", func() {
		e, err := k.Load(t.Context(), "a")
		assert.NoError(t, err)
		assert.Greater(t, e.Age, 2*time.Second-time.Millisecond)
	})
}

// What is in the way is reported, and never changes an answer.
func TestProveWhatIsInTheWay(t *testing.T) {
	lab.NeedProve(t)
	s := start(t)
	db := open(t, dsn(s.Addr()))
	as := func(user, params string) *sql.DB {
		return open(t, user+":sesame@tcp("+s.Addr()+")/locker"+params)
	}
	within := func(d time.Duration, s *sqlstore.Store, key, version string) error {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		_, err := s.Swap(ctx, key, version, []byte("no"))
		return err
	}
	exec(t, db, "CREATE USER app@'%' IDENTIFIED BY 'sesame'", "CREATE USER reader@'%' IDENTIFIED BY 'sesame'",
		"GRANT SELECT, INSERT ON locker.* TO reader@'%'", "GRANT SELECT, INSERT, UPDATE ON locker.* TO app@'%'")
	k := storeOn(t, db)
	version := swap(t, k, "a", "")
	app := as("app", "?innodb_lock_wait_timeout=1")
	a := storeOn(t, app)
	exec(t, db, "SET GLOBAL read_only = 1")
	err := within(time.Minute, a, "a", version)
	require.ErrorIs(t, err, cas.ErrUnwritten)
	require.NotErrorIs(t, err, driver.ErrRefused, "it may become the primary")
	exec(t, db, "SET GLOBAL read_only = 0")
	// A row that is locked for longer than the server lets others wait.
	tx, err := db.Begin()
	require.NoError(t, err)
	_, err = tx.Exec("SELECT * FROM locker_records FOR UPDATE")
	require.NoError(t, err)
	err = within(1500*time.Millisecond, a, "a", version)
	require.Error(t, err)
	require.NotErrorIs(t, err, cas.ErrConflict)
	time.AfterFunc(2500*time.Millisecond, func() { _ = tx.Rollback() })
	version = swap(t, a, "a", version) // waits, fails and waits again
	// Connections that were killed, and a pool that the application keeps for itself.
	app.SetMaxOpenConns(1)
	var id int64
	require.NoError(t, app.QueryRow("SELECT CONNECTION_ID()").Scan(&id))
	exec(t, db, fmt.Sprint("KILL ", id))
	version = swap(t, a, "a", version)
	taken, err := app.Conn(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, within(100*time.Millisecond, a, "a", version), cas.ErrUnwritten)
	require.NoError(t, taken.Close())
	// A right that is missing: without autocommit, too, no row stays locked for others.
	require.ErrorIs(t, within(time.Minute, storeOn(t, as("reader", "?autocommit=0")), "b", ""), driver.ErrRefused)
	require.NoError(t, within(10*time.Second, k, "b", ""))
	// Too many connections.
	exec(t, db, "SET GLOBAL max_connections = 10")
	u := as("app", "")
	for range 12 {
		if c, err := u.Conn(t.Context()); err == nil {
			defer func() { _ = c.Close() }()
		}
	}
	_, err = sqlstore.New(t.Context(), as("app", ""), sqlstore.MySQL(), nil)
	require.ErrorIs(t, err, cas.ErrUnwritten)
	require.NotErrorIs(t, err, driver.ErrRefused)
	swap(t, k, "a", version)
}

func TestProveCheck(t *testing.T) {
	lab.NeedProve(t)
	const warning, problem = driver.SeverityWarning, driver.SeverityProblem
	good := start(t, "--innodb-flush-log-at-trx-commit=1", "--log-bin", "--sync-binlog=1", "--server-id=1")
	bad := start(t, "--sysdate-is-now", "--wsrep-on=ON", "--wsrep-provider=none", "--binlog-format=ROW", "--read-only", "--server-id=2")
	findings := func(s *lab.Process) map[string]driver.Severity {
		c, err := locker.Open(t.Context(), urlOf(s.Addr()), nil, mysql.Openers)
		require.NoError(t, err)
		defer func() { _ = c.Close() }()
		all, err := c.Check(t.Context())
		require.NoError(t, err)
		found := map[string]driver.Severity{}
		for _, f := range all {
			t.Log(f)
			if f.Severity != driver.SeverityOK {
				found[f.What] = f.Severity
			}
		}
		return found
	}
	assert.Empty(t, findings(good))
	assert.Equal(t, map[string]driver.Severity{"--sysdate-is-now": warning, "Galera": problem, "read_only": problem,
		"innodb_flush_log_at_trx_commit": problem}, findings(bad))
	exec(t, open(t, dsn(good.Addr())), "SET GLOBAL sync_binlog = 0") // which is MariaDB's default
	assert.Equal(t, map[string]driver.Severity{"sync_binlog": problem}, findings(good))
	_, port, err := net.SplitHostPort(good.Addr())
	require.NoError(t, err)
	exec(t, open(t, dsn(bad.Addr())), "SET GLOBAL wsrep_on = OFF", "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', "+
		"MASTER_USER = 'locker', MASTER_PASSWORD = '"+lab.PostgresPassword+"', MASTER_PORT = "+port, "START SLAVE")
	require.Eventually(t, func() bool { return findings(good)["replicas"] == warning }, 30*time.Second, 100*time.Millisecond)
}

// A network swallows everything, and goes on doing so on the connections that there were, as a NAT that has forgotten
// them does. Once new ones get through, the pool makes some.
func TestProveAPoolOutlivesASilentNetwork(t *testing.T) {
	lab.NeedProve(t)
	s := start(t)
	network := lab.StartProxy(t, s.Addr())
	c, err := locker.Open(t.Context(), urlOf(network.Addr())+"?timeout=1s", nil, mysql.Openers)
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	network.Set(lab.Drop)
	var callers sync.WaitGroup
	for i := range 3 * 16 { // three times as many as there are connections
		callers.Go(func() {
			_, err := c.TryLock(t.Context(), fmt.Sprint("a", i))
			assert.ErrorIs(t, err, locker.ErrUnavailable)
		})
		time.Sleep(50 * time.Millisecond) // the pool dials for each
	}
	callers.Wait()
	network.PassNew()
	require.Eventually(t, func() bool { _, err := c.TryLock(t.Context(), "b"); return err == nil }, time.Minute, 100*time.Millisecond)
}
