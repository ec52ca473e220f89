package postgres

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/jackc/pgx/v5"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/probe"
	"github.com/golockers/locker/internal/sqlstate"
)

// Held is for locks that are in the database of what they protect. It returns nil if lease is held, and
// then nobody else is granted the lock until tx ends, however long that takes and whatever becomes of the
// lease; beside a shared lease, other sharers are. So what tx writes is either committed before the next
// holder is let in, or not at all: a holder that was paused past its lease is refused here or, if it stopped
// later, in nobody's way.
//
//	err = postgres.Held(ctx, tx, lease)
//
// Call it first in tx, which is the outermost transaction: what pgx calls a nested one is a savepoint, and
// the lock is not kept any more when that is rolled back. It costs a round trip, for which it waits
// Options.Timeout at most. Whenever it returns an error, whatever it is, it has rolled tx back, so that
// nothing of it can be committed by mistake. An error that matches [driver.ErrLost] says that the lease is
// over, or that tx is at REPEATABLE READ or above and began before the lock was granted. One with SQLSTATE
// 40001 is to be tried again, with the whole transaction.
//
// With Options.FailoverSafe, Held looks at the server alone. Whether the commit of tx reaches the standby is
// up to synchronous_commit. If its wait for the standby is cancelled, the commit succeeds with a warning, and
// a fail-over may lose tx: all of it, never a part.
//
// A lease of another backend matches [driver.ErrInvalid].
func Held(ctx context.Context, tx pgx.Tx, lease driver.Lease) error {
	var h *hold
	err := lease.Err()
	switch {
	case err != nil:
	case !lease.As(&h):
		err = fmt.Errorf("its lock is not one of package postgres: %w", driver.ErrInvalid)
	default:
		err = h.keep(ctx, tx)
	}
	if err != nil {
		// Its own error changes nothing: tx cannot be committed after this.
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), defaultTimeout)
		defer cancel()
		_ = tx.Rollback(bounded)
		return fmt.Errorf("postgres: the transaction was rolled back: lock %q: %w", lease.Name(), err)
	}
	return nil
}

// keep finds the lock, and keeps it from being granted to another until tx ends, in one round trip.
func (h *hold) keep(ctx context.Context, tx pgx.Tx) error {
	bounded, cancel := context.WithTimeout(ctx, h.b.opts.Timeout) // tx may have the pool's last connection
	defer cancel()
	s, err := h.b.ready(bounded, onDisk)
	if err != nil {
		return h.b.failure(ctx, err)
	}
	batch, held := &pgx.Batch{}, false
	batch.Queue(latchSQL, s.key(h.name))
	batch.Queue("SAVEPOINT locker_held")
	batch.Queue(s.held, []byte(h.name), h.sharer, h.owner).QueryRow(func(row pgx.Row) error {
		err := row.Scan(&held)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	batch.Queue("ROLLBACK TO SAVEPOINT locker_held")
	batch.Queue("RELEASE SAVEPOINT locker_held")
	if err := tx.SendBatch(bounded, batch).Close(); err != nil {
		return h.b.failure(ctx, err)
	}
	if !held {
		return h.lost()
	}
	return nil
}

// As implements [driver.Aser], for Held.
func (h *hold) As(target any) bool {
	switch target := target.(type) {
	case **hold:
		*target = h
	case *probe.Remains:
		*target = func(ctx context.Context) error {
			return h.b.operate(ctx, untilACrash, func(s *statements, trip *pgx.Batch) {
				trip.Queue("DELETE FROM "+s.table+" WHERE name = $1", []byte(h.name))
			})
		}
	default:
		return false
	}
	return true
}

// RaiseToken implements [driver.TokenRaiser]. Tokens of all names rise.
func (h *hold) RaiseToken(ctx context.Context, token uint64) error {
	if token > math.MaxInt64/2 {
		return invalid("the token %d is more than tokens can go on from, which is %d",
			token, math.MaxInt64/2)
	}
	err := h.b.operate(ctx, onStandby, func(s *statements, trip *pgx.Batch) {
		trip.Queue(latchSQL, s.key(h.name))
		trip.Queue(s.mine, []byte(h.name), h.sharer, h.owner)
		trip.Queue(s.floor, int64(token))
		trip.Queue(s.raise, int64(token))
	})
	if sqlstate.Of(err) == sqlstate.NoNumber {
		return h.lost()
	}
	return err
}
