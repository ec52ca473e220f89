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

// Statements are the SQL statements of a [Guard], with the table's name filled in. They are for other
// drivers, other languages and people. A resource is passed as bytes, a token as a signed 64-bit
// integer. Times are by the database's clock.
//
// A write is one transaction: Raise, and then Lock unless Lock is empty. If the returned mark is higher
// than the token, roll back and give up. Otherwise read and write the resource, and commit. Do not
// decide by a mark from Mark: it may be old.
type Statements struct {
	// Create creates the table of marks if it does not exist. It has no semicolon, and also suits
	// migrations: the columns will not change. They are resource, the name as bytes; token, the mark;
	// used, the time of the last Raise in seconds since 1970.
	Create string

	// Raise moves the mark of a resource up to a token, never down, and locks its row
	// until the transaction ends. Parameters: resource, token; for MySQL resource,
	// token, token. It returns a row with the new mark, or, for MySQL, no row.
	Raise string
	Lock  string // MySQL only. Parameter: resource. Returns the mark and locks its row.

	Mark   string // parameter: resource. Returns the mark, or no row.
	Forget string // parameter: resource. Removes its mark.
	Sweep  string // parameter: seconds. Removes the marks that were not checked for that long.
}

// In PostgreSQL and SQLite, raise is one statement that never decides by a snapshot.
//
// PostgreSQL: ON CONFLICT DO UPDATE waits for another transaction that has locked the row. Then, at READ COMMITTED,
// it sees the row that was committed; at the higher levels it fails with SQLSTATE 40001, since the snapshot is older.
//
// SQLite: an INSERT takes the database's only write lock before it reads, so that nothing comes between. If the
// transaction has read before, and another has written since, it gets SQLITE_BUSY (SQLITE_BUSY_SNAPSHOT with WAL).
const raise = `INSERT INTO TABLE_NAME AS m (resource, token, used)
VALUES ($1, $2, NOW)
ON CONFLICT (resource) DO UPDATE
SET token = GREATEST(m.token, excluded.token), used = GREATEST(m.used, excluded.used)
RETURNING token`

// MySQL: at REPEATABLE READ, a plain SELECT of InnoDB shows an old snapshot. So no plain SELECT decides here: INSERT …
// ON DUPLICATE KEY UPDATE waits for the row's lock and works on the row that was committed last, and so does SELECT …
// FOR UPDATE. The insert comes first: two transactions can both pass FOR UPDATE of a row that does not exist, and then
// deadlock.
const raiseMySQL = `INSERT INTO TABLE_NAME (resource, token, used)
VALUES (?, ?, NOW)
ON DUPLICATE KEY UPDATE
token = GREATEST(token, ?), used = GREATEST(used, NOW)`

// statements returns the statements of a dialect for a table, or an error if the
// dialect or the name of the table is not valid.
func (d Dialect) statements(table string) (Statements, error) {
	if !identifier.MatchString(table) {
		return Statements{}, fmt.Errorf("sqlguard: Options.Table is %.140q: "+
			"want table or schema.table, each of 1 to 63 ASCII letters, digits and"+
			" underscores, not a digit first: %w", table, locker.ErrInvalid)
	}
	// Resources are bytes: text cannot have NUL and depends on the database's encoding, and most collations treat A
	// like a, or ignore a space at the end.
	const create = `CREATE TABLE IF NOT EXISTS TABLE_NAME (
	resource BYTES NOT NULL PRIMARY KEY,
	token BIGINT NOT NULL CHECK (CHECKED),
	used BIGINT NOT NULL
)`
	s := Statements{
		Create: create, Raise: raise,
		Mark:   "SELECT token FROM TABLE_NAME WHERE resource = $1",
		Forget: "DELETE FROM TABLE_NAME WHERE resource = $1",
		Sweep:  "DELETE FROM TABLE_NAME WHERE used < NOW - $1",
	}
	quote, words := `"`, []string(nil)
	switch d {
	case Postgres:
		s.Create += " WITH (fillfactor = 70)" // each Check is an update: this leaves room for it on the same page
		words = []string{"BYTES", "BYTEA", "CHECKED", "token > 0",
			"NOW", "CAST(FLOOR(EXTRACT(EPOCH FROM clock_timestamp())) AS BIGINT)",
			// A crash would empty such a table and keep what it protects: this divides by zero.
			"RETURNING token", "RETURNING m.token / (SELECT CAST(c.relpersistence = 'p' AS INTEGER)\n" +
				"FROM pg_catalog.pg_class c WHERE c.oid = m.tableoid) AS token"}
	case SQLite:
		s.Create += " WITHOUT ROWID"
		// A number that is too large for an integer would become a rounded REAL: the check makes this an error.
		words = []string{"BYTES", "BLOB", "BIGINT", "INTEGER", "CHECKED", "typeof(token) = 'integer' AND token > 0",
			"NOW", "CAST(strftime('%s', 'now') AS INTEGER)", "GREATEST", "max", "$1", "?", "$2", "?"}
	case MySQL:
		quote = "`"
		s.Create += " ENGINE = InnoDB"
		s.Raise, s.Lock = raiseMySQL, "SELECT token FROM TABLE_NAME WHERE resource = $1 FOR UPDATE"
		words = []string{"BYTES", "VARBINARY(640)", "CHECKED", "token > 0",
			"NOW", "CAST(UNIX_TIMESTAMP() AS SIGNED)", "$1", "?", "$2", "?"}
	default:
		return Statements{}, fmt.Errorf("sqlguard: Dialect(%d) is unknown: want Postgres, SQLite or MySQL: %w",
			d, locker.ErrInvalid)
	}
	words = append(words, "TABLE_NAME", quote+strings.ReplaceAll(table, ".", quote+"."+quote)+quote)
	for _, text := range []*string{&s.Create, &s.Raise, &s.Lock, &s.Mark, &s.Forget, &s.Sweep} {
		*text = strings.NewReplacer(words...).Replace(*text)
	}
	return s, nil
}

// identifier is the name of a table, with or without its schema. Statements quote it,
// so that it may be a reserved word.
var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}(\.[A-Za-z_][A-Za-z0-9_]{0,62})?$`)
