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
	// onDisk: a crash does not undo it.
	onDisk
	// withLeases is for renewals: onStandby, but for a server that has taken over and has no standby yet.
	withLeases
	// onStandby: a fail-over does not undo it either, if Options.FailoverSafe says that there is one.
	onStandby
)

var (
	// errNoStandby is why a lock is refused with Options.FailoverSafe.
	errNoStandby = errors.New("the server has no synchronous standby (synchronous_standby_names is empty), " +
		"and a lock would not survive a fail-over: add one")
	// errBlind is why there are no locks at all with it.
	errBlind = errors.New("failover_safe is on, and the user may not see what the synchronous standby has: " +
		"GRANT pg_read_all_stats TO it, or use pg_monitor")
)

// confirmSQL says whether there are to be synchronous standbys, the server's timeline, up to where its log is
// on disk ($1 after the first time), and whether as many synchronous standbys as the server waits for have
// it up to there.
const confirmSQL = `SELECT names <> '', substr(pg_walfile_name(lsn), 1, 8), lsn::text,
	pg_has_role('pg_read_all_stats', 'USAGE'),
	(SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum') AND flush_lsn >= lsn)
		>= coalesce(substring(names FROM '^\s*(?:[A-Za-z]+\s*)?(\d+)\s*\(')::int, 1)
FROM (SELECT coalesce(nullif($1, '')::pg_lsn, pg_current_wal_flush_lsn()) AS lsn,
	current_setting('synchronous_standby_names') AS names) log`

// confirm returns nil when a synchronous standby has what was committed before. The server's word for a
// commit is not enough: it gives up its wait for the standby when the statement is cancelled, with a
// warning, when synchronous_standby_names becomes empty, and for as long as it has not noticed that they
// are set.
func (b *Backend) confirm(ctx context.Context, conn *pgxpool.Conn, k keep) error {
	if k < withLeases || !b.opts.FailoverSafe {
		return nil
	}
	lsn := ""
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		var named, sees, has bool
		var timeline string
		err := conn.QueryRow(ctx, confirmSQL, lsn).Scan(&named, &timeline, &lsn, &sees, &has)
		known := b.timeline.Load()
		switch {
		case err != nil:
			return &unconfirmed{fmt.Errorf("no synchronous standby has confirmed it: %w", err)}
		case !sees:
			return &unconfirmed{errBlind}
		case has:
			b.timeline.Store(&timeline)
			return nil
		case !named && k == withLeases && (known == nil || *known != timeline):
			return nil // there is no standby that could take over without it
		case !named:
			return &unconfirmed{errNoStandby}
		}
		if err = clock.Sleep(ctx, pause); err != nil {
			return &unconfirmed{fmt.Errorf("no synchronous standby has confirmed it: %w", err)}
		}
	}
}

// unconfirmed is why a change that was committed is not believed.
type unconfirmed struct{ err error }

func (e *unconfirmed) Error() string { return e.err.Error() }
func (e *unconfirmed) Unwrap() error { return e.err }
