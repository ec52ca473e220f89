package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"

	_ "modernc.org/sqlite"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/sqlguard"
	"github.com/golockers/locker/memory"
)

// A lock, a paused holder who comes back too late, and a SQLite database that
// refuses what he writes.
func Example_sqlite() {
	ctx := context.Background()
	db, err := sql.Open("sqlite", "file:example?mode=memory&cache=shared&_pragma=busy_timeout(5000)&_txlock=immediate")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1) // a database in memory is that of its connection
	if _, err = db.ExecContext(ctx, `CREATE TABLE invoices (id INTEGER PRIMARY KEY, state TEXT);
		INSERT INTO invoices VALUES (1234, 'new')`); err != nil {
		log.Fatal(err)
	}
	guard, err := sqlguard.New(sqlguard.SQLite, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err = guard.Create(ctx, db); err != nil {
		log.Fatal(err)
	}

	client := locker.New(memory.New(), nil)
	defer func() { _ = client.Close() }()
	locks, err := fencing.Require(client)
	if err != nil {
		log.Fatal(err)
	}

	// What a holder does: it writes with its token, in one transaction with the check.
	set := func(ctx context.Context, state string) error {
		token, err := fencing.TokenFor(ctx, "invoice/1234")
		if err != nil {
			return err
		}
		return guard.Do(ctx, db, nil, "invoice/1234", token, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "UPDATE invoices SET state = ? WHERE id = 1234", state)
			return err
		})
	}

	var paused context.Context // the first holder stops here, with its token
	err = fencing.Do(ctx, locks, "invoice/1234", func(ctx context.Context) error {
		paused = context.WithoutCancel(ctx)
		return set(ctx, "printed")
	})
	fmt.Println("first holder:", err)
	err = fencing.Do(ctx, locks, "invoice/1234", func(ctx context.Context) error {
		return set(ctx, "sent")
	})
	fmt.Println("second holder:", err)

	err = set(paused, "printed again") // it does not know that its lease is over
	fmt.Println("paused holder is stale:", errors.Is(err, fencing.ErrStale))

	var state string
	if err = db.QueryRowContext(ctx, "SELECT state FROM invoices WHERE id = 1234").Scan(&state); err != nil {
		log.Fatal(err)
	}
	fmt.Println("state:", state)
	// Output:
	// first holder: <nil>
	// second holder: <nil>
	// paused holder is stale: true
	// state: sent
}
