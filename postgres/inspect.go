package postgres

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/golockers/locker/driver"
)

// Inspect implements [driver.Operator]. The server does not know how many wait.
func (b *Backend) Inspect(ctx context.Context, name string) (driver.State, error) {
	all, err := b.rows(ctx, func(s *statements) string { return s.look + "l.name = $1" }, []byte(name))
	if err != nil || len(all) == 0 {
		return driver.State{Name: name, Waiters: -1}, err
	}
	return all[0], nil
}

// List implements [driver.Operator]. Of a large table, what is found is yielded before a request takes too long.
func (b *Backend) List(ctx context.Context, prefix string) iter.Seq2[driver.State, error] {
	return func(yield func(driver.State, error) bool) {
		query := func(s *statements) string { return s.list }
		from, end := prefix, prefix+"\xff" // which is in no name of a lock
		for more := true; more; {
			all, err := b.rows(ctx, query, []byte(from), []byte(end))
			if err != nil {
				yield(driver.State{}, err)
				return
			}
			more = false
			for _, st := range all {
				if !st.Held {
					more, from = true, st.Name
				} else if !yield(st, nil) {
					return
				}
			}
		}
	}
}

// holderForm is that of State.Holder: the token and the owner, which sharers have in common.
const holderForm = "postgres %d %s"

// Break implements [driver.Operator]. The waiters are told. The statement names whom it breaks, so that a copy
// of it, or one that is late, finds nobody.
func (b *Backend) Break(ctx context.Context, st driver.State) error {
	var owner string
	var token int64
	if _, err := fmt.Sscanf(st.Holder, holderForm, &token, &owner); err != nil {
		if st.Holder == "" {
			return nil // nobody had it
		}
		return invalid("%q is no Holder of this backend", st.Holder)
	}
	_, err := b.rows(ctx, func(s *statements) string { return s.evict }, []byte(st.Name), owner, token)
	return err
}

// rows returns the locks that a query returns. Where there is no table, nobody has locked anything yet.
func (b *Backend) rows(ctx context.Context, query func(*statements) string, args ...any) (all []driver.State, err error) {
	bounded, cancel := context.WithTimeout(ctx, b.opts.Timeout)
	defer cancel()
	s := b.found.Load()
	for range 2 { // the table may have moved
		if s == nil {
			if s, _, err = b.locate(bounded); err != nil || s == nil {
				break
			}
		}
		if all, err = b.locks(bounded, s, query(s), args); !missingTable(err) {
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

func (b *Backend) locks(
	ctx context.Context, s *statements, query string, args []any,
) (all []driver.State, err error) {
	var name, label []byte
	var owner string
	var labels [][]byte
	var token, left int64
	var sharers int
	_, err = b.send(ctx, s, onDisk, func(batch *pgx.Batch) {
		all = nil
		row := []any{&name, &owner, &label, &token, &left, &sharers, &labels}
		batch.Queue(query, args...).Query(each(row, func() {
			st := driver.State{
				Name: string(name), Held: owner != "", Holder: fmt.Sprintf(holderForm, token, owner),
				Label: string(label), Token: uint64(token), Waiters: -1, Sharers: sharers,
				Remaining: max(time.Duration(left)*time.Microsecond, 0),
			}
			for _, l := range labels {
				st.Label = string(l)
				st.Sharing = append(st.Sharing, st.Label)
			}
			all = append(all, st)
		}))
	})
	return all, err
}
