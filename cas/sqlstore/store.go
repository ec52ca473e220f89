package sqlstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	sqldriver "database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/golockers/locker/cas"
	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/clock"
)

// Options are the settings of a [Store]. The zero value, or nil, means the defaults.
type Options struct {
	// Table is the name of the table, or schema.table. Each part has 1 to 63 ASCII letters, digits and
	// underscores, and does not begin with a digit. "": locker_records.
	Table string

	// NoCreate: a migration makes the table, with [Dialect.Schema]. Otherwise [New] does.
	NoCreate bool

	_ struct{}
}

// Store is a [cas.Store] in a table of a SQL database.
type Store struct {
	db                     *sql.DB
	d                      Dialect
	load, make, swap, list string // statements
}

// New returns the Store in a table of db, and makes the table if it is missing. The caller owns db, which
// may also serve the application, and closes it after the Backend.
func New(ctx context.Context, db *sql.DB, d Dialect, opts *Options) (*Store, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Table = cmp.Or(o.Table, defaultTable); !identifier.MatchString(o.Table) {
		return nil, fmt.Errorf("sqlstore: %w: Options.Table is %.140q: want table or schema.table, each of 1 to 63 ASCII "+
			"letters, digits and underscores, not a digit first", driver.ErrInvalid, o.Table)
	}
	s := &Store{db: db, d: d}
	s.load, s.make, s.swap, s.list = d.fill(load, o.Table), d.fill(d.Make, o.Table), d.fill(swap, o.Table), d.fill(list, o.Table)
	err := s.look(ctx, o.Table)
	if !o.NoCreate && errors.Is(err, driver.ErrRefused) {
		created := s.run(ctx, func(conn *sql.Conn) (bool, error) { // which commits, always
			_, err := conn.ExecContext(ctx, d.Schema(o.Table))
			return true, err
		})
		if err = s.look(ctx, o.Table); err != nil && created != nil {
			err = fmt.Errorf("%w; create the table: %w", err, created)
		}
	}
	switch {
	case err == nil:
		return s, nil
	case !errors.Is(err, driver.ErrRefused) && !errors.Is(err, driver.ErrInvalid):
		err = fmt.Errorf("%w: %w", err, driver.ErrUnavailable)
	}
	return nil, err
}

// look returns an error if the table is not there or cannot keep locks.
func (s *Store) look(ctx context.Context, table string) error {
	if s.d.Suits != nil {
		schema, name, named := strings.Cut(table, ".")
		if !named {
			schema, name = "", table
		}
		err := s.run(ctx, func(conn *sql.Conn) (bool, error) { return s.d.Suits(ctx, conn, schema, name) })
		if err != nil {
			return err
		}
	}
	_, err := s.Load(ctx, empty)
	return err
}

