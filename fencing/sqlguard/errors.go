package sqlguard

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"reflect"
	"slices"

	"github.com/golockers/locker/internal/sqlmark"
	"github.com/golockers/locker/internal/sqlstate"
)

func (d Dialect) driver() sqlmark.Driver {
	return sqlmark.Driver{
		Guard: "sqlguard", Unreachable: d.unreachable, Conflict: d.conflict, Coded: d.coded,
		Undone: func(ctx context.Context, err error) bool {
			return ctx.Err() == nil && !d.unreachable(err) && sqlstate.Of(err) != sqlstate.NotKnown
		},
	}
}

// unreachable reports whether err says that the database cannot be reached. An answer
// of the database does not say that, with a few exceptions.
func (d Dialect) unreachable(err error) bool {
	switch d {
	case Postgres:
		if state := sqlstate.Of(err); state != "" {
			return sqlstate.Unavailable(state)
		}
	case MySQL:
		if n := number(err, "Number"); n != 0 {
			// Too many connections (of all, of the user, in an hour), host
			// blocked, shutting down, connection killed, or idle for too long.
			return slices.Contains([]int64{1040, 1203, 1226, 1129, 1053, 1927, 4031}, n)
		}
	case SQLite:
		if n := sqliteCode(err); n != 0 {
			return slices.Contains([]int64{10, 13, 14}, n) // IOERR, FULL, CANTOPEN
		}
	}
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, net.ErrClosed) || errors.Is(err, driver.ErrBadConn) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || lostByDriver(err)
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

// conflict reports whether err says that the transaction conflicts with others, and may
// succeed when it is repeated.
func (d Dialect) conflict(err error) bool {
	switch d {
	case Postgres:
		return sqlstate.Met(sqlstate.Of(err))
	case MySQL: // a lock's time-out, a deadlock, a row changed since the snapshot (MariaDB)
		return slices.Contains([]int64{1205, 1213, 1020}, number(err, "Number"))
	case SQLite: // BUSY, LOCKED
		return slices.Contains([]int64{5, 6}, sqliteCode(err))
	}
	return false
}

// coded reports whether err, or one in it, has a code of the database.
func (d Dialect) coded(err error) bool {
	return d == Postgres && sqlstate.Of(err) != "" || d == MySQL && number(err, "Number") != 0 ||
		d == SQLite && sqliteCode(err) != 0
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
