package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/golockers/locker/driver"
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
	SELECT t.oid, n.nspname, q.oid AS sequence, ` + fleetingSQL + ` AS fleeting, ` + oldSQL + ` AS old,
		coalesce(n.nspname, nullif($5, ''), current_schema()) AS made_in,
		pg_is_in_recovery() AS standby, current_setting('transaction_read_only') = 'on' AS read_only
	FROM ` + tableSQL + `
) l, LATERAL (
	SELECT to_regnamespace(quote_ident(made_in)) AS schema,
		(oid IS NULL OR sequence IS NULL) AND NOT $3 AS to_be_made
) m, LATERAL (
	SELECT coalesce(bool_and(has_table_privilege(oid, needed)), true)
		AND coalesce(has_sequence_privilege(sequence, 'USAGE, UPDATE'), true) -- one of them is enough for nextval
		AND coalesce(has_schema_privilege(schema, CASE WHEN to_be_made THEN 'CREATE' ELSE 'USAGE' END), true) AS enough
	FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS needed
) rights, LATERAL (VALUES
	('server version', current_setting('server_version'),
		CASE WHEN current_setting('server_version_num')::int >= 120000 THEN 0 ELSE 3 END,
		'PostgreSQL 12 is the oldest that works: it has plan_cache_mode'),
	('writable', CASE WHEN read_only THEN 'no' ELSE 'yes' END, CASE WHEN read_only THEN 3 ELSE 0 END,
		CASE WHEN standby THEN 'it is a standby: no lock can be had here; with several hosts in the address, add '
				'target_session_attrs=read-write'
			ELSE 'no lock can be had: set default_transaction_read_only = off for the user, the database or the server'
		END),
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
	('sight of the standby', CASE WHEN ` + sightSQL + ` THEN 'yes' ELSE 'no' END,
		CASE WHEN ` + sightSQL + ` OR NOT $2 THEN 0 ELSE 3 END,
		'with failover_safe=on no lock is granted: GRANT pg_read_all_stats to the user'),
	('autovacuum', current_setting('autovacuum'),
		CASE current_setting('autovacuum') WHEN 'on' THEN 0 ELSE 2 END,
		'the table of locks grows without end: set autovacuum = on'),
	('oldest snapshot', coalesce((SELECT max(age)::interval(0)||' old' FROM old), 'is young'),
		CASE WHEN (SELECT max(age) FROM old) > interval '5 minutes' THEN 2 ELSE 0 END,
		'while it lasts, vacuum keeps all versions of a row, and a lock that is used all the time gets '
			'slower and slower: end it, or dump from a standby: '
			||coalesce((SELECT who FROM old ORDER BY age DESC LIMIT 1), '')),
	('table '||$4, CASE WHEN oid IS NULL THEN 'is not there' WHEN fleeting <> '' THEN fleeting
			WHEN old THEN 'is of an older release' ELSE oid::text END,
		CASE WHEN fleeting <> '' OR old THEN 3 WHEN oid IS NOT NULL THEN 0 WHEN $3 OR schema IS NULL THEN 3 ELSE 1 END,
		CASE WHEN fleeting <> '' THEN 'locks need an ordinary table, which a crash does not empty: '
				'ALTER TABLE … SET LOGGED, or name another'
			WHEN old THEN 'stop the programs that lock with it, and DROP TABLE; or name another'
			WHEN made_in IS NULL THEN 'search_path names no schema that exists: name the schema of the table'
			WHEN schema IS NULL THEN 'make the schema '||made_in||', or name another'
			WHEN $3 THEN 'make it with what postgres.Schema returns' ELSE 'it is made with the first lock' END),
	('sequence of '||$4, CASE WHEN sequence IS NULL THEN 'is not there' ELSE 'is there' END,
		CASE WHEN sequence IS NOT NULL THEN 0 WHEN $3 AND oid IS NOT NULL THEN 3 ELSE 1 END,
		CASE WHEN $3 THEN 'make it with what postgres.Schema returns' ELSE 'it is made with the first lock' END),
	('rights on '||$4, CASE WHEN enough THEN 'enough' ELSE 'too few' END, CASE WHEN enough THEN 0 ELSE 3 END,
		CASE WHEN to_be_made THEN 'GRANT CREATE ON SCHEMA '||coalesce(made_in, '…')||', or have another user make the '
				'table with what postgres.Schema returns; then '
			ELSE '' END||'GRANT SELECT, INSERT, UPDATE, DELETE on the table, and USAGE on its sequence and its schema')
) AS t (what, found, severity, advice)`

// Check implements [driver.Checker].
func (b *Backend) Check(ctx context.Context) ([]driver.Finding, error) {
	bounded, cancel := context.WithTimeout(ctx, b.opts.Timeout)
	defer cancel()
	var all []driver.Finding
	_, err := b.ask(bounded, func(conn *pgxpool.Conn) error {
		rows, err := conn.Query(bounded, checkSQL,
			statementsFor(b.schema, b.table).table, b.opts.FailoverSafe, b.opts.NoCreate, b.opts.Table,
			b.schema)
		if err != nil {
			return err
		}
		defer rows.Close()
		all = nil
		var f driver.Finding
		values := []any{&f.What, &f.Found, &f.Severity, &f.Advice}
		return each(values, func() { all = append(all, f) })(rows)
	})
	if err != nil {
		return nil, b.failure(ctx, err)
	}
	conn, err := b.listen(bounded, nil)
	f := driver.Finding{What: "NOTIFY", Found: "is heard"}
	switch {
	case errors.Is(err, errDeaf):
		f.Severity, f.Found = driver.SeverityWarning, "is not heard"
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
		if all[i].Severity == driver.SeverityOK {
			all[i].Advice = ""
		}
	}
	return all, nil
}
