package postgres

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/golockers/locker"
)

// In all statements: clock_timestamp() and not now(), which is when the transaction began; and no clock
// but the server's. $1 and so on are arrays with one element for each of the callers who share the
// statement.
const schemaSQL = `CREATE TABLE IF NOT EXISTS TABLE_NAME (
	name bytea NOT NULL PRIMARY KEY,
	owner text NOT NULL,
	label bytea NOT NULL,
	token bigint NOT NULL,
	expires timestamptz NOT NULL,
	waited boolean NOT NULL
) WITH (fillfactor = 50);
CREATE SEQUENCE IF NOT EXISTS SEQUENCE_NAME`

// conditionsSQL comes before each of the others, in its transaction and its round trip. Plans are made once
// for a connection (a new one each time would cost five times what the statement does), and one that was
// made while the table was small must not go on reading all of it. $1 is whether the commit has to be on
// disk, and on the synchronous standbys if there are any: that of a release, which a crash may undo, has not.
const conditionsSQL = `SELECT set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_seqscan', 'off', true),
	set_config('synchronous_commit', CASE WHEN NOT $1::boolean THEN 'off'
		WHEN current_setting('synchronous_commit') = 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true),
	current_setting('synchronous_standby_names')`

// acquireSQL grants what is free, and says of what another holds how long its time is. Of a name that is neither
// held nor to be had it says 0, or how long ago the lease ended (less than 0) if transactions that called Held
// protect it: their advisory locks are shared. What it is silent about is just being released. It waits for
// nobody's lock but that of a holder who is just renewing what has expired.
//
// The advisory lock of a name orders its tokens: nextval comes after it and the commit before its end.
const acquireSQL = `WITH ask AS MATERIALIZED (
	SELECT * FROM unnest($1::bytea[], $2::text[], $3::bytea[], $4::bigint[], $5::boolean[], $6::bigint[])
		AS a (name, owner, label, ttl, waits, key)
), seen AS MATERIALIZED (
	SELECT a.waits, a.key, l.*, l.owner <> '' AND l.expires > clock_timestamp() AS held
	FROM ask a JOIN TABLE_NAME l ON l.name = a.name WHERE l.owner <> a.owner
), got AS (
	INSERT INTO TABLE_NAME AS l (name, owner, label, token, expires, waited)
	SELECT name, owner, label, nextval('SEQUENCE_NAME'), clock_timestamp() + ttl * interval '1 microsecond', false FROM ask
	WHERE CASE WHEN name NOT IN (SELECT name FROM seen WHERE held) THEN pg_try_advisory_xact_lock(key) ELSE false END
	ON CONFLICT (name) DO UPDATE
	SET owner = excluded.owner, label = excluded.label, expires = excluded.expires, waited = l.waited AND l.owner = excluded.owner,
		token = CASE WHEN l.owner = excluded.owner AND l.expires > clock_timestamp() THEN l.token ELSE excluded.token END
	WHERE l.owner IN ('', excluded.owner) OR l.expires <= clock_timestamp()
	RETURNING l.name, l.token
) MARK
SELECT name, token, 0::bigint FROM got
UNION ALL SELECT name, 0, CAST(EXTRACT(EPOCH FROM CASE WHEN held THEN expires
	WHEN pg_try_advisory_xact_lock_shared(key) THEN LEAST(expires, clock_timestamp()) ELSE clock_timestamp()
	END - clock_timestamp()) * 1000000 AS bigint) FROM seen WHERE NOT held OR TOLD`

// A waiter marks the row, so that its release is told. It has to mark the row that its holder has now, and
// asks again where that is just being released.
const (
	markSQL = `, marked AS (
	UPDATE TABLE_NAME l SET waited = true FROM (
		SELECT t.name FROM seen h JOIN TABLE_NAME t ON t.name = h.name
		WHERE h.held AND h.waits AND NOT h.waited AND t.owner = h.owner AND t.expires > clock_timestamp()
		FOR NO KEY UPDATE OF t SKIP LOCKED
	) m WHERE l.name = m.name
	RETURNING l.name
)`
	toldSQL = `NOT waits OR waited OR name IN (SELECT name FROM marked)`
)

// renewSQL returns those that were still held.
const renewSQL = `UPDATE TABLE_NAME l SET expires = GREATEST(l.expires, clock_timestamp() + a.ttl * interval '1 microsecond')
FROM unnest($1::bytea[], $2::text[], $3::bigint[]) WITH ORDINALITY AS a (name, owner, ttl, i)
WHERE l.name = a.name AND l.owner = a.owner AND l.expires > clock_timestamp()
RETURNING a.i`

