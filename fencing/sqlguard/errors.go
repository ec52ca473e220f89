package sqlguard

import (
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"reflect"
	"slices"

	"github.com/golockers/locker/internal/sqlmark"
)

// class classifies err. With a few exceptions, an answer of the database does not mean that it cannot
// be reached.
func (d Dialect) class(err error) sqlmark.Class {
	var n int64
	var conflicts, down []int64
	switch d {
	case Postgres:
		if class := sqlmark.OfState(err); class != sqlmark.Foreign {
			return class
		}
	case MySQL:
		n = number(err, "Number")
		// A lock's timeout, a deadlock, a row changed since the snapshot (MariaDB).
		conflicts = []int64{1205, 1213, 1020}
		// Too many connections (in total, of the user, in an hour), host blocked, shutting down,
		// connection killed, or idle for too long.
		down = []int64{1040, 1203, 1226, 1129, 1053, 1927, 4031}
	case SQLite:
		n = sqliteCode(err)
		conflicts, down = []int64{5, 6}, []int64{10, 13, 14} // BUSY, LOCKED; IOERR, FULL, CANTOPEN
	}
	var network net.Error
	switch {
	case slices.Contains(conflicts, n):
		return sqlmark.Conflict
	case slices.Contains(down, n):
		return sqlmark.Down
	case n != 0:
		return sqlmark.Answered
	case errors.As(err, &network), errors.Is(err, net.ErrClosed), errors.Is(err, driver.ErrBadConn),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), lostByDriver(err):
		return sqlmark.Lost
	}
	return sqlmark.Foreign
}

// lostByDriver knows the drivers' own errors for a connection that was lost during a
// request: two of go-sql-driver/mysql, and that of pgx. They are values of
// packages that are not imported here.
func lostByDriver(err error) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		switch err.Error() {
		case "invalid connection", "bad connection", "conn closed":
			return true
		}
	}
	return false
}

// sqliteCode returns the primary result code of SQLite, 0 if there is none:
// modernc.org/sqlite has a method, mattn/go-sqlite3 a field.
func sqliteCode(err error) int64 {
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
