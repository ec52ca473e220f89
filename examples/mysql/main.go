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

type order struct {
	db    *sql.DB
	guard *sqlguard.Guard
}

func (o order) Raise(ctx context.Context, token fencing.Token) error {
	return o.guard.Raise(ctx, o.db, "order/42", token)
}

// Set does the whole transaction again, with the same token, where others were in the way.
func (o order) Set(ctx context.Context, token fencing.Token, state string) error {
	for {
		err := o.guard.Do(ctx, o.db, nil, "order/42", token, func(ctx context.Context, tx *sql.Tx) error {
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

func (o order) Get(ctx context.Context) (state string, err error) {
	err = o.db.QueryRowContext(ctx, "SELECT state FROM orders WHERE id = 42").Scan(&state)
	return state, err
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
	story.Must(guard.Create(ctx, db)) // or guard.Schema() in a migration
	story.Tell(ctx, "redis://localhost:6379", order{db, guard})
}
