package mysql_test

import (
	"context"
	"database/sql"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	driverof "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/golockers/locker"
	"github.com/golockers/locker/cas"
	"github.com/golockers/locker/cas/mysql"
	"github.com/golockers/locker/cas/sqlstore"
	"github.com/golockers/locker/conformance"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/campaign"
	"github.com/golockers/locker/internal/lab"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func dsn(addr string) string { return "locker:" + lab.PostgresPassword + "@tcp(" + addr + ")/locker" }

func urlOf(addr string) string {
	return "mysql://locker:" + lab.PostgresPassword + "@" + addr + "/locker"
}

func open(t testing.TB, dsn string) *sql.DB {
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
	check := func(ct conformance.T, err error) {
		if err != nil {
			ct.Errorf("%v", err)
			ct.FailNow()
		}
	}
	connect := func(ct conformance.T, addr string) driver.Backend {
		u, err := driver.ParseURL(urlOf(addr))
		check(ct, err)
		b, err := mysql.Open(context.Background(), u, driver.Settings{})
		check(ct, err)
		return b
	}
	conformance.Run(t, conformance.Harness{
		TTL: 600 * time.Millisecond,
		New: func(ct conformance.T) driver.Backend { return connect(ct, s.Addr()) },
		Pair: func(ct conformance.T) (a, b driver.Backend) { // of an application without autocommit
			db, err := sql.Open("mysql", dsn(s.Addr())+"?autocommit=0")
			check(ct, err)
			ct.Cleanup(func() { _ = db.Close() })
			store, err := sqlstore.New(context.Background(), db, sqlstore.MySQL(), nil)
			check(ct, err)
			a, err = cas.New(store, nil)
			check(ct, err)
			b, err = cas.New(store, nil)
			check(ct, err)
			return a, b
		},
		Cut: func(ct conformance.T) (driver.Backend, conformance.Fault) {
			addr, fault := conformance.Proxy(ct, s.Addr())
			return connect(ct, addr), fault
		},
		Delete: func(ct conformance.T, name string) {
			db, err := sql.Open("mysql", dsn(s.Addr())) // a pool that stays would look like a client's
			check(ct, err)
			defer func() { _ = db.Close() }()
			_, err = db.Exec("DELETE FROM locker_records WHERE name = ?", []byte(name))
			check(ct, err)
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
	admin, kill := open(t, dsn(s.Addr())), make(chan struct{})
	killed := 0
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-kill:
				return
			case <-time.After(500 * time.Millisecond):
			}
			var id int64
			if admin.QueryRow("SELECT id FROM information_schema.PROCESSLIST WHERE user = 'locker' AND id <> CONNECTION_ID() "+
				"ORDER BY RAND() LIMIT 1").Scan(&id) == nil {
				_, _ = admin.Exec("KILL ?", id)
				killed++
			}
		}
	}()
	campaign.Run(t, mysql.Openers, []string{s.Addr()}, func(addrs []string) string { return urlOf(addrs[0]) })
	close(kill)
	<-done
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
	admin := open(t, dsn(s.Addr()))
	for _, q := range []string{
		"CREATE USER reader@'%' IDENTIFIED BY 'sesame'", "GRANT SELECT ON locker.* TO reader@'%'",
		"CREATE USER app@'%' IDENTIFIED BY 'sesame'", sqlstore.MySQL().Schema("locker.made"),
		"GRANT SELECT, INSERT, UPDATE ON locker.made TO app@'%'",
		"CREATE USER secure@'%' IDENTIFIED BY 'sesame' REQUIRE X509", "GRANT ALL ON locker.* TO secure@'%'",
	} {
		_, err := admin.Exec(q)
		require.NoError(t, err)
	}
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
		"mysql://app:sesame" + at:                                           {driver.ErrRefused, "create the table"},
		"mysql://app:sesame" + at + "?table=made2&create=off":               {driver.ErrRefused, "made2"},
		"mysql://app:wrong" + at:                                            {driver.ErrRefused, "Access denied"},
		"mysql://secure:sesame" + at:                                        {driver.ErrRefused, "Access denied"},
		"mysql://locker:" + lab.PostgresPassword + "@" + s.Addr() + "/none": {driver.ErrRefused, "none"},
		"mysqls://app:sesame" + at + "?table=made":                          {driver.ErrUnavailable, "certificate"},
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
	c, err := locker.Open(t.Context(), "mysql://reader:sesame"+at, nil, mysql.Openers)
	require.NoError(t, err)
	_, err = c.Lock(t.Context(), "a")
	require.ErrorIs(t, err, driver.ErrRefused, "a right to write")
	require.NoError(t, c.Close())
}
