package sqlstate

import (
	"errors"
	"reflect"
)

// What the error numbers of MySQL, MariaDB and SQLite mean, as the codes of PostgreSQL above: for
// package cas/sqlstore and for the guards alike.
var (
	// The statement met another and was undone: a lock's timeout, a deadlock, a row changed since the
	// snapshot (MariaDB).
	MySQLMet = []int64{1205, 1213, 1020}
	// Too many connections (in total, of the user, in an hour), host blocked, shutting down,
	// connection killed, or idle for too long.
	MySQLDown = []int64{1040, 1203, 1226, 1129, 1053, 1927, 4031}

	SQLiteMet  = []int64{5, 6}       // BUSY, LOCKED
	SQLiteDown = []int64{10, 13, 14} // IOERR, FULL, CANTOPEN
)

// MySQL returns the number of an error of go-sql-driver/mysql, 0 if it is none of the server's.
func MySQL(err error) int64 { return number(err, "Number") }

// SQLite returns the primary result code of SQLite, 0 if there is none:
// modernc.org/sqlite has a method, mattn/go-sqlite3 a field.
func SQLite(err error) int64 {
	var e interface{ Code() int }
	if errors.As(err, &e) {
		return int64(e.Code()) & 0xff
	}
	return number(err, "Code") & 0xff
}

// number returns a numeric field of a driver's error, 0 if there is none.
// go-sql-driver/mysql has its error numbers in a field without a method, and its types
// cannot be named here: this package imports no driver.
func number(err error, field string) int64 {
	for ; err != nil; err = errors.Unwrap(err) {
		v := reflect.Indirect(reflect.ValueOf(err))
		if v.Kind() != reflect.Struct {
			continue
		}
		switch f := v.FieldByName(field); {
		case !f.IsValid():
		case f.CanInt():
			return f.Int()
		case f.CanUint():
			return int64(f.Uint())
		}
	}
	return 0
}
