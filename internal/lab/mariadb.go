package lab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// StartMariaDB starts a MariaDB with these flags, and returns once answers, with its address, returns nil:
// this package has no driver for it. It has a database locker, and the user locker with [PostgresPassword].
// It runs as an account that is not root, and ends with the test. It does not sync its disk. Without MariaDB
// the test is skipped; see [Need].
func StartMariaDB(t TB, answers func(addr string) error, flags ...string) (p *Process) {
	t.Helper()
	install, binary := Need(t, "mariadb-install-db"), Need(t, "mariadbd")
	launch(t, func() []*Process {
		p = newProcess(t, "mariadb", config{}, 1)
		at := func(name string) string { return filepath.Join(p.dir, name) }
		err := p.runAlone(install, "--no-defaults", "--datadir="+at("data"), "--skip-test-db",
			"--auth-root-authentication-method=normal", "--innodb-log-file-size=8M")
		if err == nil {
			err = os.WriteFile(at("first.sql"), fmt.Appendf(nil,
				"CREATE DATABASE IF NOT EXISTS locker CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci;\n"+
					"CREATE USER IF NOT EXISTS locker@'%%' IDENTIFIED BY '%s';\nGRANT ALL ON *.* TO locker@'%%' WITH GRANT OPTION;\n",
				PostgresPassword), 0o644)
		}
		if err != nil {
			t.Fatalf("lab: prepare a MariaDB: %v", err)
		}
		p.command = func() (*exec.Cmd, error) {
			return p.alone(binary, append([]string{
				"--no-defaults", "--datadir=" + at("data"), "--bind-address=127.0.0.1", "--port=" + strconv.Itoa(p.Port()),
				"--socket=" + at("s"), "--pid-file=" + at("pid"), "--skip-name-resolve", "--init-file=" + at("first.sql"),
				"--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=32M", "--innodb-log-file-size=8M"},
				flags...)...)
		}
		p.answers = func() error { return answers(p.Addr()) }
		return []*Process{p}
	})
	return p
}
