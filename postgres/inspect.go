package postgres

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/sqlstate"
)

// Inspect implements [driver.Operator]. The server does not know how many wait.
func (b *Backend) Inspect(ctx context.Context, name string) (driver.State, error) {
	all, err := b.states(ctx, func(s *statements) string { return s.look }, []byte(name))
	if err != nil || len(all) == 0 {
		return driver.State{Name: name, Waiters: -1}, err
	}
	return all[0], nil
}

// List implements [driver.Operator]. Of a large table, what is found is yielded before a request takes too
// long.
func (b *Backend) List(ctx context.Context, prefix string) iter.Seq2[driver.State, error] {
	return func(yield func(driver.State, error) bool) {
		from, end := prefix, prefix+"\xff" // which is in no name of a lock
		for more := true; more; {
			all, err := b.states(ctx, func(s *statements) string { return s.list }, []byte(from), []byte(end))
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

// states are the locks that a query returns. Where there is no table, nobody has locked anything yet.
func (b *Backend) states(
	ctx context.Context, query func(*statements) string, args ...any,
) (all []driver.State, err error) {
	err = b.operate(ctx, onDisk, func(s *statements, trip *pgx.Batch) {
		all = nil
		var name, label []byte
		var owner string
		var labels [][]byte
		var token, left int64
		var sharers int
		var since time.Time
		var kept *time.Time
		row := []any{&name, &owner, &label, &token, &since, &kept, &left, &sharers, &labels}
		trip.Queue(query(s), args...).Query(each(row, func() {
			st := driver.State{
				Name: string(name), Held: owner != "", Label: string(label),
				Holder: fmt.Sprintf(holderForm, token, strings.TrimPrefix(owner, keptFor)),
				Token:  uint64(token), Waiters: -1, Sharers: sharers, Since: since,
				Remaining: max(time.Duration(left)*time.Microsecond, 0),
			}
			if kept != nil {
				st.KeptUntil = *kept
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

// Break implements [driver.Operator]. The waiters are told. The statement names whom it breaks, so that a
// copy of it, or one that is late, finds nobody. To break a generation of sharers, it waits for the latch, so
// that nobody is let in who has not seen that it is broken: for the most part of the time that it has, in
// which no sharer is let in, and uses the rest to say which transaction is in the way.
func (b *Backend) Break(ctx context.Context, st driver.State) error {
	var owner string
	var token int64
	if _, err := fmt.Sscanf(st.Holder, holderForm, &token, &owner); err != nil {
		if st.Holder == "" {
			return nil // nobody had it
		}
		return invalid("%q is no Holder of this backend", st.Holder)
	}
	wait := b.opts.Timeout
	if end, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(end))
	}
	err := b.operate(ctx, onDisk, func(s *statements, trip *pgx.Batch) {
		if owner == sharersOwner {
			trip.Queue("SELECT set_config('lock_timeout', $1, true)", fmt.Sprint(max(wait.Milliseconds()*3/4, 1)))
			trip.Queue("SELECT pg_advisory_xact_lock($1)", s.key(st.Name))
		}
		trip.Queue(s.evict, []byte(st.Name), owner, token)
	})
	if owner == sharersOwner && sqlstate.Of(err) == sqlstate.NoLock {
		var who *string
		if b.operate(ctx, onDisk, func(s *statements, trip *pgx.Batch) {
			trip.Queue(latchedBySQL, s.key(st.Name)).QueryRow(func(row pgx.Row) error { return row.Scan(&who) })
		}) == nil && who != nil {
			err = fmt.Errorf("the sharers were not removed: a transaction that called Held with the lease of one of them "+
				"goes on: %s: %w", *who, err)
		}
	}
	return err
}

// latchedBySQL says which transactions have the latch $1.
const latchedBySQL = `SELECT string_agg('process '||a.pid||' of '||coalesce(a.usename, '')
	||' ('||coalesce(a.application_name, '')||'), '||coalesce(a.state, '')||', for '||coalesce(clock_timestamp() - a.xact_start, '0')::interval(0), '; ')
FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
	AND (l.classid::bigint << 32) | l.objid::bigint = $1 AND a.datname = current_database()`
