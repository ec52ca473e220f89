package sqlguard

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/golockers/locker"
)

// minAge keeps a forgotten unit of time from removing every mark.
const minAge = time.Minute

// Sweep removes the marks that were not checked for longer than age, so that the table
// does not grow for ever. It returns the number of removed marks, also beside an error.
// It may run at any time, in several processes at once.
//
// A removed mark no longer protects against older holders: a holder that was paused for
// longer than age can write again if nobody else has checked the resource since. So age
// has to be longer than any pause of a holder, and longer than any message with a token
// can be under way: days rather than minutes. If age is less than a minute, the error
// matches [locker.ErrInvalid]. Ages are measured by the database's clock; a clock that
// is stepped forward makes marks look older than they are.
//
// Sweep looks for marks without locking, and removes them one by one, each only if it
// is still old, so that nobody waits for a Sweep.
func (g *Guard) Sweep(ctx context.Context, db *sql.DB, age time.Duration) (removed int64, err error) {
	const op = "sweep old marks"
	if age < minAge {
		return 0, fmt.Errorf("sqlguard: %s: the age is %v, which is less than %v: %w", op, age, minAge, locker.ErrInvalid)
	}
	seconds := int64(age / time.Second)
	for {
		resources, err := g.old(ctx, db, seconds)
		if err != nil || len(resources) == 0 {
			return removed, g.core.Wrap(ctx, op, "", err, false)
		}
		before := removed
		for _, resource := range resources {
			n, err := execAlone(ctx, db, g.sql.dropMark, resource, seconds)
			if err != nil {
				return removed, g.core.Wrap(ctx, op, "", err, false)
			}
			removed += n
		}
		if removed == before {
			return removed, nil // another Sweep removes them, or the rows are not from a guard
		}
	}
}

// execAlone executes a statement in a transaction of its own, also if the connection
// does not commit by itself (MySQL's autocommit=0). It returns the number of changed
// rows.
func execAlone(ctx context.Context, db *sql.DB, statement string, args ...any) (int64, error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }() // nothing to do after a commit
	result, err := tx.ExecContext(ctx, statement, args...)
	if err != nil {
		return 0, err
	}
	n, _ := result.RowsAffected() // the drivers for these databases all know it
	return n, tx.Commit()
}

// old returns some resources whose marks were not used for so long.
func (g *Guard) old(ctx context.Context, db *sql.DB, seconds int64) (resources [][]byte, err error) {
	query := db.QueryContext
	if g.dialect == MySQL {
		// Without a transaction, a connection with autocommit=0 would show the state of
		// its first query again and again.
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return nil, err
		}
		defer func() { _ = tx.Rollback() }() // it has only read
		query = tx.QueryContext
	}
	rows, err := query(ctx, g.sql.oldMarks, seconds)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var resource []byte
		if err := rows.Scan(&resource); err != nil {
			return nil, err
		}
		resources = append(resources, resource)
	}
	return resources, rows.Err()
}
