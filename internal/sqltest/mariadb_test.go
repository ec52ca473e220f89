//go:build unix

package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/sqlguard"
	"github.com/golockers/locker/internal/lab"
)

func mysqlDSN(addr, password string) string {
	return fmt.Sprintf("locker:%s@tcp(%s)/locker", password, addr)
}

// startMariaDB starts a MariaDB server with a few more settings.
func startMariaDB(t *testing.T, settings ...string) *store {
	t.Helper()
	server := lab.StartMariaDB(t, func(addr string) error { return ping("mysql", mysqlDSN(addr, password)) },
		settings...)
	return &store{
		name:    "MariaDB",
		dialect: sqlguard.MySQL,
		driver:  "mysql",
		server:  server,
		addr:    server.Addr(),
		dsn:     mysqlDSN,
		levels: []sql.IsolationLevel{sql.LevelDefault, sql.LevelReadUncommitted, sql.LevelReadCommitted,
			sql.LevelRepeatableRead, sql.LevelSerializable},
		again: func(err error) bool {
			var e *mysql.MySQLError
			return errors.As(err, &e) && slices.Contains([]uint16{1213, 1205, 1020}, e.Number)
		},
		// Not INNODB_TRX, which stands still while it is asked often.
		blocked: `SELECT variable_value FROM information_schema.GLOBAL_STATUS
			WHERE variable_name = 'INNODB_ROW_LOCK_CURRENT_WAITS'`,
		number: func(int) string { return "?" },
		commit: "COMMIT",
		strict: "?tx_isolation=%27SERIALIZABLE%27",
		hasty:  "?tx_isolation=%27SERIALIZABLE%27&readTimeout=1s",
	}
}

func TestMariaDB(t *testing.T) {
	t.Parallel()
	suite(t, startMariaDB(t))
}

// Newer releases fail a transaction that locks what has changed since it first
// read; older ones go on.
func TestMariaDBSnapshotIsolation(t *testing.T) {
	t.Parallel()
	s := startMariaDB(t, "--innodb-snapshot-isolation=ON")
	suite(t, s)
}

// A connection with autocommit=0 commits nothing by itself: what a Sweep did would
// be undone when it closes, and keep others waiting until then.
func TestMariaDBWithoutAutocommit(t *testing.T) {
	t.Parallel()
	s := startMariaDB(t)
	direct := s.open(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	marks, table := s.guard(t, direct)
	db := s.openDSN(t, s.dsn(s.addr, password)+"?autocommit=0")
	db.SetMaxOpenConns(1)
	for token := fencing.Token(7); token < 9; token++ { // the second time with a connection that has looked before
		require.NoError(t, s.check(t, marks, direct, "r", token))
		s.age(t, direct, table, 3*time.Hour, "")
		n, err := marks.Sweep(ctx, db, time.Hour)
		require.NoError(t, err)
		assert.EqualValues(t, 1, n)
		assert.Zero(t, mark(t, marks, direct, "r"), "others see it, and do not wait for it")
	}
	require.NoError(t, s.check(t, marks, db, "r", 9))
	require.NoError(t, marks.Raise(ctx, db, "r", 10))
	require.NoError(t, db.Close())
	assert.EqualValues(t, 10, mark(t, marks, direct, "r"), "it was not undone")
}
