//go:build unix

package sqltest_test

import (
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"modernc.org/sqlite"

	"github.com/golockers/locker/fencing/sqlguard"
)

// openSQLite has a database in a file of its own, with a few more parameters.
func openSQLite(t *testing.T, name, parameters string) *store {
	file := filepath.Join(t.TempDir(), "test.db")
	return &store{
		name:    name,
		dialect: sqlguard.SQLite,
		driver:  "sqlite",
		dsn:     func(string, string) string { return fmt.Sprintf("file:%s?%s", file, parameters) },
		levels:  []sql.IsolationLevel{sql.LevelDefault, sql.LevelSerializable},
		again: func(err error) bool {
			var e *sqlite.Error
			return errors.As(err, &e) && (e.Code()&0xff == 5 || e.Code()&0xff == 6) // BUSY, LOCKED
		},
		number: func(int) string { return "?" },
		locks:  !strings.Contains(parameters, "wal"),
	}
}

func TestSQLite(t *testing.T) {
	t.Parallel()
	suite(t, openSQLite(t, "SQLite", "_pragma=busy_timeout(10000)&_pragma=synchronous(off)"))
}

func TestSQLiteWAL(t *testing.T) {
	t.Parallel()
	suite(t, openSQLite(t, "SQLite",
		"_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)&_pragma=synchronous(normal)"))
}

func TestSQLiteImmediate(t *testing.T) {
	t.Parallel()
	suite(t, openSQLite(t, "SQLite",
		"_pragma=busy_timeout(10000)&_pragma=synchronous(off)&_txlock=immediate"))
}

// Without a time-out everything that meets another fails at once.
func TestSQLiteWithoutPatience(t *testing.T) {
	t.Parallel()
	suite(t, openSQLite(t, "SQLite", "_pragma=journal_mode(wal)&_pragma=synchronous(normal)"))
}
