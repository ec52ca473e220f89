package sqlstore_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/cas/sqlstore"
)

// database is one with a table, as far as a Store can tell: it parses no SQL. It is a [sqldriver.Connector], too.
type database struct {
	off  bool   // new connections do not commit by themselves
	file string // of a SQLite

	mu     sync.Mutex
	rows   map[string]row
	asked  []string // the first word of each statement
	faults []fault  // of the next UPDATEs
}

type row struct {
	value, version string
	written        time.Time
}

// fault is what happens to an UPDATE.
type fault struct {
	number uint16 // it fails with this
	closed bool   // its connection was closed before
	twice  bool   // it arrives twice, and the second is answered
}

type numbered struct{ Number uint16 }

func (e *numbered) Error() string { return fmt.Sprintf("Error %d", e.Number) }

func (d *database) Driver() sqldriver.Driver { return nil }

func (d *database) Connect(context.Context) (sqldriver.Conn, error) { return &conn{d, d.off}, nil }

// conn is a connection. With autocommit off, what it shows is old, and it writes nothing.
type conn struct {
	d   *database
	off bool
}

func (c *conn) Prepare(string) (sqldriver.Stmt, error) { return nil, errors.ErrUnsupported }
func (c *conn) Begin() (sqldriver.Tx, error)           { return nil, errors.ErrUnsupported }
func (c *conn) Close() error                           { return nil }

func text(v sqldriver.NamedValue) string { return string(v.Value.([]byte)) }

func (c *conn) asks(query string) (word string) {
	word, _, _ = strings.Cut(query, " ")
	c.d.asked = append(c.d.asked, word)
	return word
}

func (c *conn) ExecContext(_ context.Context, query string, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	n := 0
	switch word := c.asks(query); {
	case word == "SET":
		c.off = strings.HasSuffix(query, "0")
	case c.off:
	case word == "MAKE":
		if _, there := c.d.rows[text(args[0])]; !there {
			c.d.rows[text(args[0])] = row{"-", "-", time.Now()}
		}
	case word == "UPDATE":
		var f fault
		if len(c.d.faults) > 0 {
			f, c.d.faults = c.d.faults[0], c.d.faults[1:]
		}
		switch {
		case f.closed:
			return nil, sqldriver.ErrBadConn
		case f.number != 0:
			return nil, &numbered{f.number}
		}
		if of, there := c.d.rows[text(args[2])]; there && of.version == text(args[3]) {
			c.d.rows[text(args[2])] = row{text(args[0]), text(args[1]), time.Now()}
			n = 1
		}
		if f.twice {
			n = 0
		}
	}
	return sqldriver.RowsAffected(n), nil
}

func (c *conn) QueryContext(_ context.Context, query string, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	c.asks(query)
	rows, commits, all := c.d.rows, !c.off, [][]sqldriver.Value(nil)
	if c.off {
		rows = map[string]row{text(args[0]): {"old", "old", time.Now()}}
	}
	switch {
	case strings.HasPrefix(query, "SELECT file"):
		all = [][]sqldriver.Value{{c.d.file}}
	case strings.HasPrefix(query, "SELECT r.value"):
		all = [][]sqldriver.Value{{nil, nil, nil, commits}}
		if of, there := rows[text(args[0])]; there {
			all = [][]sqldriver.Value{{[]byte(of.value), of.version, time.Since(of.written).Microseconds(), commits}}
		}
	default:
		all = [][]sqldriver.Value{{nil, commits}}
		for name, of := range rows {
			if name >= text(args[0]) && name < text(args[1]) && of.version != text(args[2]) {
				all = append(all, []sqldriver.Value{[]byte(name), commits})
			}
		}
	}
	return &answer{all}, nil
}

// answer is rows of a SELECT.
type answer struct{ rows [][]sqldriver.Value }

func (a *answer) Columns() []string { return make([]string, len(a.rows[0])) }
func (a *answer) Close() error      { return nil }

func (a *answer) Next(to []sqldriver.Value) error {
	if len(a.rows) == 0 {
		return io.EOF
	}
	copy(to, a.rows[0])
	a.rows = a.rows[1:]
	return nil
}

// dialect is that of the database.
func dialect() sqlstore.Dialect {
	d := sqlstore.MySQL()
	d.Make, d.Hex, d.Suits = "MAKE $1", false, nil
	return d
}

// store returns a Store on a pool of its own.
func (d *database) store(t *testing.T, of sqlstore.Dialect) *sqlstore.Store {
	db := sql.OpenDB(d)
	t.Cleanup(func() { _ = db.Close() })
	s, err := sqlstore.New(t.Context(), db, of, nil)
	require.NoError(t, err)
	return s
}

// fails has the next UPDATEs end so, and returns what was asked before.
func (d *database) fails(all ...fault) (asked string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	asked, d.asked, d.faults = strings.Join(d.asked, " "), nil, slices.Clone(all)
	return asked
}
