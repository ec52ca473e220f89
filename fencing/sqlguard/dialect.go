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

// statements are what a dialect is asked, with a table's name in their place.
//
// In each of them a clock is the database's, so that those who use it need not
// agree about the time among themselves.
type statements struct {
	marks string // the definition of the table of marks

	// raise moves a mark up to a token, and never down, and leaves its row
	// locked. Its arguments are the resource and, raiseArgs times, the token.
	// It returns the mark as it is then, or lock does, if that is not empty.
	raise     string
	raiseArgs int
	lock      string

	mark     string // resource: its mark
	forget   string // resource: removes its mark
	oldMarks string // seconds: a few resources whose marks were not used for so long
	dropMark string // resource, seconds: removes its mark if it is still that old

	counters    string // the definition of the table of counters
	draw        string // name: the next number, as a row, or as the ID of the last insert
	drawsID     bool
	oldNames    string // microseconds: a few names whose numbers are so far behind the clock
	dropCounter string // name, microseconds: removes its counter if it is still so far behind
}

// statements returns those of a dialect for a table, or an error if the one or
// the other is no such thing.
func (d Dialect) statements(table string) (statements, error) {
	if err := checkTable(table); err != nil {
		return statements{}, err
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
	for _, text := range []*string{
		&s.marks, &s.raise, &s.lock, &s.mark, &s.forget, &s.oldMarks, &s.dropMark,
		&s.counters, &s.draw, &s.oldNames, &s.dropCounter,
	} {
		*text = strings.ReplaceAll(*text, "TABLE_NAME", table)
	}
	return s, nil
}

// identifier is a table with or without its schema. It is quoted all the same,
// so that a reserved word is a name too.
var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}(\.[A-Za-z_][A-Za-z0-9_]{0,62})?$`)

func checkTable(table string) error {
	if !identifier.MatchString(table) {
		return fmt.Errorf("sqlguard: Options.Table is %.140q: want table or schema.table, each of 1 to 63 ASCII letters, digits and underscores,"+
			" not a digit first: %w", table, locker.ErrInvalid)
	}
	return nil
}
