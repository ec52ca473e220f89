package postgres

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/golockers/locker/driver"
)

// All statements use clock_timestamp(), and not now(), which is the beginning of the transaction, and no
// clock but the server's. $1 and so on are arrays with one element for each of the callers that share the
// statement.

// schemaSQL makes the table and the sequence. The sequence is not OWNED BY the column: it outlives a DROP
// TABLE and a TRUNCATE, as the table outlives the loss of the sequence. A new sequence begins above all
// tokens that the table remembers: those of its rows, and those of the rows that were swept, which are at
// most the token of the row whose name is empty, the floor.
const schemaSQL = `CREATE TABLE IF NOT EXISTS TABLE_NAME (
	name bytea NOT NULL PRIMARY KEY,
	owner text NOT NULL,
	label bytea NOT NULL,
	token bigint NOT NULL,
	expires timestamptz NOT NULL,
	waited boolean NOT NULL
) WITH (fillfactor = 50);
` + sequenceSQL

// sequenceSQL makes the sequence of a table that is there, and never the table.
const sequenceSQL = `CREATE SEQUENCE IF NOT EXISTS SEQUENCE_NAME;
SELECT setval('SEQUENCE_NAME', h.token + RAISE_GAP)
FROM (SELECT max(token) AS token FROM TABLE_NAME) h, SEQUENCE_NAME s
WHERE s.last_value < h.token`

// conditionsSQL comes before each of the others, in its transaction and its round trip. Plans are made once
// for a connection (a new one each time would cost five times what the statement does), and one that was
// made while the table was small must not go on reading all of it. What reads all of it all the same, as List does,
// looks so dear then that it would be compiled first, for 200 ms and more. $1 is whether the commit has to be on
// disk, and on the synchronous standbys if there are any. $2 is whether there have to be some, each with its
// name: if not, it divides by zero, and nothing is granted that would have to be taken back. $3 is whether the
// table has to be one that outlives a crash, whatever was renamed or altered since it was found: if it is not, the
// root is that of a negative number. EXISTS locks the table, which then stays as it is until the commit.
const conditionsSQL = `SELECT set_config('plan_cache_mode', 'force_generic_plan', true),
	set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true),
	set_config('synchronous_commit', CASE WHEN NOT $1::boolean THEN 'off'
		WHEN current_setting('synchronous_commit') = 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true),
	1 / (NOT $2::boolean OR ` + namedSQL + `)::int,
	sqrt((NOT $3::boolean OR (
		SELECT c.relkind = 'r' AND c.relpersistence = 'p' AND NOT EXISTS (SELECT FROM TABLE_NAME WHERE false)
		FROM pg_class c WHERE c.oid = 'TABLE_NAME'::regclass
	))::int - 1)`

// namedSQL is whether synchronous_standby_names says which servers may take over.
const namedSQL = `current_setting('synchronous_standby_names') ~ '^[^*]+$'`

// grantSQL grants what is free. It waits for nobody's lock but that of a holder that is just renewing what
// has expired. The advisory lock of a name orders its tokens: nextval comes after it, and the commit before
// its end. A token that does not rise is NULL, which the table refuses: the transaction grants nothing
// then.
const grantSQL = `INSERT INTO TABLE_NAME AS l (name, owner, label, token, expires, waited)
SELECT name, owner, label,
	CASE WHEN token > coalesce((SELECT f.token FROM TABLE_NAME f WHERE f.name = ''), 0) THEN token END,
	clock_timestamp() + ttl * interval '1 microsecond', false
FROM (
	SELECT a.*, nextval('SEQUENCE_NAME') AS token
	FROM unnest($1::bytea[], $2::text[], $3::bytea[], $4::bigint[], $5::bigint[])
		AS a (name, owner, label, ttl, key)
	WHERE CASE WHEN (
			SELECT h.owner NOT IN ('', a.owner) AND h.expires > clock_timestamp()
			FROM TABLE_NAME h WHERE h.name = a.name
		)
		THEN false ELSE pg_try_advisory_xact_lock(a.key) END
) drawn
ON CONFLICT (name) DO UPDATE
SET owner = excluded.owner, label = excluded.label, waited = l.waited AND l.owner = excluded.owner,
	expires = CASE WHEN l.owner = excluded.owner THEN GREATEST(l.expires, excluded.expires)
		ELSE excluded.expires END,
	token = CASE WHEN l.owner = excluded.owner AND l.expires > clock_timestamp() THEN l.token
		WHEN excluded.token > l.token THEN excluded.token END
WHERE l.owner IN ('', excluded.owner) OR l.expires <= clock_timestamp()
RETURNING l.name, l.token`

