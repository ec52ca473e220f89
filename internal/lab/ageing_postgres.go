package lab

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
)

func standPostgres(t TB) *standing {
	t.Helper()
	s, _ := onePostgres(t, "sslmode=disable")
	return s
}

func onePostgres(t TB, params string, opts ...PostgresOption) (*standing, *Postgres) {
	t.Helper()
	p := StartPostgres(t, opts...)
	at := func(hosts string) string { return p.URL(hosts, params) }
	return stand(t, 3*time.Second, at, p.Addr()), p
}

// postgresPassword leaves connections as they are: a password is asked for on new ones alone. First it runs
// out, then there is a new one.
func postgresPassword(t TB) *Aged {
	s, p := onePostgres(t, "sslmode=disable")
	p.Exec(t, "CREATE ROLE job LOGIN PASSWORD 'old'")
	p.Exec(t, "GRANT CREATE ON SCHEMA public TO job")
	at := func(addr, password string) string {
		return fmt.Sprintf("postgres://job:%s@%s/postgres?sslmode=disable", password, addr)
	}
	refused := func(password string) error {
		conn, err := pgx.Connect(context.Background(), at(p.Addr(), password))
		if err == nil {
			_ = conn.Close(context.Background())
		}
		return err
	}
	s.aged.URL = at(s.proxies[0].Addr(), "old")
	return s.then(func(t TB) string {
		p.Exec(t, "ALTER ROLE job VALID UNTIL '2000-01-01'")
		if err := refused("old"); err != nil {
			return "the password has run out: " + err.Error()
		}
		return ""
	}, func(t TB) string {
		p.Exec(t, "ALTER ROLE job PASSWORD 'new' VALID UNTIL 'infinity'")
		s.aged.URL = at(s.proxies[0].Addr(), "new")
		if err := refused("new"); err != nil {
			t.Fatal(err)
		}
		if err := refused("old"); err != nil {
			return "the old password is refused: " + err.Error()
		}
		return ""
	})
}

func postgresCertificate(t TB) *Aged {
	certs := NewCerts(t)
	ca := "sslmode=verify-full&sslrootcert=" + url.QueryEscape(certs.CAFile)
	s, p := onePostgres(t, ca, WithPostgresTLS(certs))
	return s.then(s.newCertificate(func(t TB) {
		err := certs.Renew()
		if err == nil {
			err = p.install(certs)
		}
		if err != nil {
			t.Fatal(err)
		}
		p.Exec(t, "SELECT pg_reload_conf()")
	}, func() (*tls.Conn, error) {
		conn, err := pgx.Connect(context.Background(), p.URL(p.Addr(), "sslmode=require"))
		if err != nil {
			return nil, err
		}
		return conn.PgConn().Conn().(*tls.Conn), nil
	}))
}

// postgresIdle has a limit that is shorter than the time between two renewals.
func postgresIdle(t TB) *Aged {
	s, p := onePostgres(t, "sslmode=disable")
	p.Set(t, "idle_session_timeout", "500ms")
	step := func(t TB) string {
		conn, err := pgx.Connect(context.Background(), p.URL(p.Addr(), "sslmode=disable"))
		if err != nil {
			t.Fatal(err)
		}
		return endsByItself("PostgreSQL", conn.PgConn().Conn())
	}
	return s.then(thrice(step)...)
}

// postgresFailOvers has a standby that misses nothing take over, and then one of that.
func postgresFailOvers(t TB) *Aged {
	s, primary := onePostgres(t, "sslmode=disable&failover_safe=on")
	s.aged.TTL = 6 * time.Second
	follow := func(t TB) *Postgres {
		standby := StartPostgres(t, StandbyOf(primary))
		primary.Set(t, "synchronous_standby_names", "standby")
		until(t, func() int {
			if primary.Query(t, "SELECT sync_state FROM pg_stat_replication") == "sync" {
				return 1
			}
			return 0
		})
		return standby
	}
	standby := follow(t)
	next := func(t TB) string {
		old := primary
		primary.Kill()
		standby.Promote(t)
		primary = standby
		s.proxies[0].Retarget(primary.Addr())
		// What it has of the one before; otherwise no commit comes to an end.
		primary.Set(t, "synchronous_standby_names", "")
		standby = follow(t)
		_ = os.RemoveAll(old.Dir())
		return fmt.Sprintf("%s is gone, %s takes writes: pg_is_in_recovery is %s",
			old.Addr(), primary.Addr(), primary.Query(t, "SELECT pg_is_in_recovery()"))
	}
	return s.then(next, next)
}

// postgresUpkeep writes the table anew, which shuts everybody out for a moment.
func postgresUpkeep(t TB) *Aged {
	s, p := onePostgres(t, "sslmode=disable")
	const file = "SELECT pg_relation_filepath('locker_locks')"
	step := func(t TB) string {
		before := p.Query(t, file)
		for _, statement := range []string{
			"VACUUM (FULL, FREEZE, ANALYZE) locker_locks", "REINDEX TABLE locker_locks",
			"CHECKPOINT", "SELECT pg_switch_wal()",
		} {
			p.Exec(t, statement)
		}
		if now := p.Query(t, file); now != before {
			return fmt.Sprintf("the table is in %s instead of %s", filepath.Base(now), filepath.Base(before))
		}
		return ""
	}
	return s.then(thrice(step)...)
}
