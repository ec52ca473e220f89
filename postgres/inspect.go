package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/golockers/locker"
)

// Inspect implements [locker.Inspector]. The server does not know how many wait.
func (b *Backend) Inspect(ctx context.Context, name string) (locker.State, error) {
	l, err := b.one(ctx, func(s *statements) string { return s.look + "l.name = $1" }, []byte(name))
	return l.state, err
}

// List implements [locker.Lister].
func (b *Backend) List(
	ctx context.Context, prefix string, found func(name string, st locker.State) error,
) error {
	query := func(s *statements) string { return s.look + "substring(l.name FROM 1 FOR $2) = $1" }
	all, err := b.rows(ctx, query, []byte(prefix), len(prefix))
	for _, l := range all {
		if err == nil {
			err = found(l.name, l.state)
		}
	}
	return err
}

// Break implements [locker.Breaker]. The waiters are told. The statement names whom it breaks, so that a copy
// of it, or one that is late, finds nobody.
func (b *Backend) Break(ctx context.Context, name string) (locker.State, error) {
	l, err := b.one(ctx, func(s *statements) string { return s.look + "l.name = $1" }, []byte(name))
	if err != nil || !l.state.Held {
		return l.state, err
	}
	_, err = b.rows(ctx, func(s *statements) string { return s.evict }, []byte(name), l.owner, l.state.Token)
	return l.state, err
}

// one is rows for one name.
func (b *Backend) one(ctx context.Context, query func(*statements) string, args ...any) (lock, error) {
	all, err := b.rows(ctx, query, args...)
	if len(all) == 0 {
		return lock{state: locker.State{Waiters: -1}}, err
	}
	return all[0], err
}

// rows returns the locks that a query returns. Where there is no table, nobody has locked anything yet.
func (b *Backend) rows(ctx context.Context, query func(*statements) string, args ...any) (all []lock, err error) {
	bounded, cancel := context.WithTimeout(ctx, b.opts.Timeout)
	defer cancel()
	s := b.found.Load()
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
		return nil, b.failure(ctx, err)
	}
	return all, nil
}

// lock is a row.
type lock struct {
	name, owner string
	state       locker.State
}

func (b *Backend) locks(ctx context.Context, query string, args []any) (all []lock, err error) {
	var name, label []byte
	var owner string
	var labels [][]byte
	var token, left int64
	var sharers int
	_, err = b.send(ctx, onDisk, func(batch *pgx.Batch) {
		all = nil
		row := []any{&name, &owner, &label, &token, &left, &sharers, &labels}
		batch.Queue(query, args...).Query(each(row, func() {
			st := locker.State{
				Held: true, Label: string(label), Token: uint64(token), Waiters: -1, Sharers: sharers,
				Remaining: max(time.Duration(left)*time.Microsecond, 0),
			}
			for _, l := range labels {
				st.Label = string(l)
				st.Sharing = append(st.Sharing, st.Label)
			}
			all = append(all, lock{string(name), owner, st})
		}))
	})
	return all, err
}