// releaseSQL says which of them were still held, and tells those who wait. NOTIFY makes commits wait for
// each other in the whole server, so it is not said to nobody.
const releaseSQL = `WITH freed AS (
	UPDATE TABLE_NAME l SET owner = '', label = '', expires = LEAST(l.expires, clock_timestamp())
	FROM unnest($1::bytea[], $2::text[], $3::bigint[]) WITH ORDINALITY AS a (name, owner, key, i)
	WHERE l.name = a.name AND l.owner = a.owner
	RETURNING a.i, a.key, l.waited, l.expires >= statement_timestamp() AS held
)
SELECT i, held, CASE WHEN waited THEN pg_notify('CHANNEL_NAME', key::text) IS NULL END FROM freed`

// sweepSQL removes rows that nobody has used for ten minutes. Tokens come from the sequence, which it
// leaves alone. One client at a time does it.
const sweepSQL = `DELETE FROM TABLE_NAME WHERE name IN (
	SELECT name FROM TABLE_NAME WHERE (SELECT pg_try_advisory_xact_lock($1)) AND expires < clock_timestamp() - interval '10 minutes'
	LIMIT 10000 FOR UPDATE SKIP LOCKED
)`

// lookSQL finds what is held; a condition follows it.
const lookSQL = `SELECT name, label, token, CAST(EXTRACT(EPOCH FROM expires - clock_timestamp()) * 1000000 AS bigint)
FROM TABLE_NAME WHERE owner <> '' AND expires > clock_timestamp() AND `

const breakSQL = `WITH freed AS (
	UPDATE TABLE_NAME l SET owner = '', label = '', expires = clock_timestamp()
	FROM (SELECT * FROM TABLE_NAME WHERE name = $1 AND owner <> '' AND expires > clock_timestamp() FOR NO KEY UPDATE) o
	WHERE l.name = o.name
	RETURNING o.*
)
SELECT name, label, token, CAST(EXTRACT(EPOCH FROM expires - clock_timestamp()) * 1000000 AS bigint)
FROM freed, pg_notify('CHANNEL_NAME', $2::bigint::text)`

// raiseSQL sets the sequence far above the token. Between reading it and setting it, others may draw from
// it, and must not be overtaken: sixteen million of them do not come in that time. Redis counts up to 2⁵³, and a
// lock that moves there may have been raised many times.
const raiseSQL = `SELECT setval('SEQUENCE_NAME', $1::bigint + 16777216) FROM SEQUENCE_NAME WHERE last_value <= $1`

// heldSQL finds the lock of an owner, after the advisory lock that keeps it from being granted to another.
// FOR SHARE looks at the row as it is, also where the transaction's snapshot is older, and then fails with
// 40001 if the row has changed since (FOR KEY SHARE would overlook it). It would be in the way of renewals,
// and so it ends with a savepoint; the advisory lock goes on.
const heldSQL = `SELECT true FROM TABLE_NAME WHERE name = $1 AND owner = $2 AND expires > clock_timestamp() FOR SHARE`

// identifier is a table with or without its schema. It is quoted all the same, so that a reserved word
// is a name too. The longest has room for what the sequence's name adds.
var identifier = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]{0,62}\.)?[A-Za-z_][A-Za-z0-9_]{0,54}$`)

// statements are those for one table.
type statements struct {
	schema, acquire, acquireWaiting, renew, release, sweep, look, evict, raise, held, channel string
}

func statementsFor(table string) (s statements, err error) {
	if !identifier.MatchString(table) {
		return s, invalid("the table is %.130q: give table or schema.table, of ASCII letters, digits and underscores, not a digit first, "+
			"and at most 55 of them in the table", table)
	}
	quoted := `"` + strings.ReplaceAll(table, ".", `"."`) + `"`
	sequence := strings.TrimSuffix(quoted, `"`) + `_tokens"`
	s.channel = table[strings.LastIndexByte(table, '.')+1:]
	with := strings.NewReplacer("TABLE_NAME", quoted, "SEQUENCE_NAME", sequence, "CHANNEL_NAME", s.channel).Replace
	s.schema, s.renew, s.release = with(schemaSQL), with(renewSQL), with(releaseSQL)
	s.acquire = with(strings.NewReplacer("MARK", "", "TOLD", "true").Replace(acquireSQL))
	s.acquireWaiting = with(strings.NewReplacer("MARK", markSQL, "TOLD", toldSQL).Replace(acquireSQL))
	s.sweep, s.look, s.evict, s.raise, s.held = with(sweepSQL), with(lookSQL), with(breakSQL), with(raiseSQL), with(heldSQL)
	return s, nil
}

// Schema returns the statements that make the table and the sequence, if they are not there, for
// programs that have migrations: those of Options.Table, or of the default if table is "".
func Schema(table string) (string, error) {
	if table == "" {
		table = DefaultTable
	}
	s, err := statementsFor(table)
	return s.schema, err
}

// invalid is an error that matches locker.ErrInvalid.
func invalid(format string, args ...any) error {
	return fmt.Errorf("postgres: %w: %w", locker.ErrInvalid, fmt.Errorf(format, args...))
}
