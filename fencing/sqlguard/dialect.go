package sqlguard

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/golockers/locker"
)

// Dialect is the kind of a database.
type Dialect int

// The databases that this package speaks to. The zero value is none of them.
const (
	_        Dialect = iota
	Postgres         // PostgreSQL 9.5 or later
	SQLite           // SQLite 3.35 or later
	MySQL            // MySQL 5.7 or later, MariaDB 10.2 or later, both with InnoDB
)

// String returns the name of the database.
func (d Dialect) String() string {
	switch d {
	case Postgres:
		return "PostgreSQL"
	case SQLite:
		return "SQLite"
	case MySQL:
		return "MySQL"
	default:
		return fmt.Sprintf("Dialect(%d)", int(d))
	}
}

// Statements are what a [Guard] asks its database, with the name of the table in
// place, for other drivers, other languages and people. A resource is given as
// bytes, a token as a signed 64-bit integer. Clocks are the database's.
//
// A write is one transaction: Raise, and where Lock is not empty then Lock; if the
// mark that comes back is higher than the token, roll back and give up; otherwise
// read and write the resource, and commit. Nothing else decides: a mark that was
// read with Mark may be old.
type Statements struct {
	Create string // creates the table of marks if it is not there

	// Raise moves the mark of a resource up to a token, never down, and leaves its
	// row locked until the transaction ends. Parameters: resource, token; for MySQL
	// resource, token, token. It returns a row with the mark as it is then, or, for
	// MySQL, none.
	Raise string
	Lock  string // MySQL only. Parameter: resource. Returns the mark and leaves its row locked.

	Mark   string // parameter: resource. Returns the mark, or no row.
	Forget string // parameter: resource. Removes its mark.
}

type statements struct {
	Statements
	oldMarks string // seconds: a few resources whose marks were not used for so long
	dropMark string // resource, seconds: removes its mark if it is still that old
}

// statements returns those of a dialect for a table, or an error if the one or
// the other is no such thing.
func (d Dialect) statements(table string) (statements, error) {
	if !identifier.MatchString(table) {
		return statements{}, fmt.Errorf("sqlguard: Options.Table is %.140q: want table or schema.table, each of 1 to 63 ASCII letters, digits and"+
			" underscores, not a digit first: %w", table, locker.ErrInvalid)
	}
	var s statements
	quote := `"`
	switch d {
	case Postgres:
		s = postgres
	case SQLite:
		s = sqlite
	case MySQL:
		s, quote = mysql, "`"
	default:
		return statements{}, fmt.Errorf("sqlguard: %v is no dialect: want Postgres, SQLite or MySQL: %w", d, locker.ErrInvalid)
	}
	table = quote + strings.ReplaceAll(table, ".", quote+"."+quote) + quote
	for _, text := range []*string{&s.Create, &s.Raise, &s.Lock, &s.Mark, &s.Forget, &s.oldMarks, &s.dropMark} {
		*text = strings.ReplaceAll(*text, "TABLE_NAME", table)
	}
	return s, nil
}

// identifier is a table with or without its schema. It is quoted all the same,
// so that a reserved word is a name too.
var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}(\.[A-Za-z_][A-Za-z0-9_]{0,62})?$`)
