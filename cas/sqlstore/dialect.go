package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/golockers/locker/cas"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/localfile"
	"github.com/golockers/locker/internal/sqlstate"
)

// Dialect is the kind of a database. [MySQL] and [SQLite] are complete; a program may write another. In
// its statements, TABLE_NAME is the table, NOW and COMMITS are the fields below, and $1 is a parameter.
// Names and values are bytes.
type Dialect struct {
	// Promises are those of the Stores. Their Ages must be true.
	Promises cas.Promises

	// Create makes the table unless it exists: name, at least 640 bytes and the primary key; version, 32
	// bytes; written, a time as of NOW; value, 400,000 bytes.
	Create string
	// Make inserts a row of the name $1, with - as version and value, unless the name has one.
	Make string
	// Now is the time by the database's clock when it is evaluated, whatever the connection's time zone.
	Now string
	// Age is the number of microseconds from r.written to NOW, too low rather than too high.
	Age string

	// Commits is 1 where the connection commits each statement by itself. If it can be something else,
	// CommitOn makes the connection do so, and CommitOff undoes that.
	Commits, CommitOn, CommitOff string

	// Quote is what encloses identifiers. Placeholder returns the nth parameter; nil: "?". With Hex,
	// parameters are sent as hexadecimal digits, and UNHEX decodes them: neither a driver's quoting nor a
	// conversion between character sets can change what is in them.
	Quote       string
	Placeholder func(n int) string
	Hex         bool

	// Code returns the database's number of a driver's error, 0 if there is none; nil: there are none. Of
	// a statement with one of these numbers nothing was written: Again, it met another, and is repeated;
	// Refused, no repetition helps; Unwritten, others. Of all other errors the outcome is unknown.
	Code                      func(err error) int64
	Again, Refused, Unwritten []int64

	// Suits, if not nil, returns [driver.ErrInvalid] if a table, which need not be there, cannot keep locks,
	// and whether the connection commits. schema may be empty. Check is [driver.Checker]'s.
	Suits func(ctx context.Context, conn *sql.Conn, schema, table string) (commits bool, err error)
	Check func(ctx context.Context, db *sql.DB) ([]driver.Finding, error)
}

// Schema is the statement that makes the table, for a migration.
func (d Dialect) Schema(table string) string { return d.fill(d.Create, table) }

func (d Dialect) fill(statement, table string) string {
	quoted := d.Quote + strings.ReplaceAll(table, ".", d.Quote+"."+d.Quote) + d.Quote
	words := []string{"TABLE_NAME", quoted, "COMMITS", d.Commits, "NOW", d.Now}
	for n := 1; n <= 4; n++ {
		parameter := "?"
		if d.Placeholder != nil {
			parameter = d.Placeholder(n)
		}
		if d.Hex {
			parameter = "UNHEX(" + parameter + ")"
		}
		words = append(words, fmt.Sprint("$", n), parameter)
	}
	return strings.NewReplacer(words...).Replace(strings.ReplaceAll(statement, "AGE,", d.Age+","))
}

// mysqlNow is the time in UTC. SYSDATE(6) is the moment itself, but in the connection's time zone, of which
// an hour comes twice in autumn; UTC_TIMESTAMP(6) is when the statement began, before it waited for others.
// So only what SYSDATE is ahead is added, less the hours or half hours by which the zone has changed meanwhile:
// modulo 15 minutes, to either side, and nothing if the clock has gone back.
const mysqlNow = `UTC_TIMESTAMP(6) + INTERVAL GREATEST(0, ` +
	`MOD(TIMESTAMPDIFF(MICROSECOND, NOW(6), SYSDATE(6)) + 86850000000, 900000000) - 450000000) MICROSECOND`