// markSQL marks the rows of the holders that somebody waits for, so that their release is told. A row that is
// locked is just being renewed or released.
const markSQL = `UPDATE TABLE_NAME l SET waited = true FROM (
	SELECT t.name FROM TABLE_NAME t JOIN unnest($1::bytea[], $2::text[]) AS a (name, owner) ON t.name = a.name
	WHERE t.owner NOT IN ('', a.owner) AND t.expires > clock_timestamp() AND NOT t.waited
	FOR NO KEY UPDATE OF t SKIP LOCKED
) m WHERE l.name = m.name`

// tellSQL says of what was not granted how long its holder still has it. Of a name that is neither held nor
// to be had, it says 0, or how long ago the lease ended (less than 0) if transactions that called Held
// protect it: their advisory locks are shared. If the row was swept meanwhile, that is long ago. It is
// silent about a row that a waiter could not mark. Last, it says whether sharers are in the way.
const tellSQL = `SELECT a.name, CAST(EXTRACT(EPOCH FROM CASE
	WHEN l.owner <> '' AND l.expires > clock_timestamp() THEN l.expires
	WHEN pg_try_advisory_xact_lock_shared(a.key)
		THEN LEAST(coalesce(l.expires, clock_timestamp() - interval '1 minute'), clock_timestamp())
	ELSE clock_timestamp() END - clock_timestamp()) * 1000000 AS bigint), (l.owner = 'SHARERS_OWNER') IS TRUE
FROM unnest($1::bytea[], $2::text[], $3::boolean[], $4::bigint[]) AS a (name, owner, waits, key)
LEFT JOIN TABLE_NAME l ON l.name = a.name
WHERE l.owner IS DISTINCT FROM a.owner
	AND (NOT a.waits OR l.waited OR (l.owner <> '' AND l.expires > clock_timestamp()) IS NOT TRUE)`

// renewSQL returns those that were still held, and whether they are renewed: a row that somebody has locked
// is not waited for, since those beside it would wait, too.
const renewSQL = `WITH mine AS MATERIALIZED (
	SELECT l.name, a.i, a.ttl FROM TABLE_NAME l
	JOIN unnest($1::bytea[], $2::text[], $3::bigint[]) WITH ORDINALITY AS a (name, owner, ttl, i)
		ON l.name = a.name
	WHERE l.owner = a.owner AND l.expires > clock_timestamp()
	FOR NO KEY UPDATE OF l SKIP LOCKED
), kept AS (
	UPDATE TABLE_NAME l SET expires = GREATEST(l.expires, clock_timestamp() + m.ttl * interval '1 microsecond')
	FROM mine m WHERE l.name = m.name
	RETURNING m.i
)
SELECT a.i, k.i IS NOT NULL
FROM unnest($1::bytea[], $2::text[]) WITH ORDINALITY AS a (name, owner, i)
JOIN TABLE_NAME l ON l.name = a.name LEFT JOIN kept k ON k.i = a.i
WHERE k.i IS NOT NULL OR l.owner = a.owner AND l.expires > clock_timestamp()`

// releaseSQL says which of them were still held, and tells those who wait. NOTIFY makes commits wait for
// each other in the whole server, so it is not said to nobody.
const releaseSQL = `WITH freed AS (
	UPDATE TABLE_NAME l SET owner = '', label = '', expires = LEAST(l.expires, clock_timestamp())
	FROM unnest($1::bytea[], $2::text[]) WITH ORDINALITY AS a (name, owner, i)
	WHERE l.name = a.name AND l.owner = a.owner
	RETURNING a.i, l.name, l.waited, l.expires >= statement_timestamp() AS held
)
SELECT i, held,
	CASE WHEN waited THEN pg_notify(CHANNEL_NAME, SCHEMA_NAME || '/' || encode(name, 'hex')) IS NULL END
FROM freed`

