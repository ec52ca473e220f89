package postgres

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/probe"
)

// Held is for locks that are in the database of what they protect. It returns nil if lease is held, and
// then nobody else is granted the lock until tx ends, however long that takes and whatever becomes of the
// lease; beside a shared lease, other sharers are. So what tx writes is either committed before the next
// holder is let in, or not at all: a holder that was paused past its lease is refused here or, if it stopped
// later, in nobody's way.
//
//	err = postgres.Held(ctx, tx, lease)
//
// Call it first in the transaction. It costs a round trip, for which it waits Options.Timeout at most. Whenever
// it returns an error, whatever it is, it has rolled tx back, so that nothing of it can be committed by mistake.
// An error that matches [driver.ErrLost] says that the lease is over, or that tx is at REPEATABLE READ or above
// and began before the lock was granted. One with SQLSTATE 40001 is to be tried again, with the whole
// transaction.
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
	s, err := h.b.readyFor(bounded, onDisk)
	if err != nil {
		return h.b.failure(ctx, err)
	}
	batch, held := &pgx.Batch{}, false
	find, holder := s.held, any(h.owner)
	if h.kind == &h.b.sharing {
		find, holder = s.heldShared, []byte(request{name: h.name, owner: h.owner}.entry())
	}
	batch.Queue("SELECT pg_advisory_xact_lock_shared($1)", s.key(h.name))
	batch.Queue("SAVEPOINT locker_held")
	batch.Queue(find, []byte(h.name), holder).QueryRow(func(row pgx.Row) error {
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
			s, err := h.b.ready(ctx)
			if err == nil {
				_, err = h.b.pool.Exec(ctx, "DELETE FROM "+s.table+" WHERE name = $1", []byte(h.name))
			}
			return err
		}
	default:
		return false
	}
	return true
}

// RaiseToken implements [driver.TokenRaiser]. Tokens of all names rise.
func (h *hold) RaiseToken(ctx context.Context, token uint64) error {
	b := h.b
	if token > math.MaxInt64/2 {
		return invalid("the token %d is more than a sequence can go on from, which is %d",
			token, math.MaxInt64/2)
	}
	bounded, cancel := context.WithTimeout(ctx, b.opts.Timeout)
	defer cancel()
	err := b.pool.AcquireFunc(bounded, func(conn *pgxpool.Conn) error {
		s, err := b.ready(bounded)
		if err != nil {
			return err
		}
		err = pgx.BeginTxFunc(bounded, conn, readCommitted, func(tx pgx.Tx) error {
			return b.raise(bounded, tx, s, int64(token), func() error { return h.keep(bounded, tx) })
		})
		if err != nil {
			return err
		}
		return b.confirm(bounded, conn, onStandby)
	})
	if err != nil && !errors.Is(err, driver.ErrLost) {
		return b.failure(ctx, err)
	}
	return err
}
