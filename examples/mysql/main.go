// Command mysql guards a row of a MySQL or MariaDB. The lock is in Redis.
package main

import (
	"context"
	"database/sql"
	"errors"

	"github.com/go-sql-driver/mysql"

	"github.com/golockers/locker/examples/internal/story"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/sqlguard"
)

// set does the whole transaction again, with the same token, where others were in the way.
func set(ctx context.Context, db *sql.DB, guard *sqlguard.Guard, token fencing.Token, state string) error {
	for {
		err := guard.Do(ctx, db, nil, story.Lock, token, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "REPLACE INTO orders VALUES (42, ?)", state)
			return err
		})
		const lockWaitTimeout, deadlock = 1205, 1213
		var e *mysql.MySQLError
		if !errors.As(err, &e) || e.Number != deadlock && e.Number != lockWaitTimeout || ctx.Err() != nil {
			return err // nil, a refusal, or what went wrong
		}
	}
}

func main() {
	ctx := context.Background()
	db, err := sql.Open("mysql", "root:secret@tcp(localhost:3306)/test")
	story.Must(err)
	defer func() { _ = db.Close() }()
	_, err = db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS orders (id BIGINT PRIMARY KEY, state VARCHAR(40))")
	story.Must(err)
	guard, err := sqlguard.New(sqlguard.MySQL, nil)
	story.Must(err)
	story.Must(guard.Create(ctx, db)) // or guard.Statements().Create in a migration
	story.Tell(ctx, "redis://localhost:6379", story.Order{
		Raise: func(ctx context.Context, resource string, token fencing.Token) error {
			return guard.Raise(ctx, db, resource, token)
		},
		Set: func(ctx context.Context, token fencing.Token, state string) error {
			return set(ctx, db, guard, token, state)
		},
		Get: story.Row(db),
	})
}
