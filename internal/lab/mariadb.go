package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// MariaDB is a MariaDB server on 127.0.0.1 that belongs to a test. It has a database locker, and the user
// locker with [PostgresPassword]. It runs as an account that is not root.
type MariaDB struct {
	*Process
	port int
}

// StartMariaDB starts a MariaDB with these flags, and returns once answers, with its address, returns nil:
// this package has no driver for it. It ends with the test. It does not sync its disk. Without MariaDB the
// test is skipped; see [Need].
func StartMariaDB(t TB, answers func(addr string) error, flags ...string) *MariaDB {
	t.Helper()
	install, binary := Need(t, "mariadb-install-db"), Need(t, "mariadbd")
	dir, err := os.MkdirTemp("", "locker-mariadb-") // not t.TempDir, which is closed to other accounts
	if err != nil {
		t.Fatalf("lab: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	data, first := filepath.Join(dir, "data"), filepath.Join(dir, "first.sql")
	if err = giveAway(dir); err == nil {
		err = runAlone(dir, install, "--no-defaults", "--datadir="+data, "--skip-test-db",
			"--auth-root-authentication-method=normal", "--innodb-log-file-size=8M")
	}
	if err == nil {
		err = os.WriteFile(first, []byte(fmt.Sprintf(
			"CREATE DATABASE IF NOT EXISTS locker CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci;\n"+
				"CREATE USER IF NOT EXISTS locker@'%%' IDENTIFIED BY '%s';\nGRANT ALL ON *.* TO locker@'%%';\n",
			PostgresPassword)), 0o644)
	}
	if err != nil {
		t.Fatalf("lab: prepare a MariaDB: %v", err)
	}
	s := &MariaDB{}
	s.Process = newProcess(t, "mariadb", t.TempDir(), func() (*exec.Cmd, error) {
		cmd := exec.CommandContext(context.Background(), binary, append([]string{
			"--no-defaults", "--datadir=" + data, "--bind-address=127.0.0.1", "--port=" + strconv.Itoa(s.port),
			"--socket=" + filepath.Join(dir, "s"), "--pid-file=" + filepath.Join(dir, "pid"),
			"--skip-name-resolve", "--init-file=" + first, "--innodb-flush-log-at-trx-commit=0",
			"--innodb-buffer-pool-size=32M", "--innodb-log-file-size=8M"}, flags...)...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "LC_ALL=C", "HOME="+dir, "TMPDIR="+dir)
		return cmd, asUnprivileged(cmd)
	})
	s.answers = func() error { return answers(s.Addr()) }
	onFreePorts(t, func() (err error) {
		if s.port, err = freePort(t); err != nil {
			return err
		}
		return serve(s.Process)
	})
	return s
}

// Addr returns the host:port of the server.
func (s *MariaDB) Addr() string { return loopback(s.port) }
