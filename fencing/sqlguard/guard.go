package sqlguard

import (
	"cmp"
	"context"
	"database/sql"
	"errors"

	"github.com/golockers/locker/fencing"
)

// Options are the settings of a [Guard]. The zero value is ready to use.
type Options struct {
	// Table is the name of the table, or schema.table. Each part has 1 to 63 ASCII
	// letters, digits and underscores, and does not begin with a digit. Every
	// statement quotes it, so that upper case stays upper case. "": locker_marks.
	Table string

	_ struct{}
}

// Guard keeps the marks of resources in a table of the database that has the
// resources. It has no connection and no state: any number of processes may have one
// for the same table, and its methods may be called from many goroutines at once.
type Guard struct {
	dialect Dialect
	sql     statements
}

// New returns a Guard. It does no I/O. If the dialect or the name of the table is not
// valid, the error matches [locker.ErrInvalid].
func New(d Dialect, opts *Options) (*Guard, error) {
	table := "locker_marks"
	if opts != nil {
		table = cmp.Or(opts.Table, table)
	}
	s, err := d.statements(table)
	if err != nil {
		return nil, err
	}
	return &Guard{dialect: d, sql: s}, nil
}

// Statements returns the SQL statements of g.
func (g *Guard) Statements() Statements { return g.sql.Statements }

// Schema returns the statement that creates the table of marks if it does not exist,
// without a semicolon, for programs that have migrations. The columns will not change:
// resource, the name as bytes; token, the mark; used, the time of the last Check in
// seconds since 1970 by the database's clock.
func (g *Guard) Schema() string { return g.sql.Create }

// Create creates the table of marks if it does not exist. Several processes may call it
// at the same time.
func (g *Guard) Create(ctx context.Context, db *sql.DB) error {
	var err error
	// If others create the table at the same time, PostgreSQL's IF NOT EXISTS fails; the
	// next attempt finds the table.
	for range 3 {
		if _, err = db.ExecContext(ctx, g.sql.Create); !g.dialect.meanwhile(err) {
			break
		}
	}
	return g.dialect.wrap(ctx, "create the table", "", err)
}

// Querier is a *[sql.DB], a *[sql.Conn] or a *[sql.Tx].
type Querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Mark returns the highest token that was accepted for resource, or false if there is
// none. It is for people and for tests: it locks nothing, so the answer may be out of
// date, and only Check decides. Inside a transaction the answer is as old as the
// transaction's snapshot; a connection of MySQL with autocommit=0 is always inside one.
func (g *Guard) Mark(ctx context.Context, db Querier, resource string) (fencing.Token, bool, error) {
	const op = "read the mark of"
	if err := fencing.CheckName(resource); err != nil {
		return 0, false, failed(op, resource, err)
	}
	var mark int64
	switch err := db.QueryRowContext(ctx, g.sql.Mark, []byte(resource)).Scan(&mark); {
	case errors.Is(err, sql.ErrNoRows):
		return 0, false, nil
	case err != nil:
		return 0, false, g.dialect.wrap(ctx, op, resource, err)
	}
	return fencing.Token(mark), true, nil
}
