package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/golockers/locker/internal/clock"
)

// keep is what has become of a change when its answer is believed.
type keep int

const (
	// untilACrash: a crash may undo it. A release ends with the TTL then.
	untilACrash keep = iota
	// onDisk is for what people ask, and Held: a crash does not undo it.
	onDisk
	// withLeases is for renewals: onStandby, but for a server that has taken over and has no standby yet.
	withLeases
	// onStandby: a fail-over does not undo it either, if Options.FailoverSafe says that there is one.
	onStandby
)

var (
	errNoStandby = errors.New("the server has no synchronous standby, or does not name it " +
		"(synchronous_standby_names is empty, or has a *), and a lock would not survive a fail-over: " +
		"name each standby that may take over")
	errUnconfirmed = errors.New("not each standby that synchronous_standby_names has has confirmed it, " +
		"and any of them may take over")
	errBlind = errors.New("failover_safe is on, and the user may not see what the synchronous standby has: " +
		"GRANT pg_read_all_stats TO it, or use pg_monitor")
)

// sightSQL is whether the user may see what a standby has.
const sightSQL = `pg_has_role('pg_read_all_stats', 'USAGE')`

// confirmSQL says whether there are to be synchronous standbys, whether all have a name, the server's
// timeline, up to where its log is on disk ($1 after the first time), and whether each of the standbys has it
// up to there, however many of them the server waits for: with ANY 1 (a, b) or FIRST 1 (a, b), either may
// take over. It goes by their names, and not by what the server takes for synchronous, which follows a change
// of the names later. One that follows twice, such as one whose old connection is not yet known to be lost,
// has to have it by both: two standbys may have one name.
const confirmSQL = `SELECT names <> '', ` + namedSQL + `, substr(pg_walfile_name(lsn), 1, 8), lsn::text,
	` + sightSQL + `, (
		SELECT bool_and(coalesce((
			SELECT bool_and(r.flush_lsn >= lsn) FROM pg_stat_replication r
			WHERE lower(r.application_name) = lower(replace(regexp_replace(m[1], '^"(.*)"$', '\1'), '""', '"'))
		), false))
		FROM regexp_matches(
			regexp_replace(names, '^\s*((any|first)\s+)?\d+\s*\((.*)\)\s*$', '\3', 'i'),
			'"(?:[^"]|"")*"|[^\s,"]+', 'g') m
	) IS TRUE
FROM (SELECT coalesce(nullif($1, '')::pg_lsn, pg_current_wal_flush_lsn()) AS lsn,
	current_setting('synchronous_standby_names') AS names) log`

// confirm returns nil when the synchronous standbys have what was committed before. The server's word for a
// commit is not enough: it waits for some of them only, and gives that up when the statement is cancelled,
// with a warning, when synchronous_standby_names becomes empty, and for as long as it has not noticed that
// they are set.
func (b *Backend) confirm(ctx context.Context, conn *pgxpool.Conn, k keep) error {
	if k < withLeases || !b.opts.FailoverSafe {
		return nil
	}
	lsn := ""
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		var some, named, sees, has bool
		var timeline string
		err := conn.QueryRow(ctx, confirmSQL, lsn).Scan(&some, &named, &timeline, &lsn, &sees, &has)
		known := b.timeline.Load()
		switch {
		case err != nil:
			return &unconfirmed{fmt.Errorf("%w: %w", errUnconfirmed, err)}
		case !sees:
			return &unconfirmed{errBlind}
		case has && named:
			b.timeline.Store(&timeline)
			return nil
		case !some && k == withLeases && (known == nil || *known != timeline):
			return nil // there is no standby that could take over without it
		case !named:
			return &unconfirmed{errNoStandby}
		}
		if err = clock.Sleep(ctx, pause); err != nil {
			return &unconfirmed{fmt.Errorf("%w: %w", errUnconfirmed, err)}
		}
	}
}

// unconfirmed is why a change that was committed is not believed.
type unconfirmed struct{ error }

func (e *unconfirmed) Unwrap() error { return e.error }
