package sqlguard

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/golockers/locker"
)

// Dialect is the kind of a database.
type Dialect int

// The databases that this package supports. The zero value is none of them.
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

// Statements are the SQL statements of a [Guard], with the name of the table in place.
// They are for other drivers, other languages and people. A resource is passed as
// bytes, a token as a signed 64-bit integer. Times are from the database's clock.
//
// A write is one transaction: Raise, and then Lock unless that is empty. If the
// returned mark is higher than the token, roll back and give up. Otherwise read and
// write the resource, and commit. Do not decide by a mark that was read with Mark: it
// may be old.
type Statements struct {
	Create string // creates the table of marks if it is not there

	// Raise moves the mark of a resource up to a token, never down, and locks its row
	// until the transaction ends. Parameters: resource, token; for MySQL resource,
	// token, token. It returns a row with the new mark, or, for MySQL, no row.
	Raise string
	Lock  string // MySQL only. Parameter: resource. Returns the mark and locks its row.

	Mark   string // parameter: resource. Returns the mark, or no row.
	Forget string // parameter: resource. Removes its mark.
}

type statements struct {
	Statements
	oldMarks string // parameter: seconds. Returns some resources whose marks were not used for so long.
	dropMark string // parameters: resource, seconds. Removes the mark if it is still that old.
}

// statements returns the statements of a dialect for a table, or an error if the
// dialect or the name of the table is not valid.
func (d Dialect) statements(table string) (statements, error) {
	if !identifier.MatchString(table) {
		return statements{}, fmt.Errorf("sqlguard: Options.Table is %.140q: "+
			"want table or schema.table, each of 1 to 63 ASCII letters, digits and"+
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
		return statements{}, fmt.Errorf("sqlguard: %v is not a dialect: want Postgres, SQLite or MySQL: %w",
			d, locker.ErrInvalid)
	}
	table = quote + strings.ReplaceAll(table, ".", quote+"."+quote) + quote
	for _, text := range []*string{
		&s.Create, &s.Raise, &s.Lock, &s.Mark, &s.Forget, &s.oldMarks, &s.dropMark,
	} {
		*text = strings.ReplaceAll(*text, "TABLE_NAME", table)
	}
	return s, nil
}

// identifier is the name of a table, with or without its schema. Statements quote it,
// so that it may be a reserved word.
var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}(\.[A-Za-z_][A-Za-z0-9_]{0,62})?$`)
