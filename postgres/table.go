package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/golockers/locker/internal/sqlstate"
)

var (
	errNoTable = errors.New("there is no table of locks, or no sequence beside it")
	errNotMade = errors.New("there is no table of locks, or no sequence beside it, and they cannot be made")
	// errGone is why a client that has found the table does not make it again: holders may be in one that was
	// renamed.
	errGone     = errors.New("the table of locks was here, and is gone")
	errFleeting = errors.New("locks need an ordinary table, which a crash does not empty")
	errOld      = errors.New("that of an older release, which locks in another way")
)

// locateSQL finds the table that $1 names, and says what is wrong with it, whether its sequence is missing,
// and whether the user may see what a standby has.
const locateSQL = `SELECT coalesce(n.nspname, ''), ` + fleetingSQL + `, ` + oldSQL + `, q.oid IS NULL, ` + sightSQL + `
FROM ` + tableSQL

// tableSQL is the table that $1 names, and its sequence.
const tableSQL = `(SELECT to_regclass($1) AS oid) t
LEFT JOIN pg_class c ON c.oid = t.oid LEFT JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_class q ON q.oid = to_regclass(quote_ident(n.nspname)||'.'||quote_ident(c.relname||'_tokens'))`

// fleetingSQL is what makes the table one that may lose locks, and oldSQL is whether it is one of an older
// release.
const (
	fleetingSQL = `CASE WHEN c.relpersistence = 'u' THEN 'UNLOGGED' WHEN c.relpersistence = 't' THEN 'TEMPORARY'
	WHEN c.relkind <> 'r' THEN 'of another kind ('||c.relkind::text||')' ELSE '' END`
	oldSQL = `(c.oid IS NOT NULL AND NOT EXISTS (
	SELECT FROM pg_attribute WHERE attrelid = c.oid AND attname = 'sharer' AND NOT attisdropped))`
)

// ready returns the statements for the table. Before the first use, and after one that failed for want of it,
// it looks which table that is. For a grant, which draws a token, it makes what is missing of the table and
// its sequence; for what people ask, it makes nothing, and returns nil if there is no table.
func (b *Backend) ready(ctx context.Context, k keep) (*statements, error) {
	if s := b.found.Load(); s != nil {
		return s, nil
	}
	s, lacks, err := b.locate(ctx)
	if err == nil && errors.Is(lacks, errNoTable) && !b.opts.NoCreate && (k == onStandby || s == nil && k != onDisk) {
		if err = b.create(ctx, s); err == nil {
			s, lacks, err = b.locate(ctx)
		}
	}
	switch {
	case err != nil:
		return nil, err
	case lacks == nil:
		b.found.Store(s)
	case k == onStandby, s == nil && (k != onDisk || b.opts.NoCreate):
		return nil, lacks
	}
	return s, nil
}

// locate finds the table: nil if there is none; lacks: why nothing is granted in it yet. Where a client has
// found a table, it is an error that there is none.
func (b *Backend) locate(ctx context.Context) (s *statements, lacks, err error) {
	var schema, fleeting string
	var old, missing, sees bool
	known := b.known.Load() // before: what is not there may be made, and found by another request, while this one asks
	name := statementsFor(b.schema, b.table).table
	_, err = b.ask(ctx, func(conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, locateSQL, name).Scan(&schema, &fleeting, &old, &missing, &sees)
	})
	switch {
	case err != nil:
		return nil, nil, err
	case fleeting != "":
		return nil, nil, fmt.Errorf("the table %s is %s, and %w", b.opts.Table, fleeting, errFleeting)
	case old:
		return nil, nil, fmt.Errorf("the table %s is %w", b.opts.Table, errOld)
	case schema == "" && known:
		return nil, nil, errGone
	case schema != "":
		s = statementsFor(schema, b.table)
		b.known.Store(true)
	}
	switch {
	case b.opts.FailoverSafe && !sees:
		lacks = errBlind
	case missing: // without a table as well
		lacks = errNoTable
	}
	return s, lacks, nil
}

// create makes the table and the sequence, or the sequence of the table that is there, and then never the
// table.
func (b *Backend) create(ctx context.Context, there *statements) (err error) {
	schema := statementsFor(b.schema, b.table).schema
	if there != nil {
		schema = there.sequence
	}
	for range 3 {
		_, err = b.ask(ctx, func(conn *pgxpool.Conn) error {
			_, err := conn.Exec(ctx, schema, pgx.QueryExecModeSimpleProtocol)
			return err
		})
		if code := sqlstate.Of(err); !sqlstate.TheyMeet(code) && !sqlstate.Met(code) { // another makes it at the same time
			break
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %w", b.opts.Table, errNotMade, err)
	}
	return nil
}

// sweep removes old rows in the background, if that was not done for a while.
func (b *Backend) sweep() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Since(b.swept) > sweepEvery && b.life.Err() == nil {
		b.swept = time.Now()
		b.busy.Go(func() { _ = b.pass(b.life) }) // the next pass does what this one did not
	}
}

// pass goes over the whole table, in parts that hold nobody up for long, unless another client has done so
// lately: however many names there are, those of the last twenty minutes are all that stay.
func (b *Backend) pass(ctx context.Context) error {
	var name []byte
	var sharer string
	more := false
	part := func(of func(s *statements, trip *pgx.Batch)) error { // in a transaction of its own
		bounded, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		_, err := b.query(bounded, untilACrash, of)
		return err
	}
	err := part(func(s *statements, trip *pgx.Batch) {
		more = false
		trip.Queue(s.turn).Query(each([]any{&more}, func() {}))
	})
	for name = []byte{}; err == nil && more; {
		from, after := name, sharer
		err = part(func(s *statements, trip *pgx.Batch) {
			more = false
			trip.Queue(s.sweep, from, after).Query(each([]any{&name, &sharer}, func() { more = true }))
		})
	}
	return err
}
