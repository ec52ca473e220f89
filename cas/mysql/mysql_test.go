package mysql_test

import (
	"context"
	"database/sql"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	driverof "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/golockers/locker"
	"github.com/golockers/locker/cas/mysql"
	"github.com/golockers/locker/cas/sqlstore"
	"github.com/golockers/locker/conformance"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/campaign"
	"github.com/golockers/locker/internal/clock"
	"github.com/golockers/locker/internal/lab"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func dsn(addr string) string { return "locker:" + lab.PostgresPassword + "@tcp(" + addr + ")/locker" }

func urlOf(addr string) string {
	return "mysql://locker:" + lab.PostgresPassword + "@" + addr + "/locker"
}

func open(t conformance.T, dsn string) *sql.DB {
	db, err := sql.Open("mysql", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// start starts a MariaDB that keeps what it has committed when it is killed.
func start(t *testing.T, flags ...string) *lab.Process {
	_ = driverof.SetLogger(&driverof.NopLogger{})
	return lab.StartMariaDB(t, func(addr string) error {
		db, err := sql.Open("mysql", dsn(addr))
		if err != nil {
			return err
		}
		defer func() { _ = db.Close() }()
		return db.Ping()
	}, append([]string{"--innodb-flush-log-at-trx-commit=2"}, flags...)...)
}

func TestURLs(t *testing.T) {
	for rawURL, says := range map[string]string{
		"mysql://u:sesame@h":                     "mysql://user:password@host[:port]/database",
		"mysql://u:sesame@h/":                    "mysql://user:password@host[:port]/database",
		"mysql://u:sesame@h/a/b":                 "mysql://user:password@host[:port]/database",
		"mysql://u:sesame@h,i/a":                 "mysql://user:password@host[:port]/database",
		"mysqls://h/a":                           "mysqls://user:password@host[:port]/database",
		"mysql://u:sesame@h/a?tls=true":          "the known ones are create, label, max_hold",
		"mysql://u:sesame@h/a?create=maybe":      "create: write on or off",
		"mysql://u:sesame@h/a?ca=/f":             "unknown parameter",
		"mysqls://u:sesame@h/a?ca=/none":         "ca: open /none",
		"mysql://u:sesame@h/a?table=a%3B%20DROP": "Options.Table",
		"mysql://u:sesame@h/a?timeout=0s":        "more than zero",
	} {
		_, err := locker.Open(t.Context(), rawURL, nil, mysql.Openers)
		require.ErrorIs(t, err, driver.ErrInvalid, rawURL)
		require.ErrorContains(t, err, says, rawURL)
		assert.NotContains(t, err.Error(), "sesame")
	}
}

func TestOpenEndsWithItsContext(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // it accepts connections and says nothing
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = locker.Open(ctx, urlOf(l.Addr().String()), nil, mysql.Openers)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, driver.ErrUnavailable)
}

func TestProveConformance(t *testing.T) {
	lab.NeedProve(t)
	s := start(t)
	connect := func(t conformance.T, addr string) driver.Backend {
		u, err := driver.ParseURL(urlOf(addr))
		require.NoError(t, err)
		b, err := mysql.Open(t.Context(), u, driver.Settings{})
		require.NoError(t, err)
		return b
	}
	conformance.Run(t, conformance.Harness{
		TTL: 600 * time.Millisecond,
		New: func(t conformance.T) driver.Backend { return connect(t, s.Addr()) },
		Pair: func(t conformance.T) (a, b driver.Backend) { // of an application without autocommit
			store := storeOn(t, open(t, dsn(s.Addr())+"?autocommit=0"))
			return backend(t, store), backend(t, store)
		},
		Cut: func(t conformance.T) (driver.Backend, conformance.Fault) {
			addr, fault := conformance.Proxy(t, s.Addr())
			return connect(t, addr), fault
		},
		Delete: func(t conformance.T, name string) {
			db, err := sql.Open("mysql", dsn(s.Addr())) // a pool that stays would look like a client's
			require.NoError(t, err)
			defer func() { _ = db.Close() }()
			_, err = db.Exec("DELETE FROM locker_records WHERE name = ?", []byte(name))
			require.NoError(t, err)
		},
		Restart: func(conformance.T) { s.Restart(t) },
		URL:     urlOf(s.Addr()),
		Open:    conformance.OpenWith(mysql.Openers),
		Unproven: map[string]string{
			"many-sharers": "each that comes writes the record of all, and collides with others",
		},
		KnownGoroutines: []string{"os.(*Process).pidfdWait"}, // of the server that was started again
	})
}

// Readers and writers while the network fails again and again, and connections are killed.
func TestProveCampaign(t *testing.T) {
	lab.NeedProve(t)
	s := start(t)
	admin := open(t, dsn(s.Addr()))
	stop, end := context.WithCancel(t.Context())
	killed := 0
	var killer sync.WaitGroup
	killer.Go(func() {
		for clock.Sleep(stop, 500*time.Millisecond) == nil {
			var id int64
			if admin.QueryRow("SELECT id FROM information_schema.PROCESSLIST WHERE user = 'locker' AND id <> CONNECTION_ID() "+
				"ORDER BY RAND() LIMIT 1").Scan(&id) == nil {
				_, _ = admin.Exec("KILL ?", id)
				killed++
			}
		}
	})
	campaign.Run(t, mysql.Openers, []string{s.Addr()}, func(addrs []string) string { return urlOf(addrs[0]) })
	end()
	killer.Wait()
	assert.Positive(t, killed)
}

func TestProveOpenTellsWhatIsWrong(t *testing.T) {
	lab.NeedProve(t)
	certs := lab.NewCerts(t)
	dir, err := os.MkdirTemp("", "locker-mysql-") // t.TempDir is for this user alone, and the server runs as another
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	var flags []string
	for flag, file := range map[string]string{"--ssl-cert=": certs.CertFile, "--ssl-key=": certs.KeyFile, "--ssl-ca=": certs.CAFile} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		at := filepath.Join(dir, filepath.Base(file))
		require.NoError(t, os.WriteFile(at, text, 0o644))
		flags = append(flags, flag+at)
	}
	s := start(t, flags...)
	exec(t, open(t, dsn(s.Addr())),
		"CREATE USER app@'%' IDENTIFIED BY 'sesame'", sqlstore.MySQL().Schema("locker.made"), sqlstore.MySQL().Schema("locker.lost"),
		"ALTER TABLE locker.lost ENGINE = MyISAM", "GRANT SELECT, INSERT, UPDATE ON locker.* TO app@'%'",
		"CREATE USER secure@'%' IDENTIFIED BY 'sesame' REQUIRE X509", "GRANT ALL ON locker.* TO secure@'%'")
	at := "@" + s.Addr() + "/locker"
	tls := "?ca=" + url.QueryEscape(certs.CAFile)
	for rawURL, is := range map[string]struct {
		error
		says string
	}{
		urlOf(s.Addr()): {},
		"mysqls" + strings.TrimPrefix(urlOf(s.Addr()), "mysql") + tls:                                                                           {},
		"mysqls://secure:sesame" + at + tls + "&cert=" + url.QueryEscape(certs.ClientCertFile) + "&key=" + url.QueryEscape(certs.ClientKeyFile): {},
		"mysql://app:sesame" + at + "?table=made":                                                                                               {},
		"mysql://app:sesame" + at + "?table=lost":                                                                                               {driver.ErrInvalid, "MyISAM"},
		"mysql://app:sesame" + at + "?table=locker.lost":                                                                                        {driver.ErrInvalid, "MyISAM"},
		"mysql://app:sesame" + at + "?table=made3":                                                                                              {driver.ErrRefused, "create the table"},
		"mysql://app:sesame" + at + "?table=made2&create=off":                                                                                   {driver.ErrRefused, "made2"},
		"mysql://app:wrong" + at:                                                                                                                {driver.ErrRefused, "Access denied"},
		"mysql://secure:sesame" + at:                                                                                                            {driver.ErrRefused, "Access denied"},
		"mysql://locker:" + lab.PostgresPassword + "@" + s.Addr() + "/none":                                                                     {driver.ErrRefused, "none"},
		"mysqls://app:sesame" + at + "?table=made":                                                                                              {driver.ErrUnavailable, "certificate"},
	} {
		c, err := locker.Open(t.Context(), rawURL, nil, mysql.Openers)
		if is.error != nil {
			require.ErrorIs(t, err, is.error, rawURL)
			require.ErrorContains(t, err, is.says, rawURL)
			assert.NotContains(t, err.Error(), "sesame")
			continue
		}
		require.NoError(t, err, rawURL)
		l, err := c.Lock(t.Context(), "a")
		require.NoError(t, err)
		require.NoError(t, l.Unlock(t.Context()))
		require.NoError(t, c.Close())
	}
}
