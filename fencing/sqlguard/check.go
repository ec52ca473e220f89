package sqlguard

import (
	"cmp"
	"context"
	"database/sql"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/internal/sqlmark"
)

// Tx is a transaction of [database/sql], or of a library on top of it: a *[sql.Tx],
// sqlx's *Tx, ent's *Tx (with its feature sql/execquery), the ConnPool of a GORM
// transaction.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	Rollback() error
}

// Check raises the mark of resource to token inside tx, or refuses. Until tx ends, every other Check of
// the same resource waits. The mark moves when tx commits, together with the other writes of tx; if tx
// is rolled back, it does not move.
//
// If token is lower than the mark, the error is a [*fencing.StaleError]. If token is 0, it matches
// [fencing.ErrMissing]. If resource is not a valid name, or token is above 2⁶³-1, which the column
// cannot hold, it matches [locker.ErrInvalid]. If the database cannot be reached, it matches
// [locker.ErrUnavailable]. If the transaction conflicts with others, [errors.As] finds the driver's
// error: repeat the whole transaction with the same token. After any error, Check has rolled tx back,
// so that nothing of it can be committed by mistake: Commit then returns [sql.ErrTxDone].
//
// Call Check before anything else in the transaction, and not inside a savepoint that may be rolled
// back separately: see the package comment.
func (g *Guard) Check(ctx context.Context, tx Tx, resource string, token fencing.Token) error {
	return g.core.Check(ctx, on{tx}, resource, token)
}

// Do begins a transaction, checks token for resource, calls fn in the transaction, and commits. If
// Check refuses, Do does not call fn. If fn returns an error or panics, the transaction is rolled back.
// In both cases the mark does not move, and nothing is written. fn may be nil: then only the mark
// moves. fn must return the error of any failing statement, and must neither commit nor roll back.
//
// If fn returns an error of the database, Do classifies it as Check does; it returns other errors
// unchanged. It does not repeat the transaction: after a serialization failure or a deadlock, in fn or
// at the commit, the caller repeats all of Do with the same token.
//
// If, during the commit, the connection is lost, ctx ends, or the database itself does not know
// (SQLSTATE 40003), it is unknown whether the write took place. The error then matches
// [fencing.ErrUnknown], and the token is still good. In go-sql-driver/mysql, commit and rollback ignore
// ctx: if the server does not answer, Do returns when the connection breaks, or after the readTimeout
// of the data source name.
func (g *Guard) Do(ctx context.Context, db *sql.DB, opts *sql.TxOptions, resource string, token fencing.Token,
	fn func(ctx context.Context, tx *sql.Tx) error) error {
	var tx *sql.Tx
	begin := func() (_ sqlmark.Tx, err error) { tx, err = db.BeginTx(ctx, opts); return on{tx}, err }
	write := func() error { return fn(ctx, tx) }
	if fn == nil {
		write = nil
	}
	return g.core.Do(ctx, resource, token, begin, write, func() error { return tx.Commit() })
}

// Raise moves the mark of resource up to token, in a transaction of its own, and writes nothing. After
// it has returned, no write with a lower token can be committed. It is for holders that read before the
// transaction in which they write: raise, then read. A transaction that checks first and then reads
// needs no Raise.
//
// After a conflict (a deadlock, a busy SQLite database), Raise tries again, for up to
// 10 s. Errors are those of [Guard.Do].
func (g *Guard) Raise(ctx context.Context, db *sql.DB, resource string, token fencing.Token) error {
	var opts *sql.TxOptions
	if g.dialect != SQLite { // the default may be a level with more conflicts
		opts = &sql.TxOptions{Isolation: sql.LevelReadCommitted}
	}
	return g.core.Raise(ctx, func() error { return g.Do(ctx, db, opts, resource, token, nil) })
}

// on is what the core needs of database/sql: of a transaction, or of a database.
type on struct {
	db interface {
		ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
		QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	}
}

func (o on) Exec(ctx context.Context, query string, args ...any) error {
	_, err := o.db.ExecContext(ctx, query, args...)
	return err
}

func (o on) Number(ctx context.Context, query string, args ...any) (n int64, err error) {
	rows, err := o.db.QueryContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	if rows.Next() {
		err = rows.Scan(&n)
	} else {
		err = rows.Err()
	}
	return n, cmp.Or(err, rows.Close()) // not joined: class looks for the driver's own
}

func (o on) Rollback(context.Context) error { return o.db.(Tx).Rollback() }
