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

	"github.com/jackc/pgx/v5"
)

// PostgresUser and PostgresPassword log in to every PostgreSQL of this package, as a superuser.
const (
	PostgresUser     = "locker"
	PostgresPassword = "correct-horse"
)

// Postgres is a PostgreSQL server on 127.0.0.1 that belongs to a test. It runs as an account that is not
// root. Its methods may be called from any goroutine, except those that take a TB.
type Postgres struct {
	*Process
	conf   postgresConfig
	binary string
	clock  *clock // nil: the machine's
	dir    string // of everything; the data is in dir/data
	port   int
}

// PostgresOption changes how a PostgreSQL is started.
type PostgresOption func(*postgresConfig)

type postgresConfig struct {
	settings []string // name=value, after ours, so that they win
	certs    *Certs
	clock    bool
	dir      string

	primary     *Postgres
	primaryAddr string
}

// WithSetting sets a parameter of the server, as in postgresql.conf.
func WithSetting(name, value string) PostgresOption {
	return func(c *postgresConfig) { c.settings = append(c.settings, name+"="+value) }
}

// WithPostgresTLS makes the server speak TLS with whoever asks for it.
func WithPostgresTLS(certs *Certs) PostgresOption {
	return func(c *postgresConfig) { c.certs = certs }
}

// WithPostgresClock makes the server's wall clock jump on request: see [Postgres.JumpClock].
func WithPostgresClock() PostgresOption { return func(c *postgresConfig) { c.clock = true } }

// WithPostgresDir keeps the server's data in a directory of the test's, such as a small file system.
func WithPostgresDir(dir string) PostgresOption { return func(c *postgresConfig) { c.dir = dir } }

// StandbyOf makes the server a standby that follows primary by streaming replication, under the name
// standby. Commits on the primary do not wait for it, unless [Postgres.Set] there says so:
//
//	primary.Set(t, "synchronous_standby_names", "standby")
func StandbyOf(primary *Postgres) PostgresOption { return StandbyThrough(primary, primary.Addr()) }

// StandbyThrough is [StandbyOf] with another address to reach the primary at: that of a [Proxy], which
// can cut the replication.
func StandbyThrough(primary *Postgres, addr string) PostgresOption {
	return func(c *postgresConfig) { c.primary, c.primaryAddr = primary, addr }
}

// StartPostgres starts a PostgreSQL, changed by opts, and returns once it answers. It ends with the test.
// It does not sync its disk: what it has written survives the death of the server, as it would with a
// disk that is synced, and not that of the machine. Without PostgreSQL the test is skipped; see [Need].
func StartPostgres(t TB, opts ...PostgresOption) *Postgres {
	t.Helper()
	s := &Postgres{binary: Need(t, "postgres")}
	for _, opt := range opts {
		opt(&s.conf)
	}
	fail := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("lab: prepare a PostgreSQL: %v", err)
		}
	}
	s.dir = s.conf.dir
	if s.dir == "" {
		// Not t.TempDir, which is closed to other accounts.
		dir, err := os.MkdirTemp("", "locker-pg-")
		fail(err)
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		s.dir = dir
	}
	fail(giveAway(s.dir))
	if s.conf.primary == nil {
		made, err := newData(Need(t, "initdb"))
		fail(err)
		fail(exec.CommandContext(context.Background(), "cp", "-a", made, s.data()).Run())
	} else {
		host, port, err := net.SplitHostPort(s.conf.primaryAddr)
		fail(err)
		fail(runAlone(s.dir, Need(t, "pg_basebackup"), "-D", s.data(), "-R", "--checkpoint=fast", "--no-sync",
			"-d", fmt.Sprintf("host=%s port=%s user=%s password=%s application_name=standby", host, port,
				PostgresUser, PostgresPassword)))
	}
	if c := s.conf.certs; c != nil {
		fail(s.install(c))
	}
	if s.conf.clock {
		s.clock = newClock(t, s.dir)
	}
	s.Process = newProcess(t, "postgres", t.TempDir(), s.newCommand)
	t.Cleanup(func() {
		if s.Running() {
			s.Resume()
			s.StopFast() // one that is killed leaves shared memory behind
		}
	})
	s.answers = s.isUp
	onFreePorts(t, func() (err error) {
		if s.port, err = freePort(t); err != nil {
			return err
		}
		return serve(s.Process)
	})
	return s
}

// newData returns the data of a new server, for servers to start from a copy. It is made once on a machine, and stays
// in the directory for temporary files: initdb takes seven times as long as a copy.
func newData(initdb string) (made string, err error) {
	file, err := os.Stat(initdb)
	if err != nil {
		return "", err
	}
	of := sha1.Sum([]byte(initdb + file.ModTime().String()))
	made = filepath.Join(os.TempDir(), fmt.Sprintf("locker-pg-new-%d-%x", os.Getuid(), of[:6]))
	if _, err := os.Stat(made); err == nil {
		return made, nil
	}
	dir, err := os.MkdirTemp("", "locker-pg-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	data, password := filepath.Join(dir, "data"), filepath.Join(dir, "password")
	if err := errors.Join(os.WriteFile(password, []byte(PostgresPassword), 0o600), giveAway(password), giveAway(dir),
		runAlone(dir, initdb, "-D", data, "-U", PostgresUser, "--auth=scram-sha-256", "--pwfile="+password, "-E", "UTF8",
			"--locale=C", "--no-sync")); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(data, "pg_hba.conf"),
		[]byte("host all all all scram-sha-256\nhost replication all all scram-sha-256\n"), 0o600); err != nil {
		return "", err
	}
	if err := os.Rename(data, made); err != nil {
		_, err = os.Stat(made) // another process was first
		return made, err
	}
	return made, nil
}

