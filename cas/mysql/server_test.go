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

func storeOn(t testing.TB, db *sql.DB) *sqlstore.Store {
	s, err := sqlstore.New(context.Background(), db, sqlstore.MySQL(), nil)
	require.NoError(t, err)
	return s
}

func swap(t *testing.T, s *sqlstore.Store, key, version string) string {
	next, err := s.Swap(t.Context(), key, version, []byte("value"))
	require.NoError(t, err)
	return next
}

// Whatever an application's connections are set to.
func TestProveStore(t *testing.T) {
	lab.NeedProve(t)
	s := start(t, "--log-bin", "--binlog-format=statement", "--server-id=1")
	for name, params := range map[string]string{
		"as they are": "",
		"dirty reads, and old modes": "?tx_isolation=%27READ-UNCOMMITTED%27&binlog_format=%27ROW%27&interpolateParams=true" +
			"&sql_mode=%27ORACLE%2CANSI_QUOTES%2CNO_BACKSLASH_ESCAPES%2CEMPTY_STRING_IS_NULL%27&collation=latin1_swedish_ci",
		"no autocommit": "?tx_isolation=%27SERIALIZABLE%27&autocommit=0&clientFoundRows=true&time_zone=%27%2B05%3A45%27" +
			"&innodb_snapshot_isolation=1&sql_safe_updates=1&sql_select_limit=1&sql_mode=%27EMPTY_STRING_IS_NULL%27",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			castest.Run(t, castest.Harness{
				New: func(t *testing.T) cas.Store { return storeOn(t, open(t, dsn(s.Addr())+params)) },
				Cut: func(t *testing.T) (cas.Store, conformance.Fault) {
					addr, fault := conformance.Proxy(t, s.Addr())
					return storeOn(t, open(t, dsn(addr)+params)), fault
				},
			})
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
	require.NoError(t, conn.Close())
	// A write that has waited for others is as old as its row, and a read says how old that is when it is read.
	k := storeOn(t, db)
	version := swap(t, k, "a", "")
	waits := func(block, end string, ask func()) {
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
		_, err = conn.ExecContext(t.Context(), end)
		require.NoError(t, err)
		<-done
	}
	waits("SELECT * FROM locker_records FOR UPDATE", "COMMIT", func() { swap(t, k, "a", version) })
	e, err := k.Load(t.Context(), "a")
	require.NoError(t, err)
	assert.Less(t, e.Age, time.Second)
	waits("LOCK TABLES locker_records WRITE", "UNLOCK TABLES", func() {
		e, err := k.Load(t.Context(), "a")
		assert.NoError(t, err)
		assert.Greater(t, e.Age, 2*time.Second-time.Millisecond)
	})
}

// A process that has just started gets a dead holder's lock at its first try.
func TestProveAFreshProcess(t *testing.T) {
	lab.NeedProve(t)
	s := start(t)
	addr, fault := conformance.Proxy(t, s.Addr())
	client := func(addr string) *locker.Client {
		c, err := locker.Open(t.Context(), urlOf(addr)+"?ttl=1s", nil, mysql.Openers)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	dead, err := client(addr).TryLock(t.Context(), "a")
	require.NoError(t, err)
	fault.Requests(conformance.Drop)
	_, err = client(s.Addr()).TryLock(t.Context(), "a")
	require.ErrorIs(t, err, locker.ErrHeld)
	<-dead.Done()
	time.Sleep(100 * time.Millisecond) // Guarantees.DeadHolderSlack
	next, err := client(s.Addr()).TryLock(t.Context(), "a")
	require.NoError(t, err)
	before, _ := dead.Token()
	after, _ := next.Token()
	assert.Greater(t, after, before)
}

// What is in the way is reported, and never changes an answer.
func TestProveWhatIsInTheWay(t *testing.T) {
	lab.NeedProve(t)
	s := start(t)
	db := open(t, dsn(s.Addr()))
	exec := func(q string) {
		_, err := db.Exec(q)
		require.NoError(t, err, q)
	}
	k := storeOn(t, db)
	version := swap(t, k, "a", "")
	exec("CREATE USER app@'%' IDENTIFIED BY 'sesame'")
	exec("GRANT SELECT, INSERT, UPDATE ON locker.* TO app@'%'")
	app := open(t, "app:sesame@tcp("+s.Addr()+")/locker?innodb_lock_wait_timeout=1")
	a := storeOn(t, app)
	exec("SET GLOBAL read_only = 1")
	_, err := a.Swap(t.Context(), "a", version, []byte("no"))
	require.ErrorIs(t, err, cas.ErrUnwritten)
	require.NotErrorIs(t, err, driver.ErrRefused, "it may become the primary")
	exec("SET GLOBAL read_only = 0")
	// A row that is locked for longer than the server lets others wait.
	tx, err := db.Begin()
	require.NoError(t, err)
	_, err = tx.Exec("SELECT * FROM locker_records FOR UPDATE")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer cancel()
	_, err = a.Swap(ctx, "a", version, []byte("no"))
	require.Error(t, err)
	require.NotErrorIs(t, err, cas.ErrConflict)
	time.AfterFunc(2500*time.Millisecond, func() { _ = tx.Rollback() })
	version = swap(t, a, "a", version) // waits, fails and waits again
	// Connections that were killed, and a pool that the application keeps for itself.
	app.SetMaxOpenConns(1)
	var id int64
	require.NoError(t, app.QueryRow("SELECT CONNECTION_ID()").Scan(&id))
	_, err = db.Exec("KILL ?", id)
	require.NoError(t, err)
	version = swap(t, a, "a", version)
	taken, err := app.Conn(t.Context())
	require.NoError(t, err)
	ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = a.Swap(ctx, "a", version, []byte("no"))
	require.ErrorIs(t, err, cas.ErrUnwritten)
	require.NoError(t, taken.Close())
	// A right that is missing: without autocommit, too, no row stays locked for others.
	exec("CREATE USER reader@'%' IDENTIFIED BY 'sesame'")
	exec("GRANT SELECT, INSERT ON locker.* TO reader@'%'")
	_, err = storeOn(t, open(t, "reader:sesame@tcp("+s.Addr()+")/locker?autocommit=0")).Swap(t.Context(), "b", "", []byte("no"))
	require.ErrorIs(t, err, driver.ErrRefused)
	ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err = k.Swap(ctx, "b", "", []byte("yes"))
	require.NoError(t, err)
	// Too many connections.
	exec("SET GLOBAL max_connections = 10")
	u := open(t, "app:sesame@tcp("+s.Addr()+")/locker")
	var held []*sql.Conn
	for range 12 {
		if c, err := u.Conn(t.Context()); err == nil {
			held = append(held, c)
		}
	}
	_, err = sqlstore.New(t.Context(), open(t, "app:sesame@tcp("+s.Addr()+")/locker"), sqlstore.MySQL(), nil)
	require.ErrorIs(t, err, cas.ErrUnwritten)
	require.NotErrorIs(t, err, driver.ErrRefused)
	for _, c := range held {
		_ = c.Close()
	}
	swap(t, k, "a", version)
}

func TestProveCheck(t *testing.T) {
	lab.NeedProve(t)
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
	lax := start(t, "--innodb-flush-log-at-trx-commit=1", "--log-bin", "--server-id=3") // MariaDB's default does not sync it
	assert.Equal(t, map[string]driver.Severity{"sync_binlog": driver.SeverityProblem}, findings(lax))
	const warning, problem = driver.SeverityWarning, driver.SeverityProblem
	assert.Equal(t, map[string]driver.Severity{"--sysdate-is-now": warning, "Galera": problem, "read_only": problem,
		"innodb_flush_log_at_trx_commit": problem}, findings(bad))
	replica := open(t, dsn(bad.Addr()))
	_, port, err := net.SplitHostPort(good.Addr())
	require.NoError(t, err)
	for _, q := range []string{"SET GLOBAL wsrep_on = OFF", "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_USER = 'locker', MASTER_PASSWORD = '" +
		lab.PostgresPassword + "', MASTER_PORT = " + port, "START SLAVE"} {
		_, err := replica.Exec(q)
		require.NoError(t, err, q)
	}
	require.Eventually(t, func() bool { return findings(good)["replicas"] == warning }, 30*time.Second, 100*time.Millisecond)
}

// Names are bytes, whatever character set a connection has been given: neither does a name change a statement, nor do
// two names become one, nor is one name two.
func TestProveNamesInOtherCharacterSets(t *testing.T) {
	lab.NeedProve(t)
	s := start(t)
	plain := storeOn(t, open(t, dsn(s.Addr())))
	for _, params := range []string{
		"?interpolateParams=true&character_set_client=gbk", "?character_set_connection=latin1", "?character_set_client=latin1",
	} {
		other := storeOn(t, open(t, dsn(s.Addr())+params))
		versions := map[string]string{"victim" + params: swap(t, plain, "victim"+params, "")}
		for _, name := range []string{"中", "文", "中' OR 1=1 -- x", `\`} {
			versions[name+params] = swap(t, other, name+params, "")
		}
		for name, version := range versions {
			for _, s := range []*sqlstore.Store{plain, other} {
				e, err := s.Load(t.Context(), name)
				require.NoError(t, err)
				assert.Equal(t, version, e.Version, name)
				assert.Equal(t, "value", string(e.Value))
			}
		}
	}
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
