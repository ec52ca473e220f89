package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/golockers/locker"
)

// Inspect implements [locker.Inspector]. The server does not know how many wait.
func (b *Backend) Inspect(ctx context.Context, name string) (locker.State, error) {
	st := locker.State{Waiters: -1}
	query := func(s *statements) string { return s.look + "l.name = $1" }
	err := b.rows(ctx, query, []any{[]byte(name)}, one(&st))
	return st, err
}

// List implements [locker.Lister].
func (b *Backend) List(
	ctx context.Context, prefix string, found func(name string, st locker.State) error,
) error {
	query := func(s *statements) string { return s.look + "substring(l.name FROM 1 FOR $2) = $1" }
	return b.rows(ctx, query, []any{[]byte(prefix), len(prefix)}, found)
}

// Break implements [locker.Breaker]. The waiters are told.
func (b *Backend) Break(ctx context.Context, name string) (locker.State, error) {
	st := locker.State{Waiters: -1}
	err := b.rows(ctx, func(s *statements) string { return s.evict }, []any{[]byte(name)}, one(&st))
	return st, err
}

func one(st *locker.State) func(string, locker.State) error {
	return func(_ string, found locker.State) error {
		*st = found
		return nil
	}
}

// rows calls found for each lock that a query returns. Its own error is returned as it is. Where there is no
// table, nobody has locked anything yet.
func (b *Backend) rows(
	ctx context.Context, query func(*statements) string, args []any, found func(string, locker.State) error,
) error {
	bounded, cancel := context.WithTimeout(ctx, b.opts.Timeout)
	defer cancel()
	s, err := b.found.Load(), error(nil)
	var all []lock
	for range 2 { // the table may have moved
		if s == nil {
			if s, _, err = b.locate(bounded); err != nil || s == nil {
				break
			}
		}
		if all, err = b.locks(bounded, query(s), args); !missingTable(err) {
			break
		}
		s = nil
	}
	if err == nil && s == nil && b.opts.NoCreate {
		err = errNoTable
	}
	if err != nil && (b.opts.NoCreate || !missingTable(err)) {
		return b.failure(ctx, err)
	}
	for _, l := range all {
		if err := found(l.name, l.state); err != nil {
			return err
		}
	}
	return nil
}

// lock is a row.
type lock struct {
	name  string
	state locker.State
}

func (b *Backend) locks(ctx context.Context, query string, args []any) (all []lock, err error) {
	var name, label []byte
	var labels [][]byte
	var token, left int64
	var sharers int
	err = b.send(ctx, onDisk, func(batch *pgx.Batch) {
		all = nil
		batch.Queue(query, args...).Query(each([]any{&name, &label, &token, &left, &sharers, &labels}, func() {
			st := locker.State{
				Held: true, Label: string(label), Token: uint64(token), Waiters: -1, Sharers: sharers,
				Remaining: max(time.Duration(left)*time.Microsecond, 0),
			}
			for _, l := range labels {
				st.Label = string(l)
				st.Sharing = append(st.Sharing, st.Label)
			}
			all = append(all, lock{string(name), st})
		}))
	})
	return all, err
}