// install puts a certificate where the server looks for it.
func (s *Postgres) install(c *Certs) error {
	for from, to := range map[string]string{c.CertFile: "server.crt", c.KeyFile: "server.key"} {
		text, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(s.data(), to), text, 0o600)
		}
		if err == nil {
			err = giveAway(filepath.Join(s.data(), to))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Postgres) data() string { return filepath.Join(s.dir, "data") }

// runAlone runs a command to its end as the account of servers.
func runAlone(dir string, command ...string) error {
	cmd := exec.CommandContext(context.Background(), command[0], command[1:]...)
	// Two MariaDBs that are prepared in one TMPDIR remove each other's files there.
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "LC_ALL=C", "HOME="+dir, "TMPDIR="+dir)
	if err := asUnprivileged(cmd); err != nil {
		return err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w:\n%s", filepath.Base(command[0]), err, out)
	}
	return nil
}

func (s *Postgres) newCommand() (*exec.Cmd, error) {
	args := []string{"-D", s.data()}
	settings := []string{
		"listen_addresses=127.0.0.1", "port=" + strconv.Itoa(s.port), "unix_socket_directories=", "fsync=off",
		"shared_buffers=16MB", "max_connections=100", "deadlock_timeout=100ms",
		"dynamic_shared_memory_type=mmap",
		"password_encryption=scram-sha-256", // the default since 14
	}
	if s.conf.certs != nil {
		settings = append(settings, "ssl=on")
	}
	for _, setting := range slices.Concat(settings, s.conf.settings) {
		args = append(args, "-c", setting)
	}
	cmd := exec.CommandContext(context.Background(), s.binary, args...)
	cmd.Dir = s.dir
	cmd.Env = append(append(os.Environ(), "LC_ALL=C", "HOME="+s.dir, readAlways), s.clock.environment()...)
	return cmd, asUnprivileged(cmd)
}

// isUp returns nil once this very server answers.
func (s *Postgres) isUp() error {
	dir, err := s.query(doTimeout, "SHOW data_directory")
	if err == nil && dir != s.data() {
		err = fmt.Errorf("lab: the server of %s answers on port %d", dir, s.port)
	}
	return err
}

// StopFast shuts the server down in good order: connections are closed, and what is under way is rolled
// back (SIGINT).
func (s *Postgres) StopFast() {
	s.t.Helper()
	s.end("SIGINT", interrupt, readyTimeout)
}

// Pause stops the server where it stands, with all processes that serve its clients.
func (s *Postgres) Pause() {
	s.t.Helper()
	s.Process.Pause()
	for _, child := range s.children() {
		_ = suspend(child)
	}
}

// Resume lets a paused server go on.
func (s *Postgres) Resume() {
	s.t.Helper()
	for _, child := range s.children() {
		_ = resume(child)
	}
	s.Process.Resume()
}

// Waits is [Process.Waits] of all processes that serve its clients, too.
func (s *Postgres) Waits() map[int]time.Duration {
	waits := s.Process.Waits()
	for _, child := range s.children() {
		addWaits(child.Pid, waits)
	}
	return waits
}

// children are the processes of the server but the first (Linux).
func (s *Postgres) children() (all []*os.Process) {
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
				all = append(all, p)
			}
		}
	}
	return all
}

// Promote makes a standby a primary, and returns when it takes writes.
func (s *Postgres) Promote(t TB) {
	t.Helper()
	if ok, err := s.query(readyTimeout, "SELECT pg_promote()"); err != nil || ok != "true" {
		t.Fatalf("lab: pg_promote returned %s, %v", ok, err)
	}
}

// Addr returns the host:port of the server.
func (s *Postgres) Addr() string { return loopback(s.port) }

// Port returns the port of the server. It stays the same over restarts.
func (s *Postgres) Port() int { return s.port }

// Dir returns the directory that the server's data is in.
func (s *Postgres) Dir() string { return s.dir }

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
	if err := s.ready(func() error {
		now, err := s.query(doTimeout, "SHOW "+name)
		if err == nil && now != value {
			err = fmt.Errorf("lab: %s is %s", name, now)
		}
		return err
	}); err != nil {
		t.Fatalf("%v", err)
	}
}

// Exec executes a statement as the superuser, on a connection of its own that no [Proxy] is in the way of.
func (s *Postgres) Exec(t TB, statement string, args ...any) {
	t.Helper()
	if _, err := s.query(doTimeout, statement, args...); err != nil {
		t.Fatalf("%v", err)
	}
}

// Query returns the first column of the first row that a query returns, as text; "" if there is none.
func (s *Postgres) Query(t TB, query string, args ...any) string {
	t.Helper()
	text, err := s.query(doTimeout, query, args...)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return text
}

// Try is Query for what may fail.
func (s *Postgres) Try(query string, args ...any) (string, error) {
	return s.query(doTimeout, query, args...)
}

func (s *Postgres) query(timeout time.Duration, query string, args ...any) (text string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL(s.Addr(), "sslmode=disable"))
	if err != nil {
		return "", fmt.Errorf("lab: connect to %s: %w", s.name, err)
	}
	defer func() { _ = conn.Close(ctx) }()
	rows, err := conn.Query(ctx, query, args...)
	if err != nil {
		return "", fmt.Errorf("lab: %q on %s: %w", query, s.name, err)
	}
	defer rows.Close()
	if rows.Next() {
		if values, err := rows.Values(); err == nil && len(values) > 0 && values[0] != nil {
			text = fmt.Sprint(values[0])
		}
	}
	rows.Close()
	if err := rows.Err(); err != nil {
		return "", fmt.Errorf("lab: %q on %s: %w", query, s.name, err)
	}
	return text, nil
}
