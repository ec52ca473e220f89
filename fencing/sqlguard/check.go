package sqlguard

import (
	"context"
	"database/sql"
	"fmt"
	"math"

	"github.com/golockers/locker"
	"github.com/golockers/locker/fencing"
)

// Check raises the mark of resource to token inside tx, or refuses. Until tx
// ends, everybody else who checks the same resource waits. The mark moves when
// tx commits, together with what else tx writes, and stays where it was when
// tx is rolled back.
//
// A token that is lower than the mark is a [*fencing.StaleError]: give up, the
// lock is another's now. A token of 0 matches [fencing.ErrMissing]. A resource
// that is no name, or a token above 2⁶³-1, which the column cannot hold, matches
// [locker.ErrInvalid].
//
// Whenever Check returns an error, whatever it is, it has rolled tx back, so
// that nothing of it can be committed by mistake: Commit then returns
// [sql.ErrTxDone]. That the transaction met others (a serialisation failure, a
// deadlock, a busy SQLite database) is the driver's error, which [errors.As]
// finds: do the whole transaction again, with the same token. A database that
// cannot be reached matches [locker.ErrUnavailable].
//
// Call Check before anything else in the transaction, and not inside a
// savepoint that may be rolled back by itself: see the package comment.
func (g *Guard) Check(ctx context.Context, tx *sql.Tx, resource string, token fencing.Token) error {
	err := g.check(ctx, tx, resource, token)
	if err != nil {
		// Its own error changes nothing: tx cannot be committed after this.
		_ = tx.Rollback()
	}
	return err
}

func (g *Guard) check(ctx context.Context, tx *sql.Tx, resource string, token fencing.Token) error {
	const op = "check the token for"
	if err := fencing.CheckName(resource); err != nil {
		return failed(op, resource, err)
	}
	if err := token.Check(); err != nil {
		return failed(op, resource, err)
	}
	if token > math.MaxInt64 {
		return failed(op, resource, fmt.Errorf("the token %d is more than a signed 64-bit column can hold, which is %d: %w",
			token, int64(math.MaxInt64), locker.ErrInvalid))
	}
	mark, err := g.raise(ctx, tx, resource, int64(token))
	if err != nil {
		return g.dialect.wrap(ctx, op, resource, err)
	}
	if mark <= 0 {
		return failed(op, resource, fmt.Errorf("its mark in the table is %d, which is no token: somebody else has written it", mark))
	}
	return fencing.Admit(resource, token, fencing.Token(mark))
}

// raise returns the mark after it was moved up to token, if it was lower. Its
// row is locked then.
func (g *Guard) raise(ctx context.Context, tx *sql.Tx, resource string, token int64) (mark int64, err error) {
	key := []byte(resource)
	args := []any{key}
	for range g.sql.raiseArgs {
		args = append(args, token)
	}
	if g.sql.lock == "" {
		err = tx.QueryRowContext(ctx, g.sql.raise, args...).Scan(&mark)
		return mark, err
	}
	if _, err = tx.ExecContext(ctx, g.sql.raise, args...); err != nil {
		return 0, err
	}
	err = tx.QueryRowContext(ctx, g.sql.lock, key).Scan(&mark)
	return mark, err
}

// Do begins a transaction, checks token for resource, calls fn in it, and
// commits. If Check refuses, fn is not called; if fn returns an error or
// panics, the transaction is rolled back. Either way the mark stays where it
// was, and nothing is written.
//
// fn must return the error of any statement that fails, and neither commit nor
// roll back. Do does not try again: a serialisation failure or a deadlock, from
// fn or from the commit, is the caller's to repeat, all of Do with the same
// token. If the connection is lost during the commit, or ctx ends, it is not
// known whether the write took place, and the error matches
// [fencing.ErrUnknown]; the token is still good. A commit of go-sql-driver/mysql
// does not heed ctx: where the server is silent, Do returns when the connection
// breaks, or after the readTimeout of the data source name.
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
	if err = fn(ctx, tx); err != nil {
		return err
	}
	err = tx.Commit()
	unknown := ctx.Err() != nil || g.dialect.unreachable(err)
	err = g.dialect.wrap(ctx, "commit the write to", resource, err)
	if err != nil && unknown {
		return fmt.Errorf("%w: %w", err, fencing.ErrUnknown)
	}
	return err
}
