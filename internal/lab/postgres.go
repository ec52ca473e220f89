package lab

import (
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// PostgresUser and PostgresPassword log in to every PostgreSQL of this package, as a superuser.
const (
	PostgresUser     = "locker"
	PostgresPassword = "correct-horse"
)

// Postgres is a PostgreSQL server on 127.0.0.1 that belongs to a test. It runs as an account that is not
// root. Its methods may be called from any goroutine, except those that take a TB.
type Postgres struct{ *Process }

// adminRole is a superuser that needs no password, so that tests can look at a server whatever they have done to the
// others. It protects nothing.
const adminRole = "lab"

// StartPostgres starts a PostgreSQL, changed by opts, and returns once it answers. It ends with the test.
// It does not sync its disk: what it has written survives the death of the server, as it would with a
// disk that is synced, and not that of the machine. Without PostgreSQL the test is skipped; see [Need].
func StartPostgres(t TB, opts ...Option) *Postgres {
	t.Helper()
	binary, s := Need(t, "postgres"), &Postgres{}
	launch(t, func() []*Process {
		c := of(opts)
		if c.dir == "" {
			c.dir = newDir(t, memory())
		}
		s.Process = newProcess(t, "postgres", c, 1)
		s.command, s.answers, s.tells = func() (*exec.Cmd, error) { return s.newCommand(binary) }, s.isUp, s.now
		s.quit, s.every = interrupt, s.children // one that is killed leaves shared memory behind
		if err := s.prepare(t); err != nil {
			t.Fatalf("lab: prepare a PostgreSQL: %v", err)
		}
		return []*Process{s.Process}
	})
	return s
}

// prepare makes the data: a copy of what a new server has, or of what the primary has.
func (s *Postgres) prepare(t TB) error {
	t.Helper()
	if host, port, err := net.SplitHostPort(s.primary); err == nil {
		return s.runAlone(Need(t, "pg_basebackup"), "-D", s.data(), "-R", "--checkpoint=fast", "--no-sync",
			"-d", fmt.Sprintf("host=%s port=%s user=%s password=%s application_name=standby", host, port,
				PostgresUser, PostgresPassword))
	}
	made, err := s.newData(t, Need(t, "initdb"))
	if err == nil {
		err = exec.CommandContext(context.Background(), "cp", "-a", made, s.data()).Run()
	}
	if err == nil && s.certs != nil {
		err = s.install(s.certs)
	}
	return err
}

// newData returns the data of a new server, for servers to start from a copy. It is made once on a machine, and stays
// in the directory for temporary files: initdb takes seven times as long as a copy.
func (s *Postgres) newData(t TB, initdb string) (made string, err error) {
	t.Helper()
	file, err := os.Stat(initdb)
	if err != nil {
		return "", err
	}
	of := sha1.Sum([]byte(initdb + file.ModTime().String()))
	made = filepath.Join(os.TempDir(), fmt.Sprintf("locker-pg-%d-%x", os.Getuid(), of[:6]))
	if _, err := os.Stat(made); err == nil {
		return made, nil
	}
	dir := newDir(t, "") // from where it can be renamed
	data, password := filepath.Join(dir, "new"), filepath.Join(dir, "password")
	if err := errors.Join(giveAway(dir), os.WriteFile(password, []byte(PostgresPassword), 0o600), giveAway(password),
		s.runAlone(initdb, "-D", data, "-U", PostgresUser, "--auth=scram-sha-256", "--pwfile="+password, "-E", "UTF8",
			"--locale=C", "--no-sync", "--wal-segsize=1"), os.WriteFile(filepath.Join(data, "pg_hba.conf"),
			[]byte("host all "+adminRole+" 127.0.0.1/32 trust\nhost all all all scram-sha-256\nhost replication all all scram-sha-256\n"), 0o600),
		s.addRole(filepath.Join(filepath.Dir(initdb), "postgres"), data)); err != nil {
		return "", err
	}
	if err := os.Rename(data, made); err != nil {
		_, err = os.Stat(made) // another process was first
		return made, err
	}
	return made, nil
}

// addRole adds adminRole to the data of a server that does not run.
func (s *Postgres) addRole(binary, data string) error {
	cmd, err := s.alone(binary, "--single", "-D", data, "postgres")
	if err != nil {
		return err
	}
	cmd.Stdin = strings.NewReader("CREATE ROLE " + adminRole + " SUPERUSER LOGIN\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("postgres --single: %w:\n%s", err, out)
	}
	return nil
}

// install puts a certificate where the server looks for it.
func (s *Postgres) install(c *Certs) error {
	for from, to := range map[string]string{c.CertFile: "server.crt", c.KeyFile: "server.key"} {
		to = filepath.Join(s.data(), to)
		text, err := os.ReadFile(from)
		if err = errors.Join(err, os.WriteFile(to, text, 0o600), giveAway(to)); err != nil {
			return err
		}
	}
	return nil
}

func (s *Postgres) data() string { return filepath.Join(s.dir, "data") }

// alone is program as the account of servers that refuse to run as root.
func (p *Process) alone(binary string, args ...string) (*exec.Cmd, error) {
	cmd := p.program(binary, args...)
	return cmd, asUnprivileged(cmd)
}

// runAlone runs a command to its end as that account.
func (p *Process) runAlone(command string, args ...string) error {
	cmd, err := p.alone(command, args...)
	if err != nil {
		return err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w:\n%s", filepath.Base(command), err, out)
	}
	return nil
}

func (s *Postgres) newCommand(binary string) (*exec.Cmd, error) {
	ours := of(nil, WithConfig("listen_addresses", "127.0.0.1"), WithConfig("port", strconv.Itoa(s.Port())),
		WithConfig("unix_socket_directories", ""), WithConfig("fsync", "off"), WithConfig("shared_buffers", "16MB"),
		WithConfig("max_connections", "100"), WithConfig("deadlock_timeout", "100ms"),
		WithConfig("dynamic_shared_memory_type", "mmap"),
		WithConfig("password_encryption", "scram-sha-256")) // the default since 14
	if s.certs != nil {
		WithConfig("ssl", "on")(&ours)
	}
	return s.alone(binary, slices.Concat([]string{"-D", s.data()}, ours.assigned("--"), s.assigned("--"))...)
}

// isUp returns nil once this very server answers.
func (s *Postgres) isUp() error {
	dir, err := s.Try("SHOW data_directory")
	if err == nil && dir != s.data() {
		err = fmt.Errorf("lab: the server of %s answers on port %d", dir, s.Port())
	}
	return err
}

// now is what its clock says.
func (s *Postgres) now() (time.Time, error) {
	text, err := s.Try("SELECT extract(epoch FROM clock_timestamp())::float8")
	if err != nil {
		return time.Time{}, err
	}
	seconds, err := strconv.ParseFloat(text, 64)
	return time.Unix(0, int64(seconds*1e9)), err
}

// children calls do for the processes of the server but the first (Linux).
func (s *Postgres) children(do func(*os.Process)) {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		// The name is in parentheses; the state and the parent follow it.
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(s.Pid()) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			if p, err := os.FindProcess(pid); err == nil {
				do(p)
			}
		}
	}
}

