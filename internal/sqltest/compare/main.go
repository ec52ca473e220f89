// Command compare is `locker compare` with locks in MySQL, MariaDB and SQLite:
//
//	go run ./compare mysql://user:password@host/database sqlite:///tmp/locks.db
package main

import (
	"context"
	"database/sql"

	_ "modernc.org/sqlite"

	"github.com/golockers/locker/cas"
	"github.com/golockers/locker/cas/mysql"
	"github.com/golockers/locker/cas/sqlstore"
	"github.com/golockers/locker/compare"
	"github.com/golockers/locker/driver"
)

func main() {
	compare.Main(driver.Openers{"mysql": mysql.Open, "mysqls": mysql.Open, "sqlite": openSQLite})
}

// openSQLite opens sqlite:///FILE. The pool ends with the process.
func openSQLite(ctx context.Context, u *driver.URL, _ driver.Settings) (driver.Backend, error) {
	if err := u.Check(); err != nil {
		return nil, err
	}
	const pragmas = "?_pragma=journal_mode(wal)&_pragma=synchronous(normal)&_pragma=busy_timeout(200)" // as sqlstore's documentation says
	db, err := sql.Open("sqlite", "file:"+u.Path+pragmas)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(4)
	db.SetMaxIdleConns(4)
	store, err := sqlstore.New(ctx, db, sqlstore.SQLite(), nil)
	if err != nil {
		return nil, err
	}
	return cas.New(store, nil)
}
