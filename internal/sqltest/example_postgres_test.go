package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/sqlguard"
)

// sendInvoice holds a lock and writes to PostgreSQL with its token. url is like
// "postgres://user:password@host/database".
func sendInvoice(ctx context.Context, client locker.Locker, url string) error {
	locks, err := fencing.Require(client)
	if err != nil {
		return err
	}
	db, err := sql.Open("pgx", url)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	guard, err := sqlguard.New(sqlguard.Postgres, nil)
	if err != nil {
		return err
	}
	if err = guard.Create(ctx, db); err != nil { // or guard.Schema() in a migration
		return err
	}
	return fencing.Do(ctx, locks, "invoice/1234", func(ctx context.Context) error {
		token, err := fencing.TokenFor(ctx, "invoice/1234")
		if err != nil {
			return err
		}
		opts := &sql.TxOptions{Isolation: sql.LevelSerializable}
		for {
			err = guard.Do(ctx, db, opts, "invoice/1234", token, func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "UPDATE invoices SET state = 'sent' WHERE id = $1", 1234)
				return err
			})
			// Others were in the way: the whole transaction again, with the same token.
			var e *pgconn.PgError
			if !errors.As(err, &e) || e.Code != "40001" && e.Code != "40P01" {
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
