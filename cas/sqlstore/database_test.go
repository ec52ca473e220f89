package sqlstore_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/golockers/locker/cas/sqlstore"
	"github.com/golockers/locker/driver"
)

// database is one with a table and a server, as far as a Store can tell: no SQL is parsed.
type database struct {
	addr string

	mu    sync.Mutex
	rows  map[string]row
	asked []string                 // the first word of each statement
	fault func(query string) fault // nil: none
}

type row struct {
	Value   []byte
	Version string
	written time.Time
}

// fault is what happens to a statement.
type fault struct {
	number int64 // it fails with this
	closes bool  // the connection is closed before it
	twice  bool  // it arrives twice, and the second is answered
}

type request struct {
	Query string
	Args  [][]byte
}

type reply struct {
	Rows   [][][]byte // name; or value, version
	Age    int64      // of the row
	Off    bool       // autocommit
	N      int64
	Number int64
}

func startDatabase(t *testing.T) *database {
	d := &database{rows: map[string]row{}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	d.addr = l.Addr().String()
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { d.serve(c) })
			t.Cleanup(func() { _ = c.Close() })
		}
	})
	t.Cleanup(func() { _ = l.Close() })
	return d
}

// serve answers one connection, which begins with autocommit off if that is how its client wants it.
func (d *database) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	from, to := gob.NewDecoder(c), gob.NewEncoder(c)
	s := session{d: d}
	for {
		var r request
		if from.Decode(&r) != nil {
			return
		}
		f := fault{}
		d.mu.Lock()
		word, _, _ := strings.Cut(r.Query, " ")
		if d.asked = append(d.asked, word); d.fault != nil {
			f = d.fault(r.Query)
		}
		d.mu.Unlock()
		if f.closes {
			return
		}
		answer := reply{Number: f.number}
		if f.twice {
			s.execute(r)
		}
		if f.number == 0 {
			answer = s.execute(r)
		}
		if to.Encode(answer) != nil {
			return
		}
	}
}

// session is a connection: without autocommit it sees what there was when its transaction began, and what it
// writes is lost unless it commits.
type session struct {
	d    *database
	off  bool
	view map[string]row
}

func (s *session) execute(r request) (answer reply) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	if s.off && s.view == nil {
		s.view = maps.Clone(s.d.rows)
	}
	rows := s.d.rows
	if s.off {
		rows = s.view
	}
	answer.Off = s.off
	switch arg := func(n int) string { return string(r.Args[n]) }; {
	case strings.HasPrefix(r.Query, "SET autocommit = "):
		if s.off {
			for name, of := range s.view { // it has nothing but new rows
				if _, there := s.d.rows[name]; !there {
					s.d.rows[name] = of
				}
			}
		}
		s.off, s.view = strings.HasSuffix(r.Query, "0"), nil
	case strings.HasPrefix(r.Query, "MAKE"):
		if _, there := rows[arg(0)]; !there {
			rows[arg(0)] = row{[]byte("-"), "-", time.Now()}
			answer.N = 1
		}
	case strings.HasPrefix(r.Query, "UPDATE"):
		if of, there := rows[arg(2)]; there && of.Version == arg(3) && !s.off {
			rows[arg(2)] = row{r.Args[0], arg(1), time.Now()}
			answer.N = 1
		}
	case strings.HasPrefix(r.Query, "SELECT r.value"):
		if of, there := rows[arg(0)]; there {
			answer.Rows, answer.Age = [][][]byte{{of.Value, []byte(of.Version)}}, time.Since(of.written).Microseconds()
		}
	case strings.HasPrefix(r.Query, "SELECT name"):
		for name, of := range rows {
			if name >= arg(0) && name < arg(1) && of.Version != "-" {
				answer.Rows = append(answer.Rows, [][]byte{[]byte(name)})
			}
		}
	}
	return answer
}

// dialect is that of the database.
func dialect() sqlstore.Dialect {
	d := sqlstore.MySQL()
	d.Make, d.Promises.Scope = "MAKE $1", driver.ScopeHost
	return d
}

// connector opens connections, whose autocommit is off if begin says so.
type connector struct{ addr, begin string }

func (c connector) Driver() sqldriver.Driver { return nil }

func (c connector) Connect(ctx context.Context) (sqldriver.Conn, error) {
	dialed, err := new(net.Dialer).DialContext(ctx, "tcp", c.addr)
	if err != nil {
		return nil, err
	}
	conn := &conn{Conn: dialed, from: gob.NewDecoder(dialed), to: gob.NewEncoder(dialed)}
	if c.begin != "" {
		_, err = conn.ask(ctx, c.begin, nil)
	}
	return conn, err
}

type conn struct {
	net.Conn
	from *gob.Decoder
	to   *gob.Encoder
	bad  bool
}

type numbered struct{ Number uint16 }

func (e *numbered) Error() string { return fmt.Sprintf("Error %d", e.Number) }

func (c *conn) Prepare(string) (sqldriver.Stmt, error) { return nil, errors.ErrUnsupported }
func (c *conn) Begin() (sqldriver.Tx, error)           { return nil, errors.ErrUnsupported }
func (c *conn) IsValid() bool                          { return !c.bad }

func (c *conn) ask(ctx context.Context, query string, args []sqldriver.NamedValue) (answer reply, err error) {
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	r := request{Query: query}
	for _, a := range args {
		switch v := a.Value.(type) {
		case string:
			r.Args = append(r.Args, []byte(v))
		case []byte:
			r.Args = append(r.Args, v)
		}
	}
	if err = c.to.Encode(r); err == nil {
		err = c.from.Decode(&answer)
	}
	if c.bad = err != nil; c.bad {
		return answer, fmt.Errorf("lost: %w", err)
	}
	if answer.Number != 0 {
		err = &numbered{uint16(answer.Number)}
	}
	return answer, err
}

func (c *conn) ExecContext(ctx context.Context, query string, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	answer, err := c.ask(ctx, query, args)
	return sqldriver.RowsAffected(answer.N), err
}

func (c *conn) QueryContext(ctx context.Context, query string, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	answer, err := c.ask(ctx, query, args)
	if answer.Rows == nil && strings.HasPrefix(query, "SELECT r.value") {
		answer.Rows = [][][]byte{nil}
	}
	return &rows{reply: answer, one: strings.HasPrefix(query, "SELECT name")}, err
}

type rows struct {
	reply
	one bool // column
}

func (r *rows) Close() error { return nil }

func (r *rows) Columns() []string {
	if r.one {
		return []string{"name"}
	}
	return []string{"value", "version", "age", "commits"}
}

func (r *rows) Next(to []sqldriver.Value) error {
	if len(r.Rows) == 0 {
		return io.EOF
	}
	for i, v := range r.Rows[0] {
		to[i] = v
	}
	if !r.one {
		to[2], to[3] = r.Age, !r.Off
	}
	r.Rows = r.Rows[1:]
	return nil
}

// open returns a pool, as an application has it.
func (d *database) open(t *testing.T, addr, begin string) *sql.DB {
	db := sql.OpenDB(connector{addr, begin})
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func (d *database) store(t *testing.T, addr, begin string) *sqlstore.Store {
	s, err := sqlstore.New(t.Context(), d.open(t, addr, begin), dialect(), nil)
	require.NoError(t, err)
	return s
}

// fails makes the next statements with this first word end so.
func (d *database) fails(word string, all ...fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked, d.fault = nil, func(query string) (f fault) {
		if len(all) > 0 && strings.HasPrefix(query, word) {
			f, all = all[0], all[1:]
		}
		return f
	}
}

// statements are those since the last fails.
func (d *database) statements() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.asked)
}
