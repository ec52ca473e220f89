package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

var (
	// errNoTable is why there is no lock where the table is not to be made.
	errNoTable = errors.New("there is no table of locks, or no sequence beside it")
	// errNotMade is why there is none where it is to be made.
	errNotMade = errors.New("there is no table of locks, or no sequence beside it, and they cannot be made")
	// errGone is why a client that has found the table does not make it again: holders may be in one that was
	// renamed.
	errGone = errors.New("the table of locks was here, and is gone")
	// errFleeting is why there is no lock in a table that a crash, or the end of a session, would empty.
	errFleeting = errors.New("locks need an ordinary table, which a crash does not empty")
)

// locateSQL finds the table that $1 names, and says what is wrong with it, and with its sequence. It says, too,
// whether the user may see what a standby has.
const locateSQL = `SELECT coalesce(n.nspname, ''), ` + fleetingSQL + `, ` + disorderSQL + `,
	pg_has_role('pg_read_all_stats', 'USAGE')
FROM ` + tableSQL

// tableSQL is the table that $1 names, and its sequence.
const tableSQL = `(SELECT to_regclass($1) AS oid) t
LEFT JOIN pg_class c ON c.oid = t.oid LEFT JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_class q ON q.oid = to_regclass(quote_ident(n.nspname)||'.'||quote_ident(c.relname||'_tokens'))
LEFT JOIN pg_sequence s ON s.seqrelid = q.oid`

// fleetingSQL is what makes the table one that may lose locks, and disorderSQL what is wrong with its sequence: it is
// missing, or hands out numbers that do not rise.
const (
	fleetingSQL = `CASE WHEN c.relpersistence = 'u' THEN 'UNLOGGED' WHEN c.relpersistence = 't' THEN 'TEMPORARY'
	WHEN c.relkind <> 'r' THEN 'of another kind ('||c.relkind::text||')' ELSE '' END`
	disorderSQL = `CASE WHEN s.seqrelid IS NULL THEN 'missing' WHEN s.seqcache > 1 THEN 'CACHE '||s.seqcache
	WHEN s.seqincrement < 0 THEN 'INCREMENT '||s.seqincrement WHEN s.seqcycle THEN 'CYCLE'
	WHEN q.relpersistence <> 'p' THEN 'UNLOGGED' ELSE '' END`
)

// lastSQL is the last token that the table remembers, the last number of the sequence, and for how many
// seconds nothing was swept. The sequence is looked at after the table.
const lastSQL = `SELECT coalesce(max(token), 0), coalesce(pg_sequence_last_value('SEQUENCE_NAME'), 0),
	coalesce(EXTRACT(EPOCH FROM clock_timestamp() - max(expires) FILTER (WHERE name = '')), 1000000)::bigint
FROM TABLE_NAME`

// ready returns the statements for the table. Before the first use, and after one that failed for want of
// it, it looks which table that is, makes it if it is missing, and sees to it that tokens rise.
func (b *Backend) ready(ctx context.Context) (*statements, error) {
	if s := b.found.Load(); s != nil {
		return s, nil
	}
	s, wrong, err := b.locate(ctx)
	switch {
	case err != nil:
		return nil, err
	case wrong == blind:
		return nil, errBlind
	case wrong == missing && b.opts.NoCreate:
		return nil, errNoTable
	case wrong == missing:
		schema := statementsFor(b.schema, b.table).schema
		if s != nil {
			schema = s.sequence
		}
		if err = b.create(ctx, schema); err == nil {
			s, wrong, err = b.locate(ctx)
		}
	}
	if err == nil && wrong != "" {
		err = fmt.Errorf("the sequence of tokens is made with %s, and %w", wrong, errOrder)
	}
	if err == nil {
		err = b.rise(ctx, s)
	}
	if err != nil {
		return nil, err
	}
	b.found.Store(s)
	return s, nil
}