const (
	defaultTable = "locker_records"

	load = `SELECT r.value, r.version, AGE, COMMITS FROM (SELECT 1 AS one) AS o LEFT JOIN TABLE_NAME AS r ON r.name = $1`
	// No two Swaps have the same version, so the row always changes: a driver that counts changed rows
	// counts as one that counts matching rows.
	swap = `UPDATE TABLE_NAME SET value = $1, version = $2, written = NOW WHERE name = $3 AND version = $4 AND COMMITS = 1`
	list = `SELECT r.name, COMMITS FROM (SELECT 1 AS one) AS o LEFT JOIN TABLE_NAME AS r ` +
		`ON r.name >= $1 AND r.name < $2 AND r.version <> $3 LIMIT 9223372036854775807` // whatever sql_select_limit is

	// empty is the version of a row that only reserves the name, so that all writes are updates. No
	// number counts versions: after a dirty read, a fail-over or a restored backup, it would come back.
	empty = "-"
)

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}(\.[A-Za-z_][A-Za-z0-9_]{0,62})?$`)

// bytes is a parameter.
func (s *Store) bytes(b string) any {
	if s.d.Hex {
		return hex.EncodeToString([]byte(b))
	}
	return []byte(b)
}

// Promises is [cas.Store].
func (s *Store) Promises() cas.Promises { return s.d.Promises }

// Load is [cas.Store].
func (s *Store) Load(ctx context.Context, key string) (e cas.Entry, err error) {
	err = s.run(ctx, func(conn *sql.Conn) (commits bool, err error) {
		e, commits, err = s.read(ctx, conn, key)
		return commits, err
	})
	return e, err
}

func (s *Store) read(ctx context.Context, conn *sql.Conn, key string) (e cas.Entry, commits bool, err error) {
	var version sql.NullString
	var age sql.NullInt64
	err = conn.QueryRowContext(ctx, s.load, s.bytes(key)).Scan(&e.Value, &version, &age, &commits)
	if version.String == "" || version.String == empty {
		return cas.Entry{}, commits, err
	}
	e.Version, e.Age = version.String, max(time.Duration(age.Int64)*time.Microsecond, 0)
	return e, commits, err
}

// Swap is [cas.Store].
func (s *Store) Swap(ctx context.Context, key, version string, value []byte) (string, error) {
	next, version := rand.Text(), cmp.Or(version, empty)
	return next, s.run(ctx, func(conn *sql.Conn) (commits bool, err error) {
		if version == empty {
			if _, err := conn.ExecContext(ctx, s.make, s.bytes(key)); err != nil {
				return true, err
			}
		}
		var n int64
		result, err := conn.ExecContext(ctx, s.swap, s.bytes(string(value)), s.bytes(next), s.bytes(key), s.bytes(version))
		if err == nil {
			n, err = result.RowsAffected()
		}
		if err != nil || n == 1 {
			return true, err
		}
		e, commits, err := s.read(ctx, conn, key)
		if err == nil && commits && e.Version != next { // or a driver or a proxy has sent it twice
			err = cas.ErrConflict
		}
		return commits, err
	})
}

// List is [cas.Store].
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		// "" is NULL in some modes, and no name is empty; \xff is in no UTF-8.
		from, to := s.bytes(cmp.Or(prefix, "\x00")), s.bytes(prefix+"\xff")
		var keys []string
		err := s.run(ctx, func(conn *sql.Conn) (commits bool, err error) {
			rows, err := conn.QueryContext(ctx, s.list, from, to, s.bytes(empty))
			if err != nil {
				return false, err
			}
			defer func() { _ = rows.Close() }()
			for keys = nil; err == nil && rows.Next(); {
				var key sql.NullString // NULL if there is none
				if err = rows.Scan(&key, &commits); key.Valid {
					keys = append(keys, key.String)
				}
			}
			return commits, cmp.Or(err, rows.Err())
		})
		for _, key := range keys {
			if !yield(key, nil) {
				return
			}
		}
		if err != nil {
			yield("", err)
		}
	}
}

// Check implements [driver.Checker].
func (s *Store) Check(ctx context.Context) ([]driver.Finding, error) {
	if s.d.Check == nil {
		return nil, fmt.Errorf("%s: nothing to check: %w", s.d.Promises.Backend, errors.ErrUnsupported)
	}
	return s.d.Check(ctx, s.db)
}

// run calls ask on a connection of the pool, and again if that has certainly written nothing: the
// connection was closed before, or the database has undone the statement because it met another.
func (s *Store) run(ctx context.Context, ask func(conn *sql.Conn) (commits bool, err error)) error {
	for try := 0; ; try++ {
		conn, err := s.db.Conn(ctx)
		sent := err == nil
		if sent {
			err = s.on(ctx, conn, ask)
		}
		if err == nil {
			return nil
		}
		var code int64
		if s.d.Code != nil {
			code = s.d.Code(err)
		}
		again := errors.Is(err, sqldriver.ErrBadConn) || slices.Contains(s.d.Again, code)
		if again {
			ended := clock.Sleep(ctx, clock.UpTo(clock.BackOff(try, time.Millisecond, 50*time.Millisecond)))
			if ended == nil {
				continue
			}
			err = fmt.Errorf("%w: %w", err, ended)
		}
		switch {
		case slices.Contains(s.d.Refused, code):
			err = fmt.Errorf("%w: %w: %w", err, driver.ErrRefused, cas.ErrUnwritten)
		case again, !sent, slices.Contains(s.d.Unwritten, code):
			err = fmt.Errorf("%w: %w", err, cas.ErrUnwritten)
		}
		return err
	}
}

// on calls ask, which reports whether its connection commits each statement by itself. If the
// application's connections do not, this one does so during a second call: a transaction would keep
// the row locked if its client died in it, and show a reader old data.
func (s *Store) on(ctx context.Context, conn *sql.Conn, ask func(conn *sql.Conn) (commits bool, err error)) error {
	defer func() { _ = conn.Close() }()
	commits, err := ask(conn)
	if err != nil || commits {
		return err
	}
	if _, err = conn.ExecContext(ctx, s.d.CommitOn); err == nil { // and ends the transaction of the first call
		if commits, err = ask(conn); err == nil && !commits {
			err = errors.New("the connection does not commit, even after " + s.d.CommitOn)
		}
	}
	if _, failed := conn.ExecContext(ctx, s.d.CommitOff); failed != nil {
		_ = conn.Raw(func(any) error { return sqldriver.ErrBadConn }) // closed rather than given back changed
	}
	return err
}