// Promote makes a standby a primary, and returns when it takes writes.
func (s *Postgres) Promote(t TB) {
	t.Helper()
	if ok, err := s.Try("SELECT pg_promote(wait_seconds => 3600)"); err != nil || ok != "t" {
		t.Fatalf("lab: pg_promote returned %s, %v", ok, err)
	}
}

// URL returns the address of the server, or of a proxy before it, with user, password and further
// parameters, such as "sslmode=disable".
func (s *Postgres) URL(addr string, params ...string) string {
	u := url.URL{Scheme: "postgres", User: url.UserPassword(PostgresUser, PostgresPassword), Host: addr,
		Path:     "/postgres",
		RawQuery: strings.Join(params, "&")}
	return u.String()
}

// Set changes a parameter of the running server.
func (s *Postgres) Set(t TB, name, value string) {
	t.Helper()
	s.Exec(t, fmt.Sprintf("ALTER SYSTEM SET %s = '%s'", name, value))
	s.Exec(t, "SELECT pg_reload_conf()")
	await(t, func() error {
		now, err := s.Try("SHOW " + name)
		return differ(map[string]string{name: now}, map[string]string{name: value}, err)
	}, s.Process)
}

// Exec executes a statement as the superuser, on a connection of its own that no [Proxy] is in the way of.
func (s *Postgres) Exec(t TB, statement string, args ...any) {
	t.Helper()
	s.Query(t, statement, args...)
}

// Query returns the first column of the first row that a query returns, as PostgreSQL writes it (true is "t"); "" if
// there is none.
func (s *Postgres) Query(t TB, query string, args ...any) string {
	t.Helper()
	text, err := s.Try(query, args...)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return text
}

// Try is Query for what may fail. Arguments are []byte, or what prints as PostgreSQL reads it.
func (s *Postgres) Try(query string, args ...any) (text string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.Addr())
	if err == nil {
		_ = conn.SetDeadline(time.Now().Add(patience))
		text, err = queryPG(conn, adminRole, query, args...)
		_ = conn.Close()
	}
	if err != nil {
		return "", fmt.Errorf("lab: %q on %s at %s: %w", query, s.name, s.Addr(), err)
	}
	return text, nil
}

// StartPgbouncer starts a pgbouncer before a PostgreSQL, in transaction mode, and returns its address. User
// and password are those of the server. It ends with the test.
func StartPgbouncer(t TB, s *Postgres) (addr string) {
	t.Helper()
	binary := Need(t, "pgbouncer")
	var p *Process
	launch(t, func() []*Process {
		p = newProcess(t, "pgbouncer", config{}, 1)
		file := filepath.Join(p.dir, "pgbouncer.ini")
		text := fmt.Sprintf("[databases]\n* = host=127.0.0.1 port=%d user=%s password=%s\n"+
			"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\n"+
			"unix_socket_dir =\nauth_type = any\npool_mode = transaction\n", s.Port(), PostgresUser,
			PostgresPassword, p.Port())
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatalf("lab: configuration of pgbouncer: %v", err)
		}
		p.command = func() (*exec.Cmd, error) { return p.alone(binary, file) }
		p.answers = func() error {
			_, err := (&Postgres{p}).Try("SELECT 1")
			return err
		}
		return []*Process{p}
	})
	return p.Addr()
}
