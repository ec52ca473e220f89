// Command orm guards a row of PostgreSQL with sqlx, GORM and ent, one after another. The lock is in
// Redis.
package main

import (
	"context"
	"database/sql"
	"fmt"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/jmoiron/sqlx"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/golockers/locker/examples/internal/story"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/sqlguard"
)

// withSqlx: its *Tx is a transaction for Check.
func withSqlx(ctx context.Context, db *sqlx.DB, guard *sqlguard.Guard, token fencing.Token,
	state string) error {
	tx, err := db.BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // nothing to do after a commit
	if err = guard.Check(ctx, tx, "order/42", token); err != nil {
		return err // tx is rolled back
	}
	if _, err = tx.NamedExecContext(ctx, "UPDATE orders SET state = :state WHERE id = 42",
		map[string]any{"state": state}); err != nil {
		return err
	}
	return tx.Commit()
}

// withGORM: the ConnPool of a transaction is one for Check.
func withGORM(ctx context.Context, db *gorm.DB, guard *sqlguard.Guard, token fencing.Token,
	state string) error {
	return db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		if err := guard.Check(ctx, tx.Statement.ConnPool.(sqlguard.Tx), "order/42", token); err != nil {
			return err
		}
		return tx.Table("orders").Where("id = 42").Update("state", state).Error
	})
}

// withEnt: its client works inside the transaction of Do.
func withEnt(ctx context.Context, db *sql.DB, guard *sqlguard.Guard, token fencing.Token,
	state string) error {
	return guard.Do(ctx, db, nil, "order/42", token, func(ctx context.Context, tx *sql.Tx) error {
		driver := entsql.NewDriver(dialect.Postgres, entsql.Conn{ExecQuerier: tx})
		// client := ent.NewClient(ent.Driver(driver)), with what ent has generated for you, and without:
		query, args := entsql.Dialect(dialect.Postgres).Update("orders").
			Set("state", state).Where(entsql.EQ("id", 42)).Query()
		return driver.Exec(ctx, query, args, nil)
	})
}

func main() {
	ctx := context.Background()
	db, err := sql.Open("pgx", "postgres://postgres:secret@localhost:5432/postgres")
	story.Must(err)
	defer func() { _ = db.Close() }()
	_, err = db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS orders (id BIGINT PRIMARY KEY, state TEXT)")
	story.Must(err)
	_, err = db.ExecContext(ctx, "INSERT INTO orders VALUES (42, 'new') ON CONFLICT DO NOTHING")
	story.Must(err)
	guard, err := sqlguard.New(sqlguard.Postgres, nil)
	story.Must(err)
	story.Must(guard.Create(ctx, db)) // or guard.Statements().Create in a migration

	sqlxDB := sqlx.NewDb(db, "pgx")
	gormDB, err := gorm.Open(postgres.New(postgres.Config{Conn: db}), &gorm.Config{PrepareStmt: true})
	story.Must(err)
	for _, with := range []struct {
		name string
		set  func(ctx context.Context, token fencing.Token, state string) error
	}{
		{"sqlx", func(ctx context.Context, t fencing.Token, s string) error {
			return withSqlx(ctx, sqlxDB, guard, t, s)
		}},
		{"GORM", func(ctx context.Context, t fencing.Token, s string) error {
			return withGORM(ctx, gormDB, guard, t, s)
		}},
		{"ent", func(ctx context.Context, t fencing.Token, s string) error {
			return withEnt(ctx, db, guard, t, s)
		}},
	} {
		fmt.Println(with.name)
		story.Tell(ctx, "redis://localhost:6379", story.Order{
			Raise: func(ctx context.Context, resource string, token fencing.Token) error {
				return guard.Raise(ctx, db, resource, token)
			},
			Set: with.set,
			Get: story.Row(db),
		})
	}
}
