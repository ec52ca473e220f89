package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/golockers/locker"
)

// checkSQL is what Check looks at: what, how it is, whether that is well, and what to do.
const checkSQL = `WITH old AS MATERIALIZED (
	SELECT clock_timestamp() - xact_start AS age,
		'process '||pid||' of '||coalesce(usename, '')||' ('||coalesce(application_name, '')||')' AS who
	FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND xact_start IS NOT NULL
		AND pid <> pg_backend_pid()
	UNION ALL SELECT clock_timestamp() - prepared, 'prepared transaction '||gid FROM pg_prepared_xacts
)
SELECT what, found, severity, advice FROM (
	SELECT coalesce(bool_and(has_table_privilege(to_regclass($1), needed)), true) AND coalesce((
		SELECT has_sequence_privilege(to_regclass(quote_ident(n.nspname)||'.'||quote_ident(c.relname||'_tokens')),
			'USAGE, UPDATE') -- one of them is enough for nextval
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass($1)), true) AS enough
	FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS needed
) rights, LATERAL (VALUES
	('server version', current_setting('server_version'),
		CASE WHEN current_setting('server_version_num')::int >= 120000 THEN 0 ELSE 3 END,
		'PostgreSQL 12 is the oldest that works: it has plan_cache_mode'),
	('writable', CASE WHEN current_setting('transaction_read_only') = 'on' THEN 'no' ELSE 'yes' END,
		CASE current_setting('transaction_read_only') WHEN 'on' THEN 3 ELSE 0 END,
		'it is a standby, or read-only: no lock can be had here; with several hosts in the address, add '
			'target_session_attrs=read-write'),
	('fsync', current_setting('fsync'), CASE current_setting('fsync') WHEN 'on' THEN 0 ELSE 3 END,
		'a crash of the machine loses locks and sets tokens back: set fsync = on'),
	('full_page_writes', current_setting('full_page_writes'),
		CASE current_setting('full_page_writes') WHEN 'on' THEN 0 ELSE 2 END,
		'a crash of the machine can damage the table: set full_page_writes = on, unless the file system '
			'does the same'),
	('synchronous_standby_names', current_setting('synchronous_standby_names'),
		CASE WHEN ` + namedSQL + ` THEN 0 WHEN $2 THEN 3 ELSE 1 END,
		'a fail-over loses the locks and tokens that the standby does not have yet: name each synchronous '
			'standby, not *, and set failover_safe=on'),
	('sight of the standby', CASE WHEN pg_has_role('pg_read_all_stats', 'USAGE') THEN 'yes' ELSE 'no' END,
		CASE WHEN pg_has_role('pg_read_all_stats', 'USAGE') OR NOT $2 THEN 0 ELSE 3 END,
		'with failover_safe=on no lock is granted: GRANT pg_read_all_stats to the user'),
	('autovacuum', current_setting('autovacuum'),
		CASE current_setting('autovacuum') WHEN 'on' THEN 0 ELSE 2 END,
		'the table of locks grows without end: set autovacuum = on'),
	('oldest snapshot', coalesce((SELECT max(age)::interval(0)||' old' FROM old), 'is young'),
		CASE WHEN (SELECT max(age) FROM old) > interval '5 minutes' THEN 2 ELSE 0 END,
		'while it lasts, vacuum keeps all versions of a row, and a lock that is used all the time gets '
			'slower and slower: end it, or dump from a standby: '
			||coalesce((SELECT who FROM old ORDER BY age DESC LIMIT 1), '')),
	('table '||$4, coalesce(to_regclass($1)::text, 'is not there'),
		CASE WHEN to_regclass($1) IS NOT NULL THEN 0 WHEN $3 THEN 3 ELSE 1 END,
		CASE WHEN $3
			THEN 'make it with what postgres.Schema returns' ELSE 'it is made with the first lock' END),
	('rights on '||$4, CASE WHEN enough THEN 'enough' ELSE 'too few' END, CASE WHEN enough THEN 0 ELSE 3 END,
		'GRANT SELECT, INSERT, UPDATE, DELETE on the table, and USAGE on its sequence')
) AS t (what, found, severity, advice)`

// Check implements [locker.Checker].
func (b *Backend) Check(ctx context.Context) ([]locker.Finding, error) {
	bounded, cancel := context.WithTimeout(ctx, b.opts.Timeout)
	defer cancel()
	var all []locker.Finding
	_, err := b.ask(bounded, func(conn *pgxpool.Conn) error {
		rows, err := conn.Query(bounded, checkSQL,
			statementsFor(b.schema, b.table).table, b.opts.FailoverSafe, b.opts.NoCreate, b.opts.Table)
		if err != nil {
			return err
		}
		defer rows.Close()
		all = nil
		var f locker.Finding
		values := []any{&f.What, &f.Found, &f.Severity, &f.Advice}
		return each(values, func() { all = append(all, f) })(rows)
	})
	if err != nil {
		return nil, b.failure(ctx, err)
	}
	conn, err := b.listen(bounded, nil)
	f := locker.Finding{What: "NOTIFY", Found: "is heard"}
	switch {
	case errors.Is(err, errDeaf):
		f.Severity, f.Found = locker.SeverityWarning, "is not heard"
		f.Advice = "waiters ask again and again instead of being told: connect to the server itself, " +
			"or to pgbouncer in session mode"
	case err != nil:
		return nil, b.failure(ctx, err)
	default:
		conn.Close()
	}
	all = append(all, f)
	for i := range all {
		all[i].What = fmt.Sprintf("%s of %s", all[i].What, b.addr)
		if all[i].Severity == locker.SeverityOK {
			all[i].Advice = ""
		}
	}
	return all, nil
}
