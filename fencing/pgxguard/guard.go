// Package pgxguard refuses stale fencing tokens in PostgreSQL, in transactions of pgx. It is
// package sqlguard for programs that use pgx itself and not [database/sql]: package sqlguard
// describes the table and the promises, which are the same.
//
//	guard, err := pgxguard.New(nil)
//	…
//	err = guard.Create(ctx, pool) // or guard.Schema() in a migration
//	…
//	write := func(ctx context.Context, tx pgx.Tx) error {
//		_, err := tx.Exec(ctx, "UPDATE invoices SET state = 'sent' WHERE id = 1234")
//		return err
//	}
//	err = guard.Do(ctx, pool, pgx.TxOptions{}, "invoice/1234", token, write)
//
// If the lock is in the same database, by package postgres, its function Held needs neither marks
// nor tokens. To remove old marks, call [sqlguard.Guard.Sweep] with the database that pgx's
// stdlib.OpenDBFromPool returns.
package pgxguard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/sqlguard"
	"github.com/golockers/locker/internal/clock"
	"github.com/golockers/locker/internal/sqlmark"
	"github.com/golockers/locker/internal/sqlstate"
)

// Guard keeps the marks of resources in a table of the database that has the resources. It has no
// connection and no state, and its methods may be called from many goroutines at once.
type Guard struct{ sql sqlguard.Statements }

// DB is a *pgxpool.Pool or a *pgx.Conn.
type DB interface {
	BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error)
	Executor
}

// Executor is a *pgxpool.Pool, a *pgx.Conn or a pgx.Tx.
type Executor interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// New returns a Guard. It does no I/O. Its errors are those of [sqlguard.New].
func New(opts *sqlguard.Options) (*Guard, error) {
	g, err := sqlguard.New(sqlguard.Postgres, opts)
	if err != nil {
		return nil, err
	}
	return &Guard{g.Statements()}, nil
}

// Schema returns the statement that creates the table of marks; see [sqlguard.Guard.Schema].
func (g *Guard) Schema() string { return g.sql.Create }

// Create creates the table of marks if it does not exist. Several processes may call it at the
// same time.
func (g *Guard) Create(ctx context.Context, db Executor) (err error) {
	for range 3 { // if another creates it at the same time, this fails, and finds it next time
		if _, err = db.Exec(ctx, g.sql.Create); !sqlstate.TheyMeet(sqlstate.Of(err)) {
			break
		}
	}
	return wrap(ctx, "create the table", "", err)
}

// Check raises the mark of resource to token inside tx, or refuses, as [sqlguard.Guard.Check]
// does. Call it before anything else in the transaction. Whatever its error, it has rolled tx back.
func (g *Guard) Check(ctx context.Context, tx pgx.Tx, resource string, token fencing.Token) error {
	err := g.check(ctx, tx, resource, token)
	if err != nil {
		// If Rollback fails, tx cannot be committed either.
		_ = tx.Rollback(context.WithoutCancel(ctx))
	}
	return err
}

func (g *Guard) check(ctx context.Context, tx pgx.Tx, resource string, token fencing.Token) error {
	const op = "check the token for"
	if err := sqlmark.Check(resource, token); err != nil {
		return sqlmark.Failed(guard, op, resource, err)
	}
	var mark int64
	if err := tx.QueryRow(ctx, g.sql.Raise, []byte(resource), int64(token)).Scan(&mark); err != nil {
		return wrap(ctx, op, resource, err)
	}
	return sqlmark.Admit(guard, op, resource, token, mark)
}

// Do begins a transaction, checks token for resource, calls fn in the transaction, and commits, as
// [sqlguard.Guard.Do] does. If the connection is lost during the commit, or ctx ends, it is not
// known whether the write took place. The error then matches [fencing.ErrUnknown], and the token is
// still good. After a conflict (SQLSTATE 40001, 40P01), the caller repeats all of Do with the same
// token.
func (g *Guard) Do(ctx context.Context, db DB, opts pgx.TxOptions, resource string, token fencing.Token,
	fn func(ctx context.Context, tx pgx.Tx) error) error {
	tx, err := db.BeginTx(ctx, opts)
	if err != nil {
		return wrap(ctx, "begin a transaction for", resource, err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // nothing to do after a commit
	if err = g.Check(ctx, tx, resource, token); err != nil {
		return err
	}
	if fn != nil {
		if err = fn(ctx, tx); err != nil {
			if sqlstate.Of(err) != "" || tx.Conn().IsClosed() {
				err = wrap(ctx, "write to", resource, err)
			}
			return err
		}
	}
	err = tx.Commit(ctx)
	undone := errors.Is(err, pgx.ErrTxClosed) || errors.Is(err, pgx.ErrTxCommitRollback)
	unknown := err != nil && !undone && undecided(err)
	if err = wrap(ctx, "commit the write to", resource, err); unknown {
		return fmt.Errorf("%w: %w", err, fencing.ErrUnknown)
	}
	return err
}

// undecided reports whether an error of a commit leaves open whether it happened.
func undecided(err error) bool {
	state := sqlstate.Of(err)
	return state == "" && !pgconn.SafeToRetry(err) || state == "40003" || sqlstate.Unavailable(state)
}

// Raise moves the mark of resource up to token, in a transaction of its own, and writes nothing: see
// [sqlguard.Guard.Raise]. After a conflict it tries again, for up to 10 s.
func (g *Guard) Raise(ctx context.Context, db DB, resource string, token fencing.Token) error {
	for begin := time.Now(); ; {
		err := g.Do(ctx, db, pgx.TxOptions{}, resource, token, nil)
		if !sqlstate.Met(sqlstate.Of(err)) || time.Since(begin) > 10*time.Second {
			return err
		}
		if clock.Sleep(ctx, clock.UpTo(20*time.Millisecond)) != nil {
			return err
		}
	}
}

// Forget removes the mark of a resource that is no more, inside the transaction that deletes the
// resource: see [sqlguard.Guard.Forget].
func (g *Guard) Forget(ctx context.Context, tx pgx.Tx, resource string) error {
	if err := fencing.CheckName(resource); err != nil {
		return sqlmark.Failed(guard, "forget the mark of", resource, err)
	}
	_, err := tx.Exec(ctx, g.sql.Forget, []byte(resource))
	return wrap(ctx, "forget the mark of", resource, err)
}

// Mark returns the highest token that was accepted for resource, or false if there is none. It is
// for people and for tests: only Check decides.
func (g *Guard) Mark(ctx context.Context, db Executor, resource string) (fencing.Token, bool, error) {
	if err := fencing.CheckName(resource); err != nil {
		return 0, false, sqlmark.Failed(guard, "read the mark of", resource, err)
	}
	var mark int64
	err := db.QueryRow(ctx, g.sql.Mark, []byte(resource)).Scan(&mark)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, false, nil
	}
	return fencing.Token(mark), err == nil, wrap(ctx, "read the mark of", resource, err)
}

// guard begins the errors of this package.
const guard = "pgxguard"

// wrap makes the error for the caller.
func wrap(ctx context.Context, op, resource string, err error) error {
	state := sqlstate.Of(err)
	unreachable := sqlstate.Unavailable(state) || state == "" && !errors.Is(err, pgx.ErrTxClosed)
	return sqlmark.Wrap(ctx, guard, op, resource, err, unreachable)
}
