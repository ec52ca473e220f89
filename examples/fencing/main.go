// Command fencing is a worker that adds to an account in PostgreSQL, under a lock in Redis, etcd or
// another service given by -lock. It needs both, and two terminals:
//
//	go run ./fencing -stop    stops itself between its check of the lease and its write, as a machine may
//	go run ./fencing          waits until the first one's lease has ended, and adds
//	kill -CONT <pid>          wakes the first, whose write is refused
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/golockers/locker/backends"
	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/sqlguard"
)

var (
	lockURL = flag.String("lock", "redis://localhost:6379?ttl=5s", "the lock service")
	dbURL   = flag.String("db",
		"postgres://postgres:secret@localhost:5432/postgres?idle_in_transaction_session_timeout=5s",
		"the database")
	stop = flag.Bool("stop", false, "stop before the write")
)

const account = "account/42" // the lock, and the resource that it protects

func main() {
	flag.Parse()
	ctx := context.Background()
	client, err := backends.Open(ctx, *lockURL, nil)
	must(err)
	defer client.Close()
	locks, err := fencing.WithTokens(client) // an error if the backend has no tokens
	must(err)
	db, err := sql.Open("pgx", *dbURL)
	must(err)
	defer db.Close()
	guard, err := sqlguard.New(sqlguard.Postgres, nil)
	must(err)
	must(guard.Create(ctx, db)) // or guard.Statements().Create in a migration
	_, err = db.ExecContext(ctx,
		"CREATE TABLE IF NOT EXISTS accounts (name TEXT PRIMARY KEY, balance BIGINT NOT NULL)")
	must(err)
	_, err = db.ExecContext(ctx, "INSERT INTO accounts VALUES ($1, 100) ON CONFLICT DO NOTHING", account)
	must(err)

	err = fencing.Do(ctx, locks, account, func(ctx context.Context) error {
		token, err := fencing.TokenFor(ctx, account)
		if err != nil {
			return err
		}
		// Raise before you read: from here on nobody with a lower token can write.
		if err = guard.Raise(ctx, db, account, token); err != nil {
			return err
		}
		var balance int
		if err = db.QueryRowContext(ctx, "SELECT balance FROM accounts WHERE name = $1", account).
			Scan(&balance); err != nil {
			return err
		}
		fmt.Printf("token %d, balance %d\n", token, balance)
		if *stop {
			ctx = stopped(ctx)
		}
		return guard.Do(ctx, db, nil, account, token, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "UPDATE accounts SET balance = $1 WHERE name = $2", balance+10, account)
			return err
		})
	})
	if errors.Is(err, fencing.ErrStale) {
		log.Fatal("refused: ", err) // stop: there is a later holder
	}
	must(err)
	fmt.Println("written")
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// stopped stops the process until it gets SIGCONT. By then the lease has ended, and ctx with it. Data
// already in a socket would be written anyway, so the returned context does not end.
func stopped(ctx context.Context) context.Context {
	fmt.Println("stopped; run another, and then: kill -CONT", os.Getpid())
	goesOn := make(chan os.Signal, 1)
	signal.Notify(goesOn, syscall.SIGCONT)
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	<-goesOn
	return context.WithoutCancel(ctx)
}
