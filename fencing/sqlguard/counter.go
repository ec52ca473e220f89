package sqlguard

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
)

// Counter draws fencing tokens from a table, for [fencing.Wrap]. It may be used
// from many goroutines at once, and by any number of processes on one table.
//
// Each number is greater than the one before it for the same name, and at least
// the database's clock in microseconds since 1970, rounded down to a second. It
// is drawn in a transaction of its own, which no transaction of the caller's
// undoes.
type Counter struct {
	dialect Dialect
	sql     statements
	db      *sql.DB
}

var _ fencing.Counter = (*Counter)(nil)

// NewCounter returns a Counter on db, which stays its caller's to close; it
// does no I/O. A dialect or a table that cannot be is an error that matches
// [locker.ErrInvalid].
func NewCounter(d Dialect, db *sql.DB, opts *Options) (*Counter, error) {
	s, err := d.statements(opts.table("locker_counters"))
	if err != nil {
		return nil, err
	}
	if db == nil {
		return nil, fmt.Errorf("sqlguard: a Counter needs a database: the *sql.DB is nil: %w", locker.ErrInvalid)
	}
	return &Counter{dialect: d, sql: s, db: db}, nil
}

// Schema returns the statement that creates the table of counters if it is not
// there, without a semicolon, for programs that have migrations. Its columns
// will not change: name, as bytes; n, the number drawn last.
func (c *Counter) Schema() string { return c.sql.counters }

// Create creates the table of counters if it is not there. Many may call it at
// the same time.
func (c *Counter) Create(ctx context.Context) error {
	return create(ctx, c.dialect, c.db, c.sql.counters)
}

// Fencing returns [locker.FencingUnlessRewind]. That rests on a database that
// keeps what it has committed: fsync and synchronous_commit on (PostgreSQL),
// innodb_flush_log_at_trx_commit 1 (MySQL), synchronous FULL and a file
// (SQLite), and no fail-over to a replica that may be behind. Where it does not
// keep it, the data is set back, and so are the numbers, but not below the
// database's clock: they still rise if a second has passed since the last draw,
// and no clock was set back, or is behind the one before it.
func (c *Counter) Fencing() locker.Fencing { return locker.FencingUnlessRewind }

const (
	drawPatience = 10 * time.Second // how long draws that meet others are repeated
	drawPause    = 20 * time.Millisecond
)

// Next draws the next number for name. Draws that met others, because the
// database's default is a high isolation level or because SQLite was busy, are
// repeated for up to 10 s, or until ctx ends. A database that cannot be reached,
// or not in time, matches [locker.ErrUnavailable].
func (c *Counter) Next(ctx context.Context, name string) (uint64, error) {
	const op = "draw a token for"
	if err := fencing.CheckName(name); err != nil {
		return 0, failed(op, name, err)
	}
	for begin := time.Now(); ; {
		n, err := c.draw(ctx, name)
		switch {
		case err == nil && n > 0:
			return uint64(n), nil
		case err == nil:
			return 0, failed(op, name, fmt.Errorf("the database returned %d, which is no token", n))
		}
		met := c.dialect.conflict(err)
		if !met || time.Since(begin) > drawPatience {
			err = c.dialect.wrap(ctx, op, name, err)
			if met || errors.Is(err, context.DeadlineExceeded) {
				err = unavailable(err) // it had the time, and gave no number
			}
			return 0, err
		}
		pause := time.NewTimer(rand.N(drawPause))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop() // the next draw says that ctx is over
		}
	}
}

func (c *Counter) draw(ctx context.Context, name string) (n int64, err error) {
	if !c.sql.drawsID {
		err = c.db.QueryRowContext(ctx, c.sql.draw, []byte(name)).Scan(&n)
		return n, err
	}
	result, err := execAlone(ctx, c.db, c.sql.draw, []byte(name))
	if err != nil {
		return 0, err
	}
	return result.LastInsertId()
}

// execAlone executes a statement in a transaction of its own, also where the
// connection does not commit by itself (MySQL's autocommit=0).
func execAlone(ctx context.Context, db *sql.DB, statement string, args ...any) (sql.Result, error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }() // nothing to do after a commit
	result, err := tx.ExecContext(ctx, statement, args...)
	if err != nil {
		return nil, err
	}
	return result, tx.Commit()
}

// Sweep removes the counters whose last number was drawn longer than age ago,
// so that they do not grow for ever, and returns how many it has removed, also
// beside an error. It may run at any time. An age below a minute matches
// [locker.ErrInvalid].
//
// Numbers go on rising after it, since a counter that begins again begins at the
// database's clock, unless that clock is set back by more than age.
func (c *Counter) Sweep(ctx context.Context, age time.Duration) (removed int64, err error) {
	return sweep(ctx, c.dialect, c.db, "sweep old counters", c.sql.oldNames, c.sql.dropCounter, age, time.Microsecond)
}
