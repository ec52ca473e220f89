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
	for more := true; more && err == nil; {
		more = false // as long as some are removed: another Sweep may do it, or they are not from a guard
		var resources [][]byte
		err = alone(ctx, db, func(tx *sql.Tx) (err error) {
			resources, err = column(ctx, tx, g.sql.oldMarks, seconds)
			return err
		})
		for i := 0; i < len(resources) && err == nil; i++ {
			var n int64
			err = alone(ctx, db, func(tx *sql.Tx) error {
				result, err := tx.ExecContext(ctx, g.sql.dropMark, resources[i], seconds)
				if err == nil {
					n, err = result.RowsAffected()
				}
				return err
			})
			if err == nil {
				removed, more = removed+n, more || n > 0
			}
		}
	}
	return removed, g.core.Wrap(ctx, op, "", err, false)
}

// alone calls f in a transaction of its own, also if the connection does not commit by
// itself, and would show the state of its first query again and again (MySQL's autocommit=0).
func alone(ctx context.Context, db *sql.DB, f func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // nothing to do after a commit
	if err = f(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// column returns the only column of the answer.
func column(ctx context.Context, tx *sql.Tx, query string, arg any) (all [][]byte, err error) {
	rows, err := tx.QueryContext(ctx, query, arg)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var one []byte
		if err := rows.Scan(&one); err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, rows.Err()
}