// readyFor is ready for a request that draws no token, which a sequence that is wrong does not keep back.
func (b *Backend) readyFor(ctx context.Context, k keep) (*statements, error) {
	if k == onStandby || b.found.Load() != nil {
		return b.ready(ctx)
	}
	if s, _, err := b.locate(ctx); s != nil || err != nil {
		return s, err
	}
	return b.ready(ctx)
}

// Further values of wrong, beside a sequence's wrong settings.
const (
	missing = "missing" // the sequence
	blind   = "blind"   // FailoverSafe, and the user may not see what a standby has
)

// locate finds the table: nil if there is none. wrong: see locateSQL. Where a client has found a table, it is an
// error that there is none.
func (b *Backend) locate(ctx context.Context) (s *statements, wrong string, err error) {
	var schema, fleeting string
	var sees bool
	known := b.known.Load() // before: what is not there may be made, and found by another request, while this one asks
	name := statementsFor(b.schema, b.table).table
	_, err = b.ask(ctx, func(conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, locateSQL, name).Scan(&schema, &fleeting, &wrong, &sees)
	})
	switch {
	case err != nil:
		return nil, "", err
	case fleeting != "":
		return nil, "", fmt.Errorf("the table %s is %s, and %w", b.opts.Table, fleeting, errFleeting)
	case schema == "" && known:
		return nil, "", errGone
	}
	if b.opts.FailoverSafe && !sees {
		wrong = blind
	}
	if schema != "" {
		s = statementsFor(schema, b.table)
		b.known.Store(true)
	}
	return s, wrong, nil
}

// create makes what is missing of the table and the sequence.
func (b *Backend) create(ctx context.Context, schema string) (err error) {
	for range 3 {
		_, err = b.ask(ctx, func(conn *pgxpool.Conn) error {
			_, err := conn.Exec(ctx, schema, pgx.QueryExecModeSimpleProtocol)
			return err
		})
		if !theyMeet(err) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %w", b.opts.Table, errNotMade, err)
	}
	return nil
}

// rise sets a sequence that is behind the table, such as one that was made anew, above all tokens.
func (b *Backend) rise(ctx context.Context, s *statements) error {
	var token, drawn, swept int64
	_, err := b.ask(ctx, func(conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, s.last).Scan(&token, &drawn, &swept)
	})
	if err != nil {
		return err
	}
	b.mu.Lock()
	b.swept = time.Now().Add(-time.Duration(swept) * time.Second)
	b.mu.Unlock()
	if drawn >= token {
		return nil
	}
	err = pgx.BeginTxFunc(ctx, b.pool, readCommitted, func(tx pgx.Tx) error {
		return b.raise(ctx, tx, s, token, nil)
	})
	if err != nil {
		return fmt.Errorf("the sequence of tokens is at %d, token %d was given already, and it cannot be set: %w",
			drawn, token, err)
	}
	return nil
}

var readCommitted = pgx.TxOptions{IsoLevel: pgx.ReadCommitted}

// raise sets the sequence above token, one client after the other, if check succeeds. The floor remembers it.
func (b *Backend) raise(
	ctx context.Context, tx pgx.Tx, s *statements, token int64, check func() error,
) error {
	batch := &pgx.Batch{}
	batch.Queue(s.conditions, true, false, true)
	batch.Queue("SELECT pg_advisory_xact_lock($1)", s.key(""))
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return err
	}
	if check != nil {
		if err := check(); err != nil {
			return err
		}
	}
	if _, err := tx.Exec(ctx, s.floor, token); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, s.raise, token)
	return err
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

// pass goes over the whole table, in parts that hold nobody up for long: however many names there are,
// those of the last twenty minutes are all that stay.
func (b *Backend) pass(ctx context.Context) error {
	for more := true; more; {
		bounded, cancel := context.WithTimeout(ctx, time.Minute)
		s, err := b.ready(bounded)
		if err == nil {
			_, err = b.send(bounded, s, untilACrash, func(trip *pgx.Batch) {
				more = false // another client sweeps, or has done so lately
				trip.Queue(s.floor, 0)
				trip.Queue(s.sweep).Query(each([]any{&more}, func() {}))
			})
		}
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}
