package sqlguard

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/golockers/locker/fencing"
	"github.com/golockers/locker/internal/clock"
	"github.com/golockers/locker/internal/sqlmark"
	"github.com/golockers/locker/internal/sqlstate"
)

// Tx is a transaction of [database/sql], or of a library on top of it: a *[sql.Tx],
// sqlx's *Tx, ent's *Tx (with its feature sql/execquery), the ConnPool of a GORM
// transaction.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	Rollback() error
}

// Check raises the mark of resource to token inside tx, or refuses. Until tx ends,
// every other Check of the same resource waits. The mark moves when tx commits,
// together with the other writes of tx, and stays where it was when tx is rolled back.
//
// If token is lower than the mark, the error is a [*fencing.StaleError]: give up,
// another holds the lock now. If token is 0, it matches [fencing.ErrMissing]. If
// resource is not a valid name, or token is above 2⁶³-1, which the column cannot hold,
// it matches [locker.ErrInvalid]. If the database cannot be reached, it matches
// [locker.ErrUnavailable]. If the transaction conflicts with others (a serialisation
// failure, a deadlock, a busy SQLite database), [errors.As] finds the driver's error:
// repeat the whole transaction with the same token.
//
// Whatever the error, Check has rolled tx back, so that nothing of it can be committed
// by mistake: Commit then returns [sql.ErrTxDone].
//
// Call Check before anything else in the transaction, and not inside a savepoint that
// may be rolled back by itself: see the package comment.
func (g *Guard) Check(ctx context.Context, tx Tx, resource string, token fencing.Token) error {
	err := g.check(ctx, tx, resource, token)
	if err != nil {
		// If Rollback fails, tx cannot be committed either.
		_ = tx.Rollback()
	}
	return err
}

func (g *Guard) check(ctx context.Context, tx Tx, resource string, token fencing.Token) error {
	const op = "check the token for"
	if err := sqlmark.Check(resource, token); err != nil {
		return failed(op, resource, err)
	}
	mark, err := g.raise(ctx, tx, resource, int64(token))
	if err != nil {
		return g.dialect.wrap(ctx, op, resource, err)
	}
	return sqlmark.Admit(guard, op, resource, token, mark)
}

// raise moves the mark up to token if the mark is lower, locks its row, and returns it.
func (g *Guard) raise(ctx context.Context, tx Tx, resource string, token int64) (mark int64, err error) {
	key := []byte(resource)
	if g.sql.Lock == "" {
		return one(tx.QueryContext(ctx, g.sql.Raise, key, token))
	}
	if _, err = tx.ExecContext(ctx, g.sql.Raise, key, token, token); err != nil {
		return 0, err
	}
	return one(tx.QueryContext(ctx, g.sql.Lock, key))
}

// one returns the number in the one row that rows have.
func one(rows *sql.Rows, err error) (n int64, _ error) {
	if err != nil {
		return 0, err
	}
	defer func() { _ = rows.Close() }()
	if !rows.Next() {
		return 0, cmp.Or(rows.Err(), sql.ErrNoRows)
	}
	if err = rows.Scan(&n); err != nil {
		return 0, err
	}
	return n, rows.Close()
}

// Do begins a transaction, checks token for resource, calls fn in the transaction, and
// commits. If Check refuses, Do does not call fn. If fn returns an error or panics, the
// transaction is rolled back. In both cases the mark stays where it was, and nothing is
// written. fn may be nil: then only the mark moves.
//
// fn must return the error of any statement that fails, and neither commit nor roll
// back. If fn returns an error of the database, Do classifies it as Check does: a lost
// connection matches [locker.ErrUnavailable]. Do returns other errors unchanged. It
// does not repeat the transaction: after a serialisation failure or a deadlock, from fn
// or from the commit, the caller repeats all of Do with the same token.
//
// If the connection is lost during the commit, or ctx ends, or the database itself does
// not know (SQLSTATE 40003), it is not known whether the write took place. The error
// then matches [fencing.ErrUnknown], and the token is still good. A commit of
// go-sql-driver/mysql does not obey ctx: if the server is silent, Do returns when the
// connection breaks, or after the readTimeout of the data source name.
func (g *Guard) Do(ctx context.Context, db *sql.DB, opts *sql.TxOptions, resource string, token fencing.Token,
	fn func(ctx context.Context, tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, opts)
	if err != nil {
		return g.dialect.wrap(ctx, "begin a transaction for", resource, err)
	}
	defer func() { _ = tx.Rollback() }() // nothing to do after a commit
	if err = g.Check(ctx, tx, resource, token); err != nil {
		return err
	}
	if fn != nil {
		if err = fn(ctx, tx); err != nil {
			lost := g.dialect.unreachable(tx.Rollback()) // the error of fn may be about another connection
			return g.told(ctx, "write to", resource, err, lost, sqlstate.Of(err) == undecided)
		}
	}
	if err = tx.Commit(); err != nil {
		unknown := ctx.Err() != nil || g.dialect.unreachable(err) || sqlstate.Of(err) == undecided
		return g.told(ctx, "commit the write to", resource, err, true, unknown)
	}
	return nil
}

// undecided is the SQLSTATE statement_completion_unknown.
const undecided = "40003"

// told is wrap for an error in the middle of a transaction. lost: if err is of the
// network, it is about the connection to the database. unknown: the write may have
// taken place. An error that is not the database's is returned unchanged.
func (g *Guard) told(ctx context.Context, op, resource string, err error, lost, unknown bool) error {
	var ours *sqlmark.Error
	switch {
	case unknown:
		return fmt.Errorf("%w: %w", g.dialect.wrap(ctx, op, resource, err), fencing.ErrUnknown)
	case errors.As(err, &ours):
		return err
	case lost || g.dialect.coded(err):
		return g.dialect.wrap(ctx, op, resource, err)
	}
	return err
}

// Raise moves the mark of resource up to token, in a transaction of its own, and writes
// nothing. After it has returned, no write with a lower token can be committed. It is
// for holders that read before the transaction in which they write: raise, then read. A
// transaction that checks first and reads after that needs no Raise.
//
// After a conflict (a deadlock, a busy SQLite database), Raise tries again, for up to
// 10 s. Errors are those of [Guard.Do].
func (g *Guard) Raise(ctx context.Context, db *sql.DB, resource string, token fencing.Token) error {
	const patience, pause = 10 * time.Second, 20 * time.Millisecond
	var opts *sql.TxOptions
	if g.dialect != SQLite { // the default may be a level with more conflicts
		opts = &sql.TxOptions{Isolation: sql.LevelReadCommitted}
	}
	for began := time.Now(); ; {
		err := g.Do(ctx, db, opts, resource, token, nil)
		if !g.dialect.conflict(err) || time.Since(began) > patience {
			return err
		}
		_ = clock.Sleep(ctx, clock.UpTo(pause)) // if ctx is over, the next attempt says so
	}
}
