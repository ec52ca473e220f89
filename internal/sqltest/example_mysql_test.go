package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/sqlguard"
)

// bookInvoice holds a lock and writes to MySQL or MariaDB with its token, in a
// transaction of its own that checks first. dsn is like
// "user:password@tcp(host:3306)/database".
func bookInvoice(ctx context.Context, client locker.Locker, dsn string) error {
	locks, err := fencing.Require(client)
	if err != nil {
		return err
	}
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	guard, err := sqlguard.New(sqlguard.MySQL, nil)
	if err != nil {
		return err
	}
	if err = guard.Create(ctx, db); err != nil { // or guard.Schema() in a migration
		return err
	}
	book := func(ctx context.Context, token fencing.Token) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // nothing to do after a commit
		// Before anything is read: REPEATABLE READ would show an old picture.
		if err = guard.Check(ctx, tx, "invoice/1234", token); err != nil {
			return err // tx is rolled back
		}
		var total int64
		if err = tx.QueryRowContext(ctx, "SELECT total FROM invoices WHERE id = ?", 1234).Scan(&total); err != nil {
			return err
		}
		if _, err = tx.ExecContext(ctx, "UPDATE invoices SET total = ? WHERE id = ?", total+100, 1234); err != nil {
			return err
		}
		return tx.Commit()
	}
	return fencing.Do(ctx, locks, "invoice/1234", func(ctx context.Context) error {
		token, err := fencing.TokenFor(ctx, "invoice/1234")
		if err != nil {
			return err
		}
		for {
			err = book(ctx, token)
			// Others were in the way: the whole transaction again, with the same token.
			var e *mysql.MySQLError
			if !errors.As(err, &e) || e.Number != 1213 && e.Number != 1205 {
				return err // nil, a *fencing.StaleError, or what went wrong
			}
			select {
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done(): // the lease is over
				return context.Cause(ctx)
			}
		}
	})
}
