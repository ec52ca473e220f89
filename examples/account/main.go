// Command account adds to an account in PostgreSQL, under a lock in Redis. PostgreSQL refuses a write that comes late.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/sqlguard"
	"github.com/golockers/locker/single"
)

const account = "account/42" // the name of the lock, and of the resource that it protects

func main() {
	ctx := context.Background()
	client, err := locker.Open(ctx, "redis://localhost:6379", nil, single.Openers)
	must(err)
	defer client.Close()
	locks, err := fencing.WithTokens(client) // an error if the service has no tokens
	must(err)
	db, err := sql.Open("pgx", "postgres://postgres:secret@localhost:5432/postgres")
	must(err)
	guard, err := sqlguard.New(sqlguard.Postgres, nil)
	must(err)
	must(guard.Create(ctx, db)) // the table of marks; in a migration, guard.Statements().Create

	_, err = db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS accounts (name TEXT PRIMARY KEY, balance BIGINT)")
	must(err)
	_, err = db.ExecContext(ctx, "INSERT INTO accounts VALUES ($1, 100) ON CONFLICT DO NOTHING", account)
	must(err)

	err = fencing.Do(ctx, locks, account, func(ctx context.Context) error {
		token, err := fencing.TokenFor(ctx, account)
		if err != nil {
			return err
		}
		return guard.Do(ctx, db, nil, account, token, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "UPDATE accounts SET balance = balance + 10 WHERE name = $1", account)
			return err
		})
	})
	if errors.Is(err, fencing.ErrStale) {
		log.Fatal("refused, a later holder was here: ", err)
	}
	must(err)
	fmt.Println("written")
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
