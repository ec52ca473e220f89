package sqlguard

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
)

// Forget removes the mark of a resource that is no more, inside the transaction
// that deletes the resource. Call Check first in it, as for every write. After
// the commit a token of any age passes: names that come back want their marks.
func (g *Guard) Forget(ctx context.Context, tx Tx, resource string) error {
	const op = "forget the mark of"
	if err := fencing.CheckName(resource); err != nil {
		return failed(op, resource, err)
	}
	_, err := tx.ExecContext(ctx, g.sql.Forget, []byte(resource))
	return g.dialect.wrap(ctx, op, resource, err)
}

// minAge keeps a unit that was forgotten from removing every mark.
const minAge = time.Minute

// Sweep removes the marks that were not checked for longer than age, so that
// they do not grow for ever, and returns how many it has removed, also beside an
// error. It may run at any time, in many places at once.
//
// What is lost with a mark is the protection against holders older than it: one
// that was paused for longer than age, and whose resource nobody has written to
// since, or only it, can write again. So age has to be longer than any holder
// can be paused and any message with a token can be under way; days, rather
// than minutes. Less than a minute matches [locker.ErrInvalid]. Ages are
// measured by the database's clock: one that is stepped forward makes marks
// older than they are.
//
// Marks are looked for without locking and removed one by one, each only if it
// is still old, so that nobody waits for a Sweep.
func (g *Guard) Sweep(ctx context.Context, db *sql.DB, age time.Duration) (removed int64, err error) {
	const op = "sweep old marks"
	if age < minAge {
		return 0, failed(op, "", fmt.Errorf("the age is %v, which is less than %v: %w", age, minAge, locker.ErrInvalid))
	}
	seconds := int64(age / time.Second)
	for {
		resources, err := g.old(ctx, db, seconds)
		if err != nil || len(resources) == 0 {
			return removed, g.dialect.wrap(ctx, op, "", err)
		}
		before := removed
		for _, resource := range resources {
			n, err := execAlone(ctx, db, g.sql.dropMark, resource, seconds)
			if err != nil {
				return removed, g.dialect.wrap(ctx, op, "", err)
			}
			removed += n
		}
		if removed == before {
			return removed, nil // others are at it, or the rows are nothing of ours
		}
	}
}

// execAlone executes a statement in a transaction of its own, also where the
// connection does not commit by itself (MySQL's autocommit=0), and returns how
// many rows it changed.
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
	n, _ := result.RowsAffected() // no driver here fails to know it
	return n, tx.Commit()
}

// old returns a few resources whose marks were not used for so long.
func (g *Guard) old(ctx context.Context, db *sql.DB, seconds int64) (resources [][]byte, err error) {
	query := db.QueryContext
	if g.dialect == MySQL {
		// A connection that does not commit by itself (autocommit=0) would go on
		// showing what there was when it was asked first.
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return nil, err
		}
		defer func() { _ = tx.Rollback() }() // it has read, and nothing else
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
