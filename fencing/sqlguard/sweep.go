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
func (g *Guard) Forget(ctx context.Context, tx *sql.Tx, resource string) error {
	const op = "forget the mark of"
	if err := fencing.CheckName(resource); err != nil {
		return failed(op, resource, err)
	}
	_, err := tx.ExecContext(ctx, g.sql.forget, []byte(resource))
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
	return sweep(ctx, g.dialect, db, "sweep old marks", g.sql.oldMarks, g.sql.dropMark, age, time.Second)
}

// sweep removes what list finds, by drop, with an age counted in units.
func sweep(ctx context.Context, d Dialect, db *sql.DB, op, list, drop string, age, unit time.Duration) (removed int64, err error) {
	if age < minAge {
		return 0, failed(op, "", fmt.Errorf("the age is %v, which is less than %v: %w", age, minAge, locker.ErrInvalid))
	}
	units := int64(age / unit)
	for {
		keys, err := few(ctx, d, db, list, units)
		if err != nil || len(keys) == 0 {
			return removed, d.wrap(ctx, op, "", err)
		}
		before := removed
		for _, key := range keys {
			result, err := execAlone(ctx, db, drop, key, units)
			if err != nil {
				return removed, d.wrap(ctx, op, "", err)
			}
			n, _ := result.RowsAffected() // no driver here fails to know it
			removed += n
		}
		if removed == before {
			return removed, nil // others are at it, or the rows are nothing of ours
		}
	}
}

func few(ctx context.Context, d Dialect, db *sql.DB, list string, units int64) (keys [][]byte, err error) {
	query := db.QueryContext
	if d == MySQL {
		// A connection that does not commit by itself (autocommit=0) would go on
		// showing what there was when it was asked first.
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return nil, err
		}
		defer func() { _ = tx.Rollback() }() // it has read, and nothing else
		query = tx.QueryContext
	}
	rows, err := query(ctx, list, units)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var key []byte
		if err := rows.Scan(&key); err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, rows.Err()
}
