package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/golockers/locker"
)

// Inspect implements [locker.Inspector]. How many wait is not known to the server.
func (b *Backend) Inspect(ctx context.Context, name string) (locker.State, error) {
	st := locker.State{Waiters: -1}
	err := b.rows(ctx, b.sql.look+"name = $1", []any{[]byte(name)}, one(&st))
	return st, err
}

// List implements [locker.Lister].
func (b *Backend) List(ctx context.Context, prefix string, found func(name string, st locker.State) error) error {
	return b.rows(ctx, b.sql.look+"substring(name FROM 1 FOR $2) = $1", []any{[]byte(prefix), len(prefix)}, found)
}

// Break implements [locker.Breaker]. Those who wait are told.
func (b *Backend) Break(ctx context.Context, name string) (locker.State, error) {
	st := locker.State{Waiters: -1}
	err := b.rows(ctx, b.sql.evict, []any{[]byte(name), b.key(name)}, one(&st))
	return st, err
}

func one(st *locker.State) func(string, locker.State) error {
	return func(_ string, found locker.State) error {
		*st = found
		return nil
	}
}

// rows calls found for each lock that a query returns. Its own error is returned as it is.
func (b *Backend) rows(ctx context.Context, query string, args []any, found func(string, locker.State) error) error {
	bounded, cancel := context.WithTimeout(ctx, b.opts.Timeout)
	defer cancel()
	var stopped error
	_, err := b.queryOnce(bounded, true, query, args, func(rows pgx.Rows) error {
		var name, label []byte
		var token, left int64
		if err := rows.Scan(&name, &label, &token, &left); err != nil {
			return err
		}
		st := locker.State{Held: true, Label: string(label), Token: uint64(token), Remaining: max(time.Duration(left)*time.Microsecond, 0), Waiters: -1}
		stopped = found(string(name), st)
		return stopped
	})
	switch {
	case stopped != nil:
		return stopped
	case err == nil, missingTable(err) && !b.opts.NoCreate:
		return nil // where there is no table, nobody has locked anything yet
	}
	return b.failure(ctx, err)
}