// sweepSQL removes, of the next thousand rows in the order of their names, those that nobody has used for
// ten minutes, and says whether there are more. The floor has the last name of the part before as its
// label, and as its expiry the time of it; a pass over the whole table begins ten minutes after the one
// before. The client that has locked the floor's row is the one that sweeps.
const sweepSQL = `WITH floor AS MATERIALIZED (
	SELECT label FROM TABLE_NAME
	WHERE name = '' AND (label <> '' OR expires < clock_timestamp() - interval '10 minutes')
	FOR UPDATE SKIP LOCKED
), part AS MATERIALIZED (
	SELECT p.name FROM floor,
		LATERAL (SELECT name FROM TABLE_NAME WHERE name > floor.label ORDER BY name LIMIT 1000) p
), gone AS (
	DELETE FROM TABLE_NAME l USING (
		SELECT t.name FROM TABLE_NAME t JOIN part ON t.name = part.name
		WHERE t.expires < clock_timestamp() - interval '10 minutes' FOR UPDATE OF t SKIP LOCKED
	) o WHERE l.name = o.name
	RETURNING l.token
)
UPDATE TABLE_NAME l SET token = GREATEST(l.token, (SELECT max(token) FROM gone)), expires = clock_timestamp(),
	label = CASE WHEN (SELECT count(*) FROM part) < 1000 THEN ''
		ELSE (SELECT name FROM part ORDER BY name DESC LIMIT 1) END
FROM floor WHERE l.name = ''
RETURNING l.label <> ''`

// floorSQL lifts the floor, and makes it.
const floorSQL = `INSERT INTO TABLE_NAME AS l VALUES ('', '', '', $1, clock_timestamp(), false)
ON CONFLICT (name) DO UPDATE SET token = excluded.token WHERE l.token < excluded.token`

// stateSQL is the state of a row l that is held.
const stateSQL = `SELECT l.name, l.owner, l.label, l.token,
	CAST(EXTRACT(EPOCH FROM l.expires - clock_timestamp()) * 1000000 AS bigint), sharing.number, sharing.labels
FROM TABLE_OR_CTE l CROSS JOIN LATERAL (
	SELECT count(*) AS number, (array_agg(DISTINCT s.label))[1:16] AS labels
	FROM TABLE_NAME s WHERE l.owner = 'SHARERS_OWNER' AND ENTRIES_OF_L
) sharing`

// lookSQL finds what is held; a condition follows it.
const lookSQL = stateSQL + ` WHERE l.owner <> '' AND l.expires > clock_timestamp() AND `

// listSQL finds what is held in a part of the rows from $1 to $2, and last, as a row without an owner, where the next
// part begins.
const listSQL = `WITH next AS MATERIALIZED (
	SELECT name FROM TABLE_NAME WHERE name >= $1 AND name < $2 ORDER BY name LIMIT 1 OFFSET 10000
)
` + lookSQL + `l.name >= $1 AND l.name < coalesce((SELECT name FROM next), $2)
UNION ALL SELECT name, '', '', 0, 0, 0, NULL FROM next`

// breakSQL ends the hold of that owner, or of those who share that token.
const breakSQL = `WITH freed AS (
	UPDATE TABLE_NAME l SET owner = '', label = '', expires = clock_timestamp()
	FROM (
		SELECT * FROM TABLE_NAME
		WHERE name = $1 AND owner = $2 AND token = $3 AND owner <> '' AND expires > clock_timestamp()
		FOR NO KEY UPDATE
	) o
	WHERE l.name = o.name
	RETURNING o.*
), ended AS (DELETE FROM TABLE_NAME s USING freed l WHERE ENTRIES_OF_L)
` + stateSQL + `, pg_notify(CHANNEL_NAME, SCHEMA_NAME || '/' || encode($1, 'hex'))`

// raiseGap is how far above a token the sequence is set. Between reading it and setting it, others may draw
// from it, and must not be overtaken: sixteen million of them do not come in that time. Redis counts up to
// 2⁵³, and a lock that moves there may have been raised many times.
const raiseGap = 1 << 24

// raiseSQL sets the sequence far above the token, unless it is above it.
const raiseSQL = `SELECT setval('SEQUENCE_NAME', $1::bigint + RAISE_GAP)
FROM SEQUENCE_NAME WHERE last_value <= $1`

