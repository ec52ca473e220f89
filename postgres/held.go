package postgres

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/jackc/pgx/v5"

	"github.com/golockers/locker"
)

// Held is for locks that are in the database of what they protect. It returns nil if lease is held, and
// then nobody else is granted the lock until tx ends, however long that takes and whatever becomes of the
// lease. So what tx writes is either committed before the next holder is let in, or not at all: a holder
// that was paused past its lease is refused here or, if it stopped later, in nobody's way.
//
//	err = postgres.Held(ctx, tx, lease)
//
// Call it first in the transaction. It costs a round trip. Whenever it returns an error, whatever it is, it
// has rolled tx back, so that nothing of it can be committed by mistake. An error that matches
// [locker.ErrLost] says that the lease is over, or that tx is at REPEATABLE READ or above and began before
// the lock was granted. One with SQLSTATE 40001 is to be tried again, with the whole transaction.
//
// A lease of another backend matches [locker.ErrInvalid].
func Held(ctx context.Context, tx pgx.Tx, lease *locker.Lease) error {
	var h *hold
	var held bool
	err := lease.Err()
	switch {
	case err != nil:
	case !lease.As(&h):
		err = fmt.Errorf("its lock is not one of package postgres: %w", locker.ErrInvalid)
	default:
		err = tx.QueryRow(ctx, h.b.sql.held, []byte(h.name), h.owner, h.b.key(h.name)).Scan(&held)
		if errors.Is(err, pgx.ErrNoRows) {
			err = h.lost()
		} else if err != nil {
			err = h.b.failure(ctx, err)
		}
	}
	if err != nil {
		// Its own error changes nothing: tx cannot be committed after this.
		_ = tx.Rollback(context.WithoutCancel(ctx))
		return fmt.Errorf("postgres: the transaction was rolled back: lock %q: %w", lease.Name(), err)
	}
	return nil
}

// As implements locker.Aser, for Held.
func (h *hold) As(target any) bool {
	p, ok := target.(**hold)
	if ok {
		*p = h
	}
	return ok
}

// RaiseToken implements locker.TokenRaiser. Tokens of all names rise.
func (h *hold) RaiseToken(ctx context.Context, token uint64) error {
	b := h.b
	if token > math.MaxInt64/2 {
		return invalid("the token %d is more than a sequence can go on from, which is %d", token, math.MaxInt64/2)
	}
	bounded, cancel := context.WithTimeout(ctx, b.opts.Timeout)
	defer cancel()
	err := pgx.BeginFunc(bounded, b.pool, func(tx pgx.Tx) error {
		// Two who raise it come one after the other.
		if _, err := tx.Exec(bounded, "SELECT pg_advisory_xact_lock($1)", b.key("")); err != nil {
			return err
		}
		var held bool
		if err := tx.QueryRow(bounded, b.sql.held, []byte(h.name), h.owner, b.key(h.name)).Scan(&held); err != nil {
			return err
		}
		_, err := tx.Exec(bounded, b.sql.raise, int64(token))
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return h.lost()
	}
	if err != nil {
		return b.failure(ctx, err)
	}
	return nil
}