// MySQL is MySQL 8 and MariaDB 10.5, or later.
func MySQL() Dialect {
	return Dialect{
		Promises: promises("mysql", driver.ScopeNetwork, true,
			"one MySQL or MariaDB that keeps what it has committed (innodb_flush_log_at_trx_commit = 1, with a binary log "+
				"sync_binlog = 1): no Galera, and no fail-over to a replica that may be behind"),
		Create: `CREATE TABLE IF NOT EXISTS TABLE_NAME (name VARBINARY(640) NOT NULL PRIMARY KEY, ` +
			`version VARBINARY(32) NOT NULL, written DATETIME(6) NOT NULL, value MEDIUMBLOB NOT NULL) ENGINE = InnoDB`,
		Make: `INSERT IGNORE INTO TABLE_NAME (name, version, written, value) ` +
			`SELECT $1, '-', NOW, '-' FROM DUAL WHERE COMMITS = 1`,
		Now:     mysqlNow,
		Age:     `TIMESTAMPDIFF(MICROSECOND, r.written, NOW) - 1`,
		Commits: "@@autocommit", CommitOn: "SET autocommit = 1", CommitOff: "SET autocommit = 0",
		Quote: "`", Hex: true, Code: sqlstate.MySQL, Again: sqlstate.MySQLMet,
		// No right, no such user, database, table or column, no database chosen, a host that is not allowed, an account
		// that is locked or whose password has expired, an isolation level that the format of the binary log excludes.
		Refused: []int64{1044, 1045, 1142, 1143, 1227, 1698, 1049, 1146, 1054, 1046, 1130, 4151, 3118, 1820, 1862, 1665},
		// A server or a session that is read only; too many connections.
		Unwritten: []int64{1290, 1792, 1836, 1040, 1203, 1226, 1129},
		Suits:     suitsMySQL, Check: checkMySQL,
	}
}

// SQLite is SQLite 3.24 or later, in a file that the processes of one host share.
func SQLite() Dialect {
	return Dialect{
		Promises: promises("sqlite", driver.ScopeHost, false,
			"the file locks of one host, a file that nobody replaces, and no process that is stopped in the middle of a "+
				"write or, without WAL, a read (nobody gets in until it goes on or ends)"),
		Create: `CREATE TABLE IF NOT EXISTS TABLE_NAME (name BLOB NOT NULL PRIMARY KEY, version BLOB NOT NULL, ` +
			`written INTEGER NOT NULL, value BLOB NOT NULL)`,
		Make:    `INSERT OR IGNORE INTO TABLE_NAME (name, version, written, value) VALUES ($1, x'2d', NOW, x'2d')`,
		Now:     `CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)`, // milliseconds
		Age:     `(NOW - r.written - 2) * 1000`,
		Commits: "1", Quote: `"`, Code: sqlstate.SQLite, Again: sqlstate.SQLiteMet,
		Refused: []int64{1, 3, 8, 23, 26}, // ERROR (no such table), PERM, READONLY, AUTH, NOTADB
		Suits:   suitsSQLite,
	}
}

func promises(name string, scope driver.Scope, restarts bool, restsOn string) cas.Promises {
	return cas.Promises{Backend: name, Scope: scope, Exclusion: driver.ExclusionServer, Fencing: driver.FencingWhileKept,
		SurvivesRestart: restarts, RestsOn: restsOn, Ages: true, MinTTL: 100 * time.Millisecond}
}

// suitsMySQL refuses a table of another engine than InnoDB. Such tables exclude, too, as each change is one
// statement; but after a crash of the server, rows of MyISAM or MEMORY are damaged, old or gone.
func suitsMySQL(ctx context.Context, conn *sql.Conn, schema, table string) (commits bool, err error) {
	var engine sql.NullString
	err = conn.QueryRowContext(ctx, fmt.Sprintf("SELECT (SELECT ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = "+
		"COALESCE(NULLIF('%s', ''), DATABASE()) AND TABLE_NAME = '%s'), @@autocommit", schema, table)).Scan(&engine, &commits)
	if err == nil && engine.Valid && engine.String != "InnoDB" {
		err = fmt.Errorf("mysql: the table %s is of the engine %s, and loses locks and tokens in a crash of the server: "+
			"write ALTER TABLE %[1]s ENGINE = InnoDB: %[3]w", table, engine.String, driver.ErrInvalid)
	}
	return commits, err
}

// suitsSQLite refuses a table whose file is not on a disk of this host, or that has no file.
func suitsSQLite(ctx context.Context, conn *sql.Conn, schema, _ string) (commits bool, err error) {
	var file string
	err = conn.QueryRowContext(ctx, fmt.Sprintf("SELECT file FROM pragma_database_list WHERE lower(name) = lower('%s')",
		cmp.Or(schema, "main"))).Scan(&file)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return true, fmt.Errorf("sqlite: %w: no database is attached as %s", driver.ErrInvalid, schema)
	case err != nil:
		return true, err
	case file == "":
		return true, fmt.Errorf("sqlite: %w: a database in memory, or a temporary one: each connection has its own", driver.ErrInvalid)
	}
	if at, err := filepath.EvalSymlinks(file); err == nil {
		file = at
	}
	if _, err := localfile.Dir(filepath.Dir(file)); err != nil { // as package file
		return true, fmt.Errorf("sqlite: %s: %w: %w", file, err, driver.ErrInvalid)
	}
	return true, nil
}
