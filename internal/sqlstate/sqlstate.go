// Package sqlstate says what PostgreSQL's five-character error codes mean for a lock or for a guard
// (R17): the one table of them, for package postgres and for the guards of PostgreSQL alike.
package sqlstate

import (
	"errors"
	"slices"
	"strings"
)

// Of returns the code of a driver's error, "" if it has none. pgx and lib/pq have this method.
func Of(err error) string {
	var e interface{ SQLState() string }
	if errors.As(err, &e) && len(e.SQLState()) == 5 {
		return e.SQLState()
	}
	return ""
}

// Unavailable reports whether the server says that it cannot answer now, and may later.
func Unavailable(code string) bool {
	return len(code) == 5 && (slices.Contains(passingClasses, code[:2]) || slices.Contains(passing, code))
}

// The classes that pass: connection, resources (memory, disk, connections), system (I/O).
var passingClasses = []string{"08", "53", "58"}

var passing = []string{
	"57P01", "57P02", "57P03", // shut down, crashed, starting
	"57P05", "25P03", "25P04", // idle, idle in a transaction, or in one for too long
	ReadOnly,
}

// Ended reports whether the server says with this that it ends the connection, for reasons that have
// nothing to do with the statement: the same can be sent on another one.
func Ended(code string) bool {
	return slices.Contains([]string{"57P01", "57P05"}, code)
}

// Unknown reports whether this leaves open what became of a commit, also as an ERROR: it is about the
// connection to the server, as a proxy sees it.
func Unknown(code string) bool { return strings.HasPrefix(code, "08") || code == "40003" }

// Codes that somebody has an answer to.
const (
	ByZero       = "22012"
	NoRoot       = "2201F" // of a negative number
	NoNumber     = "22P02" // a text that is none
	ReadOnly     = "25006" // a standby, or a primary that has become one
	NoTable      = "42P01"
	NoColumn     = "42703"
	NoSchema     = "3F000"
	NoStatement  = "26000" // a prepared statement that another connection has
	HasStatement = "42P05" // a prepared statement that this connection has of somebody else
	NoRight      = "42501"
	NoLogarithm  = "2201E" // of zero
	Cancelled    = "57014" // by a statement_timeout, or by hand
	NoLock       = "55P03" // a lock_timeout
	Deadlock     = "40P01" // it was undone so that others go on
	NotKnown     = "40003" // the database itself does not know whether the statement was completed
)

// Met reports whether the statement met another, or a limit of time, and was undone: it can be sent
// again at once.
func Met(code string) bool {
	return slices.Contains([]string{"40001", Deadlock, Cancelled, NoLock}, code)
}

// TheyMeet reports whether two have made the same table or sequence at the same time.
func TheyMeet(code string) bool {
	return slices.Contains([]string{"23505", "42P07", "42710"}, code)
}
