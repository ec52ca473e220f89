package sqlguard

import (
	"cmp"
	"context"
	"database/sql"

	"github.com/golockers/locker/internal/sqlmark"
)

// Options are the settings of a [Guard]. The zero value is ready to use.
type Options struct {
	// Table is the name of the table, or schema.table. Each part has 1 to 63 ASCII
	// letters, digits and underscores, and does not begin with a digit. Every
	// statement quotes it, so that upper case stays upper case. "": locker_marks.
	Table string

	_ struct{}
}

// Guard keeps the marks of resources in a table of the resources' database. It has no connection and no
// state: any number of processes may have one for the same table, and its methods may be called from
// many goroutines at once.
type Guard struct {
	dialect Dialect
	core    sqlmark.Guard
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
	return &Guard{d, sqlmark.Guard{Name: "sqlguard", Class: d.class, SQL: sqlmark.Statements(s)}}, nil
}

// Statements returns the SQL statements of g.
func (g *Guard) Statements() Statements { return Statements(g.core.SQL) }

// Create creates the table of marks if it does not exist. Several processes may call it
// at the same time.
func (g *Guard) Create(ctx context.Context, db *sql.DB) error { return g.core.Create(ctx, on{db}) }
