//go:build unix

package sqltest_test

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/fencing/sqlguard"
	"github.com/golockers/locker/internal/testserver"
)

func mysqlDSN(addr, password string) string {
	return fmt.Sprintf("locker:%s@tcp(%s)/locker", password, addr)
}

// startMariaDB starts a MariaDB server with a few more settings.
func startMariaDB(t *testing.T, settings ...string) *store {
	t.Helper()
	install, mariadbd := need(t, "mariadb-install-db"), need(t, "mariadbd")
	dir := fromTemplate(t, "mariadb", func(dir string) {
		run(t, dir, install, "--no-defaults", "--datadir="+filepath.Join(dir, "data"), "--skip-test-db",
			"--auth-root-authentication-method=normal", "--innodb-log-file-size=8M")
		require.NoError(t, os.WriteFile(filepath.Join(dir, "first.sql"), []byte(fmt.Sprintf(
			"CREATE DATABASE locker CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci;\n"+
				"CREATE USER locker@'%%' IDENTIFIED BY '%s';\nGRANT ALL ON *.* TO locker@'%%';\n", password)), 0o644))
	})
	data := filepath.Join(dir, "data")
	child, port := serve(t, func(port int) *testserver.Child {
		return startProcess(t, data, append([]string{mariadbd, "--no-defaults", "--datadir=" + data, "--bind-address=127.0.0.1",
			"--port=" + strconv.Itoa(port), "--socket=" + filepath.Join(dir, "s"), "--pid-file=" + filepath.Join(dir, "pid"),
			"--skip-name-resolve", "--init-file=" + filepath.Join(dir, "first.sql"), "--innodb-flush-log-at-trx-commit=0",
			"--innodb-buffer-pool-size=32M", "--innodb-log-file-size=8M"}, settings...)...)
	}, func(port int) error { return ping("mysql", mysqlDSN(address(port), password)) })
	return &store{
		name:    "MariaDB",
		dialect: sqlguard.MySQL,
		driver:  "mysql",
		server:  child.Process,
		addr:    address(port),
		dsn:     mysqlDSN,
		levels:  []sql.IsolationLevel{sql.LevelDefault, sql.LevelReadUncommitted, sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable},
		again: func(err error) bool {
			var e *mysql.MySQLError
			return errors.As(err, &e) && slices.Contains([]uint16{1213, 1205, 1020}, e.Number)
		},
		// Not INNODB_TRX, which stands still while it is asked often.
		blocked: `SELECT variable_value FROM information_schema.GLOBAL_STATUS WHERE variable_name = 'INNODB_ROW_LOCK_CURRENT_WAITS'`,
		number:  func(int) string { return "?" },
		strict:  func(dsn string) string { return dsn + "?tx_isolation=%27SERIALIZABLE%27" },
	}
}

func TestMariaDB(t *testing.T) { suite(t, startMariaDB(t)) }

// Newer releases fail a transaction that locks what has changed since it first
// read; older ones go on.
func TestMariaDBSnapshotIsolation(t *testing.T) {
	s := startMariaDB(t, "--innodb-snapshot-isolation=ON")
	suite(t, s)
}
