// Command sqlite guards a row of a SQLite database. The lock is on the same host.
//
// The driver is modernc.org/sqlite. mattn/go-sqlite3's is called sqlite3, and has other parameter
// names: file:orders.db?_busy_timeout=5000&_txlock=immediate.
package main

import (
	"context"
	"database/sql"
	"os"

	_ "modernc.org/sqlite"

	"github.com/golockers/locker/examples/internal/story"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/sqlguard"
)

func main() {
	ctx := context.Background()
	db, err := sql.Open("sqlite", "file:orders.db?_pragma=busy_timeout(5000)&_txlock=immediate")
	story.Must(err)
	defer func() { _ = db.Close() }()
	_, err = db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, state TEXT)")
	story.Must(err)
	guard, err := sqlguard.New(sqlguard.SQLite, nil)
	story.Must(err)
	story.Must(guard.Create(ctx, db))                  // or guard.Statements().Create in a migration
	story.Must(os.MkdirAll("/var/lock/orders", 0o700)) // usually part of the installation
	story.Tell(ctx, "file:///var/lock/orders", story.Order{
		Raise: func(ctx context.Context, resource string, token fencing.Token) error {
			return guard.Raise(ctx, db, resource, token)
		},
		Set: func(ctx context.Context, token fencing.Token, state string) error {
			return guard.Do(ctx, db, nil, story.Lock, token, func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx,
					"INSERT INTO orders VALUES (42, ?) ON CONFLICT DO UPDATE SET state = excluded.state", state)
				return err
			})
		},
		Get: story.Row(db),
	})
}
