package sqlstore_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io"
	"maps"
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
	begin string // what a new connection is sent; "": nothing
	file  string // of a SQLite

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

func (d *database) Connect(context.Context) (sqldriver.Conn, error) {
	return &conn{d: d, off: d.begin != ""}, nil
}

// conn is a connection. With autocommit off, it shows what there was when its transaction began, and what it
// writes is lost unless it commits.
type conn struct {
	d    *database
	off  bool
	view map[string]row
}

func (c *conn) Prepare(string) (sqldriver.Stmt, error) { return nil, errors.ErrUnsupported }
func (c *conn) Begin() (sqldriver.Tx, error)           { return nil, errors.ErrUnsupported }
func (c *conn) Close() error                           { return nil }

func (c *conn) ExecContext(_ context.Context, query string, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	var f fault
	if word := c.asks(query); word == "UPDATE" && len(c.d.faults) > 0 {
		f, c.d.faults = c.d.faults[0], c.d.faults[1:]
	}
	switch {
	case f.closed:
		return nil, sqldriver.ErrBadConn
	case f.number != 0:
		return nil, &numbered{f.number}
	case f.twice:
		c.write(query, args)
	}
	return sqldriver.RowsAffected(c.write(query, args)), nil
}

func (c *conn) asks(query string) (word string) {
	word, _, _ = strings.Cut(query, " ")
	c.d.asked = append(c.d.asked, word)
	if c.off && c.view == nil {
		c.view = maps.Clone(c.d.rows)
	}
	return word
}

func (c *conn) visible() map[string]row {
	if c.off {
		return c.view
	}
	return c.d.rows
}

func text(v sqldriver.NamedValue) string {
	if b, ok := v.Value.([]byte); ok {
		return string(b)
	}
	return v.Value.(string)
}

func (c *conn) write(query string, args []sqldriver.NamedValue) (n int64) {
	rows := c.visible()
	switch {
	case strings.HasPrefix(query, "SET autocommit = "):
		for name, of := range c.view { // which has nothing but new rows
			if _, there := c.d.rows[name]; !there {
				c.d.rows[name] = of
			}
		}
		c.off, c.view = strings.HasSuffix(query, "0"), nil
	case strings.HasPrefix(query, "MAKE"):
		if _, there := rows[text(args[0])]; !there {
			rows[text(args[0])] = row{"-", "-", time.Now()}
		}
	case strings.HasPrefix(query, "UPDATE"):
		if of, there := rows[text(args[2])]; there && of.version == text(args[3]) && !c.off {
			rows[text(args[2])] = row{text(args[0]), text(args[1]), time.Now()}
			return 1
		}
	}
	return 0
}

func (c *conn) QueryContext(_ context.Context, query string, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	c.asks(query)
	rows := c.visible()
	if strings.HasPrefix(query, "SELECT r.value") {
		one := []sqldriver.Value{nil, nil, nil, !c.off}
		if of, there := rows[text(args[0])]; there {
			one[0], one[1], one[2] = []byte(of.value), of.version, time.Since(of.written).Microseconds()
		}
		return &answer{[]string{"value", "version", "age", "commits"}, [][]sqldriver.Value{one}}, nil
	}
	names := &answer{columns: []string{"name"}}
	if strings.HasPrefix(query, "SELECT file") {
		names.rows = [][]sqldriver.Value{{c.d.file}}
		return names, nil
	}
	for name, of := range rows {
		if name >= text(args[0]) && name < text(args[1]) && of.version != "-" {
			names.rows = append(names.rows, []sqldriver.Value{[]byte(name)})
		}
	}
	return names, nil
}

type answer struct {
	columns []string
	rows    [][]sqldriver.Value
}

func (a *answer) Columns() []string { return a.columns }
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
	d.Make, d.Hex = "MAKE $1", false
	return d
}

// store returns a Store on a pool of its own.
func (d *database) store(t *testing.T) *sqlstore.Store {
	db := sql.OpenDB(d)
	t.Cleanup(func() { _ = db.Close() })
	s, err := sqlstore.New(t.Context(), db, dialect(), nil)
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
