// Package pgxguard refuses stale fencing tokens in PostgreSQL, in pgx transactions. It is package
// sqlguard for programs that use pgx directly and not [database/sql]; package sqlguard describes the
// table and the promises, which are the same.
//
//	guard, err := pgxguard.New(nil)
//	…
//	err = guard.Create(ctx, pool) // or sqlguard's Statements.Create in a migration
//	…
//	write := func(ctx context.Context, tx pgx.Tx) error {
//		_, err := tx.Exec(ctx, "UPDATE invoices SET state = 'sent' WHERE id = 1234")
//		return err
//	}
//	err = guard.Do(ctx, pool, pgx.TxOptions{}, "invoice/1234", token, write)
//
// If package postgres keeps the lock in the same database, its function Held needs neither marks nor
// tokens. To read a mark, or to remove that of a deleted resource or old ones, execute the statements
// Mark, Forget and Sweep of [sqlguard.Guard.Statements].
package pgxguard

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/fencing/sqlguard"
	"github.com/golockers/locker/internal/sqlmark"
)

// Guard keeps the marks of resources in a table of the resources' database. It has no connection and no
// state, and its methods may be called from many goroutines at once.
type Guard struct{ core sqlmark.Guard }

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
	return &Guard{sqlmark.Guard{Name: "pgxguard", Class: class, SQL: sqlmark.Statements(g.Statements())}}, nil
}

// Create creates the table of marks if it does not exist. Several processes may call it at the same
// time.
func (g *Guard) Create(ctx context.Context, db Executor) error { return g.core.Create(ctx, on{db}) }

// Check raises the mark of resource to token inside tx, or refuses, as [sqlguard.Guard.Check]
// does. Call it before anything else in the transaction. Whatever its error, it has rolled tx back.
func (g *Guard) Check(ctx context.Context, tx pgx.Tx, resource string, token fencing.Token) error {
	return g.core.Check(ctx, on{tx}, resource, token)
}

// Do begins a transaction, checks token for resource, calls fn in the transaction, and commits, as
// [sqlguard.Guard.Do] does; fn may be nil. After a conflict (SQLSTATE 40001, 40P01), the caller
// repeats all of Do with the same token.
func (g *Guard) Do(ctx context.Context, db DB, opts pgx.TxOptions, resource string, token fencing.Token,
	fn func(ctx context.Context, tx pgx.Tx) error) error {
	var tx pgx.Tx
	begin := func() (_ sqlmark.Tx, err error) { tx, err = db.BeginTx(ctx, opts); return on{tx}, err }
	write := func() error { return fn(ctx, tx) }
	if fn == nil {
		write = nil
	}
	return g.core.Do(ctx, resource, token, begin, write, func() error { return tx.Commit(ctx) })
}

// Raise moves the mark of resource up to token, in a transaction of its own, and writes nothing: see
// [sqlguard.Guard.Raise].
func (g *Guard) Raise(ctx context.Context, db DB, resource string, token fencing.Token) error {
	return g.core.Raise(ctx, func() error { return g.Do(ctx, db, pgx.TxOptions{}, resource, token, nil) })
}

// on is what the core needs of pgx.
type on struct{ db Executor }

func (o on) Exec(ctx context.Context, query string, args ...any) error {
	_, err := o.db.Exec(ctx, query, args...)
	return err
}

func (o on) Number(ctx context.Context, query string, args ...any) (n int64, err error) {
	if err = o.db.QueryRow(ctx, query, args...).Scan(&n); errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return n, err
}

// Rollback has its own bound, so that a silent server does not delay a caller whose context has ended.
// pgx then closes the connection, so that nothing is committed.
func (o on) Rollback(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, rollbackTimeout)
	defer cancel()
	return o.db.(pgx.Tx).Rollback(ctx)
}

const rollbackTimeout = 5 * time.Second

func class(err error) sqlmark.Class {
	c := sqlmark.OfState(err)
	if c == sqlmark.Foreign && !errors.Is(err, pgx.ErrTxClosed) && !errors.Is(err, pgx.ErrTxCommitRollback) {
		return sqlmark.Lost
	}
	return c
}
