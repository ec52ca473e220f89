package sqlguard

import (
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"slices"

	"github.com/golockers/locker/internal/sqlmark"
	"github.com/golockers/locker/internal/sqlstate"
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
		n, conflicts, down = sqlstate.MySQL(err), sqlstate.MySQLMet, sqlstate.MySQLDown
	case SQLite:
		n, conflicts, down = sqlstate.SQLite(err), sqlstate.SQLiteMet, sqlstate.SQLiteDown
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