// heldSQL finds the lock of an owner, after the advisory lock that keeps it from being granted to another.
// FOR SHARE looks at the row as it is, also where the transaction's snapshot is older, and then fails with
// 40001 if the row has changed since (FOR KEY SHARE would overlook it). It would be in the way of renewals,
// and so it ends with a savepoint; the advisory lock goes on.
const heldSQL = `SELECT true FROM TABLE_NAME
WHERE name = $1 AND owner = $2 AND expires > clock_timestamp() FOR SHARE`

// identifier is a table with or without its schema. It is quoted all the same, so that a reserved word
// is a name too. The longest has room for what the sequence's name adds.
var identifier = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]{0,62}\.)?[A-Za-z_][A-Za-z0-9_]{0,54}$`)

// statements are those for one table.
type statements struct {
	schemaName string
	table      string // quoted, with its schema

	schema, sequence, conditions, last, acquire, mark, tell, renew, release, sweep, floor, look, list, evict, raise, held string

	make, lock, join, renewShared, leave, note, unnote, heldShared string
}

// parse splits the name of a table. The schema is "" if it is not named.
func parse(table string) (schema, name string, err error) {
	if !identifier.MatchString(table) {
		return "", "", invalid("the table is %.130q: give table or schema.table, "+
			"of ASCII letters, digits and underscores, not a digit first, and at most 55 of them in the table",
			table)
	}
	if before, after, ok := strings.Cut(table, "."); ok {
		return before, after, nil
	}
	return "", table, nil
}

// statementsFor makes the statements for a table. If schema is "", they are only good for making the table.
func statementsFor(schema, table string) *statements {
	quote := func(name string) string {
		if schema == "" {
			return pgx.Identifier{name}.Sanitize()
		}
		return pgx.Identifier{schema, name}.Sanitize()
	}
	literal := func(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
	sequence := quote(table + "_tokens")
	sharers := strings.NewReplacer(
		"ENTRIES_OF_L", entriesSQL, "SHARERS_OWNER", sharersOwner, "MAX_SHARERS", strconv.Itoa(driver.MaxSharers),
	)
	tokens := strings.NewReplacer(
		"BYTE_FF", "decode('ff', 'hex')",
		"'TABLE_NAME'", literal(quote(table)), "TABLE_NAME", quote(table), "'SEQUENCE_NAME'", literal(sequence), "SEQUENCE_NAME", sequence,
		"CHANNEL_NAME", literal(table), "SCHEMA_NAME", literal(schema), "RAISE_GAP", strconv.Itoa(raiseGap),
	)
	with := func(text string) string { return tokens.Replace(sharers.Replace(text)) }
	look := strings.Replace(lookSQL, "TABLE_OR_CTE", "TABLE_NAME", 1)
	list := strings.Replace(listSQL, "TABLE_OR_CTE", "TABLE_NAME", 1)
	evict := strings.Replace(breakSQL, "TABLE_OR_CTE", "freed", 1)
	return &statements{
		schemaName: schema, table: quote(table),
		schema: with(schemaSQL), sequence: with(sequenceSQL), conditions: with(conditionsSQL), last: with(lastSQL),
		acquire: with(grantSQL), mark: with(markSQL), tell: with(tellSQL),
		renew: with(renewSQL), release: with(releaseSQL), sweep: with(sweepSQL), floor: with(floorSQL),
		look: with(look), list: with(list), evict: with(evict), raise: with(raiseSQL), held: with(heldSQL),
		make: with(makeSQL), lock: with(lockSQL), join: with(joinSQL), renewShared: with(renewSharedSQL),
		leave: with(leaveSQL), note: with(noteSQL), unnote: with(unnoteSQL), heldShared: with(heldSharedSQL),
	}
}

// key is the advisory lock of a name.
func (s *statements) key(name string) int64 {
	sum := sha256.Sum256([]byte(s.table + "\x00" + name))
	return int64(binary.BigEndian.Uint64(sum[:]))
}

// Schema returns the statements that make the table and the sequence, if they are not there, for
// programs that have migrations: those of Options.Table, or of the default if table is "".
func Schema(table string) (string, error) {
	if table == "" {
		table = DefaultTable
	}
	schema, name, err := parse(table)
	if err != nil {
		return "", err
	}
	return statementsFor(schema, name).schema, nil
}

// invalid is an error that matches driver.ErrInvalid.
func invalid(format string, args ...any) error {
	return fmt.Errorf("postgres: %w: %w", driver.ErrInvalid, fmt.Errorf(format, args...))
}
