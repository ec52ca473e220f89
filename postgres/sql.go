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

// The table has one row for each name, the lock (its sharer is empty), and one for each sharer of a name, an
// entry. While sharers hold a name, its row has the owner sharersOwner and the token of their generation, and
// an entry counts only while it has that token: whatever ends the generation ends all of its entries. A
// sharer that was let in changes its own entry and nothing else, so it is in nobody's way.
//
// The name's advisory lock is its latch, which a transaction keeps until it ends. A transaction that changes
// who holds the name has the latch alone: a grant, the first sharer of a generation, the sweep of a row,
// Break of a generation. One that joins a generation has it shared, and so has one that called Held. A
// request tries for the latch and asks again later if another has it; only Held and Break wait for it. Where
// entries count, the latch is taken by a statement of its own ("take"), so that under READ COMMITTED the next
// one ("close", "join") sees what everybody has committed who had the latch before. A lock that sharers did
// not have last is granted by one statement ("grant"), which takes the latch and judges the row as the last
// transaction has left it. Renewals, releases, marks, and Break of a lock that is held alone need no latch:
// each changes one row, and judges it in the same way.
//
// What can meet, and what decides:
//
//   - Two requests for a name alone, or one of them and a first sharer: one has the latch, the other asks again.
//   - A grant and a late renewal of the lock that has just expired: both change that row, and the second judges
//     what the first has left.
//   - A grant, or a new generation, and a late renewal of an entry that has just expired: an entry that somebody
//     has locked is not deleted, and while an entry with the row's token is left, nothing is granted over it.
//     If the deletion is first, the renewal finds no entry.
//   - A join and the end of the last sharer: without an entry that lives there is nothing to join. The request
//     then needs the latch alone, and opens the next generation.
//   - A join and Break of the generation: Break waits for the latch. The join comes before it, and is broken,
//     or after it, and opens a generation. Break makes the row's token one that no entry has.
//   - A grant and the sweep of its row: both need the latch alone, and the sweep lifts the floor before it lets
//     go. A grant that began before has not seen that floor: the next statement ("tell") compares, and undoes it.
//   - A copy of a request that comes late finds its own owner, or makes a hold that ends when it asked. A hold
//     that was released and is kept has another owner (keptFor), so no copy and no renewal finds it.
//   - A release that keeps, and what changes its row first: it judges what that has left. What has ended by then,
//     or is gone, is not kept, and its holder is told so.
//   - The last sharers leave at the same moment: each tells the waiters. A mark that one of them has not seen
//     costs a writer the 300 ms until it asks again.
//   - A writer waits, and the generation ends: its note keeps sharers out until it is granted, leaves, or a
//     second has passed, and not only while the generation lasts.
//   - The connection is lost, the server fails over, or a proxy sends the rest to another connection, between
//     "take" and "close": the transaction is undone as a whole. What "take" noted is a setting of the transaction,
//     without which "close" and "join" let nobody in.
//   - The caller leaves, or is paused, in the middle: the transaction goes on without it, or ends with its
//     connection. What it makes ends when it asked, and Undo removes it.
//   - The server restarts: latches end with the transactions, and rows stay as they were committed.
//   - The clock is set back: each token is above the row's and the floor. Forward: tokens stay high.
//
// All statements use clock_timestamp(), and not now(), which is the beginning of the transaction, and no
// clock but the server's. $1 and so on are arrays with one element for each of the callers that share the
// statement.
const sharersOwner = "shared"

// keptFor comes before the owner of a row that a MinHold keeps for one who has released it. So the row has
// another owner for whatever that attempt may still ask, but the release.
const keptFor = "kept "

// schemaSQL makes the table and the sequence. kept is until when MinHold keeps what is held; waited: somebody
// is to be told of the release; until wanted, new sharers are kept out for the writer wanter. The row whose
// name is empty is no lock but the floor: its token is at least that of every row that was swept. The
// sequence is not OWNED BY the column, since it is of use where the table was lost.
const schemaSQL = `CREATE TABLE IF NOT EXISTS TABLE_NAME (
	name bytea NOT NULL,
	sharer text COLLATE "C" NOT NULL,
	owner text COLLATE "C" NOT NULL,
	label bytea NOT NULL,
	token bigint NOT NULL,
	since timestamptz NOT NULL,
	kept timestamptz NOT NULL,
	expires timestamptz NOT NULL,
	waited boolean NOT NULL,
	wanted timestamptz NOT NULL,
	wanter text COLLATE "C" NOT NULL,
	PRIMARY KEY (name, sharer)
) WITH (fillfactor = 50);
` + sequenceSQL

// sequenceSQL makes the sequence of a table that is there, and never the table.
const sequenceSQL = `CREATE SEQUENCE IF NOT EXISTS SEQUENCE_NAME`

// conditionsSQL comes before each of the others, in its transaction and its round trip. Plans are made once
// for a connection (a new one each time would cost five times what the statement does), and one that was made
// while the table was small must not go on reading all of it. What reads all of it all the same, as List
// does, looks so dear then that it would be compiled first, for 200 ms and more. A bitmap scan would not mark
// the index entries of sharers who have left as dead. $1 is whether the commit has to be on disk, and on the
// synchronous standbys if there are any. $2 is whether there have to be some, each with its name: if not, it
// divides by zero, and nothing is granted that would have to be taken back. $3 is whether the table has to be
// one that outlives a crash, whatever was renamed or altered since it was found: if it is not, the root is
// that of a negative number. EXISTS locks the table, which then stays as it is until the commit.
const conditionsSQL = `SELECT set_config('plan_cache_mode', 'force_generic_plan', true),
	set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
	set_config('jit', 'off', true), set_config('synchronous_commit', CASE WHEN NOT $1::boolean THEN 'off'
		WHEN current_setting('synchronous_commit') = 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true),
	1 / (NOT $2::boolean OR ` + namedSQL + `)::int,
	sqrt((NOT $3::boolean OR (
		SELECT c.relkind = 'r' AND c.relpersistence = 'p' AND NOT EXISTS (SELECT FROM TABLE_NAME WHERE false)
		FROM pg_class c WHERE c.oid = 'TABLE_NAME'::regclass
	))::int - 1)`

// namedSQL is whether synchronous_standby_names says which servers may take over.
const namedSQL = `current_setting('synchronous_standby_names') ~ '^[^*]+$'`

// onServerSQL has a commit wait for the server's own disk, where the conditions have it wait for
// nothing: a crash that undid the release would keep the lock for its whole TTL. It waits for no
// standby, as the other releases in its transaction need not.
const onServerSQL = `SELECT set_config('synchronous_commit', 'local', true)`

// Parts of statements. A plan that was made while the table was small must not read all of a large one: so a
// row is looked up by a subquery that OFFSET or LIMIT keeps from being joined in another way, and what is
// updated or deleted has to be among the names in $1.
const (
	// callersSQL are the callers a of a statement, and rowSQL has the lock l of each.
	callersSQL = `unnest($1::bytea[], $2::text[], $3::bigint[], $4::boolean[], $5::bytea[], $6::bigint[], $7::bigint[])
		WITH ORDINALITY AS a (name, owner, key, waits, label, ttl, min_hold, i)`
	askersSQL = `unnest($1::bytea[], $2::text[], $3::bigint[], $4::boolean[]) WITH ORDINALITY AS a (name, owner, key, waits, i)`
	rowSQL    = ` LEFT JOIN LATERAL (SELECT * FROM TABLE_NAME WHERE name = a.name AND sharer = '' OFFSET 0) l ON true `
	// aloneSQL is whether one has the lock l alone, or has released it and it is kept; sharedSQL is whether
	// sharers have it, whose entries are entriesSQL.
	aloneSQL   = `(l.owner NOT IN ('', 'shared') AND l.expires > clock_timestamp()) IS TRUE`
	sharedSQL  = `CASE WHEN l.owner = 'shared' THEN (SELECT true FROM ` + entriesSQL + ` LIMIT 1) END IS TRUE`
	entriesSQL = `TABLE_NAME s WHERE s.name = l.name AND s.sharer > '' AND s.token = l.token AND s.expires > clock_timestamp()`
	// countsSQL is whether a row s is a lock, or an entry with its lock's token.
	countsSQL = `CASE WHEN s.sharer = '' THEN true ELSE s.token = (
		SELECT g.token FROM TABLE_NAME g WHERE g.name = s.name AND g.sharer = '' AND g.owner = 'shared') END IS TRUE`
	// timesSQL are those of a request a.
	timesSQL = `clock_timestamp() AS since, clock_timestamp() + a.min_hold * interval '1 microsecond' AS kept,
		clock_timestamp() + a.ttl * interval '1 microsecond' AS expires`
	// nextSQL is a token above all that were swept (the floor), drawn or raised (the sequence), and given
	// since a backup (the clock). It is read with the latch.
	nextSQL = `GREATEST((SELECT f.token FROM TABLE_NAME f WHERE f.name = '' AND f.sharer = ''),
		nextval('SEQUENCE_NAME'), CAST(date_part('epoch', clock_timestamp()) * 1000000 AS bigint)) + 1`
	// latchedSQL are the numbers of the callers for whom there is a latch. It is an error if none was tried
	// for.
	latchedSQL = `ANY ((SELECT string_to_array(current_setting('locker.latched'), ',')::bigint[])::bigint[])`
	columnsSQL = `(name, sharer, owner, label, token, since, kept, expires, waited, wanted, wanter)`
	// notifySQL tells those who wait for the name of the row s, and toldSQL if somebody does: a sharer's entry
	// is not marked, but the lock's row.
	notifySQL = `pg_notify(CHANNEL_NAME, SCHEMA_NAME || '/' || encode(s.name, 'hex')) IS NULL`
	toldSQL   = `CASE WHEN s.waited OR (SELECT l.waited FROM TABLE_NAME l WHERE l.name = s.name AND l.sharer = '')
		THEN ` + notifySQL + ` END`
)

// expiredSQL deletes the entries of the names that have expired, but for those that are just being renewed.
const expiredSQL = `WITH ended AS (
	DELETE FROM TABLE_NAME WHERE ctid = ANY (ARRAY(SELECT ctid FROM TABLE_NAME
		WHERE name = ANY ($1::bytea[]) AND sharer > '' AND expires <= clock_timestamp() FOR UPDATE SKIP LOCKED))
)`

// leftSQL is whether an entry with the token of the lock of a is left, which may still be renewed.
const leftSQL = `(SELECT true FROM TABLE_NAME s WHERE s.name = a.name AND s.sharer > '' AND s.token =
	(SELECT g.token FROM TABLE_NAME g WHERE g.name = a.name AND g.sharer = '') LIMIT 1) IS TRUE`

// grantSQL grants what is free, unless sharers had it last. It takes the latches of the names that seem to be
// free, and the row says all there is to know: it is judged as the last transaction has left it. It waits for
// nobody's lock but that of a holder that is just renewing what has expired. A copy of the request, which
// finds the lock its own, shortens nothing.
const (
	ownSQL   = `CASE WHEN l.owner = excluded.owner AND l.expires > clock_timestamp() THEN `
	grantSQL = `INSERT INTO TABLE_NAME AS l ` + columnsSQL + `
SELECT name, '', owner, label, token, since, kept, expires, false, 'epoch', '' FROM (
	SELECT a.*, ` + timesSQL + `, ` + nextSQL + ` AS token FROM ` + callersSQL + `
	WHERE CASE WHEN (
			SELECT h.owner NOT IN ('', a.owner) AND (h.owner = 'shared' OR h.expires > clock_timestamp())
			FROM TABLE_NAME h WHERE h.name = a.name AND h.sharer = ''
		)
		THEN false ELSE pg_try_advisory_xact_lock(a.key) END
) a
ON CONFLICT (name, sharer) DO UPDATE SET owner = excluded.owner, label = excluded.label,
	waited = l.waited AND l.owner = excluded.owner, wanted = 'epoch', wanter = '',
	since = ` + ownSQL + `l.since ELSE excluded.since END, kept = ` + ownSQL + `l.kept ELSE excluded.kept END,
	expires = ` + ownSQL + `GREATEST(l.expires, excluded.expires) ELSE excluded.expires END,
	token = ` + ownSQL + `l.token ELSE GREATEST(l.token + 1, excluded.token) END
WHERE l.owner IN ('', excluded.owner) OR l.owner <> 'shared' AND l.expires <= clock_timestamp()
RETURNING l.name, l.token`
)

// takeSQL takes the latches $2 of names whose sharers have gone, for closeSQL.
const takeSQL = expiredSQL + `
SELECT set_config('locker.latched', coalesce(string_agg(a.i::text, ','), ''), true)
FROM unnest($1::bytea[], $2::bigint[]) WITH ORDINALITY AS a (name, key, i)` + rowSQL + `
WHERE CASE WHEN l.owner = 'shared' AND NOT ` + sharedSQL + ` THEN pg_try_advisory_xact_lock(a.key) ELSE false END`

// closeSQL frees names whose sharers have gone and for which there is the latch, once no entry is left that
// might still be renewed: then grantSQL grants them.
const closeSQL = `UPDATE TABLE_NAME l SET owner = '' FROM unnest($1::bytea[]) WITH ORDINALITY AS a (name, i)
WHERE l.name = ANY ($1::bytea[]) AND l.name = a.name AND l.sharer = '' AND l.owner = 'shared'
	AND a.i = ` + latchedSQL + ` AND NOT ` + leftSQL + ``

// tell says for how many microseconds the name is still held at most, or sharers are kept out: until then,
// for what is inTheWay beside a lock that is held alone. It says 0 if the name may be had (mayBe), as when
// somebody is just getting it, or removes its row. It is less than 0 if the hold ended that long ago and a
// transaction that called Held protects it, having the latch shared; if the row was swept meanwhile, that is
// long ago. Then it says whether the row could not be marked for one who waits, whether sharers have the
// name, and whether they had it last.
func tell(shared, inTheWay, until, mayBe string) string {
	return `CAST(EXTRACT(EPOCH FROM CASE
		WHEN ` + aloneSQL + ` THEN l.expires
		WHEN ` + inTheWay + ` THEN ` + until + `
		WHEN ` + mayBe + ` THEN clock_timestamp()
		WHEN pg_try_advisory_xact_lock_shared(a.key)
			THEN LEAST(coalesce(l.expires, clock_timestamp() - interval '1 minute'), clock_timestamp())
		ELSE clock_timestamp() END - clock_timestamp()) * 1000000 AS bigint),
	(a.waits AND NOT l.waited AND (` + aloneSQL + ` OR ` + inTheWay + `)) IS TRUE,
	` + shared + `, (l.owner = 'shared') IS TRUE`
}

// tellSQL tells of each name that was not granted; $5: closeSQL was asked, too. What was granted just now has
// to have a token above the floor as it is by now, or the logarithm of 0 undoes it: the statement that grants
// does not see what a sweep has just lifted.
var tellSQL = `SELECT a.i, 0::bigint, false, ` + tell("e.until IS NOT NULL", "e.until IS NOT NULL", "e.until",
	"l.owner = 'shared' AND NOT ($5::boolean[])[a.i]") + `
FROM ` + askersSQL + rowSQL + `
LEFT JOIN LATERAL (SELECT max(s.expires) AS until FROM ` + entriesSQL + ` AND l.owner = 'shared') e ON true
WHERE CASE WHEN l.owner = a.owner THEN ln(CASE WHEN l.since >= now() AND l.token <= (
	SELECT f.token FROM TABLE_NAME f WHERE f.name = '' AND f.sharer = '') THEN 0 ELSE 1 END) > 0 ELSE true END`

// Sharers that are let in beside each other do not count each other. So each transaction that lets some in
// takes one of besideSlots as well, another one when it asks again, with which it lets in besideMost of a
// name at most, while there are no more sharers than leave room for all slots. Beyond that they are let in
// and counted one after the other, with the latch alone.
const (
	besideSlots   = 64
	besideMost    = 32 // the bound of their batches
	besideSharers = driver.MaxSharers - besideSlots*besideMost
)

// takeSharesSQL takes latches for sharers: with others if the name has sharers, and alone if it has none, or
// so many that the next ones have to be counted one after the other. It leaves out those whom a writer's note
// keeps out, but for one who is in. It deletes the entries that have expired.
const takeSharesSQL = expiredSQL + `, names AS MATERIALIZED (
	SELECT l.*, (SELECT count(*) FROM ` + entriesSQL + `) AS sharers
	FROM (SELECT DISTINCT unnest($1::bytea[]) AS name) a ` + rowSQL + `
), tried AS MATERIALIZED (
	SELECT a.i, n.shares AND n.sharers BETWEEN 1 AND BESIDE_SHARERS AS beside, a.key FROM ` + askersSQL + `
	LEFT JOIN (SELECT *, owner = 'shared' AS shares FROM names) n ON n.name = a.name
	WHERE NOT coalesce(CASE WHEN n.owner NOT IN ('', 'shared') AND n.expires > clock_timestamp() THEN true
		WHEN n.wanted > clock_timestamp() THEN (SELECT true FROM TABLE_NAME s
			WHERE s.name = a.name AND s.sharer = a.owner AND s.token = n.token) IS NULL END, false)
)
SELECT set_config('locker.latched', coalesce(string_agg(i::text, ','), ''), true),
	set_config('locker.alone', coalesce(string_agg(i::text, ',') FILTER (WHERE NOT beside IS TRUE), ''), true)
FROM tried WHERE CASE WHEN beside THEN pg_try_advisory_xact_lock_shared(key)
	AND pg_try_advisory_xact_lock(key # (1 + date_part('microseconds', now())::int % BESIDE_SLOTS)) ELSE pg_try_advisory_xact_lock(key) END`

// joinSQL lets in the sharers for whom there is a latch: to those who share the name, or as the first of a
// generation. It returns the token of each, 0 if it was not let in, and whether the name has all the sharers
// that it can have; and then what tell says. A late copy of a sharer that has left it, and is kept, never gets in.
var joinSQL = `WITH asked AS MATERIALIZED (
	SELECT a.*, ` + timesSQL + `,
		i = ANY ((SELECT string_to_array(current_setting('locker.alone'), ',')::bigint[])::bigint[]) AS alone
	FROM ` + callersSQL + ` WHERE a.i = ` + latchedSQL + `
), live AS MATERIALIZED (
	SELECT l.name, l.token, (SELECT count(*) FROM ` + entriesSQL + `) AS sharers
	FROM (SELECT DISTINCT name FROM asked) a ` + rowSQL + ` WHERE l.owner = 'shared'
), opened AS (
	INSERT INTO TABLE_NAME AS l ` + columnsSQL + `
	SELECT name, '', 'shared', '', ` + nextSQL + `, clock_timestamp(), 'epoch', clock_timestamp(), false, 'epoch', ''
	FROM (SELECT DISTINCT name FROM asked WHERE alone) a WHERE NOT ` + leftSQL + `
	ON CONFLICT (name, sharer) DO UPDATE SET owner = excluded.owner, label = '', waited = false, since = excluded.since,
		kept = excluded.kept, expires = excluded.expires, token = GREATEST(l.token + 1, excluded.token)
	WHERE l.owner IN ('', 'shared') OR l.expires <= clock_timestamp()
	RETURNING name, token
), judged AS MATERIALIZED (
	SELECT a.*, g.token, (s.owner <> a.owner) IS TRUE AS left_it, s.name IS NOT NULL OR g.sharers
		+ row_number() OVER (PARTITION BY a.name, s.name IS NULL ORDER BY a.i) <= MAX_SHARERS AS fits
	FROM asked a JOIN (SELECT * FROM live WHERE sharers > 0 UNION ALL SELECT name, token, 0 FROM opened) g
		ON g.name = a.name AND (a.alone OR g.sharers <= BESIDE_SHARERS)
	LEFT JOIN LATERAL (SELECT * FROM TABLE_NAME s WHERE s.name = a.name AND s.sharer = a.owner AND s.token = g.token
		AND s.expires > clock_timestamp() OFFSET 0) s ON true
), entered AS (
	INSERT INTO TABLE_NAME AS s ` + columnsSQL + `
	SELECT name, owner, owner, label, token, since, kept, expires, false, 'epoch', '' FROM judged WHERE fits AND NOT left_it
	ON CONFLICT (name, sharer) DO UPDATE SET owner = excluded.owner, label = excluded.label, token = excluded.token,
		since = CASE WHEN s.token = excluded.token THEN s.since ELSE excluded.since END,
		kept = CASE WHEN s.token = excluded.token THEN s.kept ELSE excluded.kept END,
		expires = CASE WHEN s.token = excluded.token THEN GREATEST(s.expires, excluded.expires) ELSE excluded.expires END
	RETURNING name, sharer, token
)
SELECT a.i, coalesce(e.token, 0), (NOT j.fits) IS TRUE, ` + tell(sharedSQL, "l.wanted > clock_timestamp()", "l.wanted",
	"j.left_it IS NOT TRUE AND "+sharedSQL) + `
FROM ` + askersSQL + rowSQL + `
LEFT JOIN judged j ON j.i = a.i LEFT JOIN entered e ON e.name = a.name AND e.sharer = a.owner`

// markSQL marks the rows of what somebody waits for, so that its end is told; $3: sharers wait. It keeps new
// sharers out for a second for a writer that waits for sharers. A row that is locked is just being renewed,
// released or marked.
const markSQL = `WITH held AS MATERIALIZED (
	SELECT l.*, a.owner AS by FROM unnest($1::bytea[], $2::text[]) AS a (name, owner)
	JOIN LATERAL (
		SELECT l.ctid AS at, l.owner = 'shared' AND NOT $3::boolean AS notes FROM TABLE_NAME l
		WHERE l.name = a.name AND l.sharer = '' AND l.owner <> a.owner
			AND CASE WHEN l.owner = 'shared' AND NOT $3 THEN ` + sharedSQL + `
				ELSE NOT l.waited AND (` + aloneSQL + ` OR $3 AND l.wanted > clock_timestamp()) END
		FOR NO KEY UPDATE SKIP LOCKED
	) l ON true
)
UPDATE TABLE_NAME l SET waited = true,
	wanted = CASE WHEN h.notes THEN clock_timestamp() + interval '1 second' ELSE l.wanted END,
	wanter = CASE WHEN h.notes THEN h.by ELSE l.wanter END
FROM held h WHERE l.ctid = ANY (ARRAY(SELECT at FROM held)) AND l.ctid = h.at`

// unmarkSQL removes the note of a writer that leaves, and tells the sharers that it has kept out.
const unmarkSQL = `UPDATE TABLE_NAME s SET wanted = 'epoch', wanter = ''
WHERE name = $1 AND sharer = '' AND wanter = $2 RETURNING ` + notifySQL

// renewSQL returns those that were still held, and whether they are renewed: a row that somebody has locked
// is not waited for, since those beside it would wait, too.
const renewSQL = `WITH asked AS MATERIALIZED (
	SELECT * FROM unnest($1::bytea[], $2::text[], $3::text[], $4::bigint[]) WITH ORDINALITY AS a (name, sharer, owner, ttl, i)
), mine AS MATERIALIZED (
	SELECT a.i, a.ttl, s.at FROM asked a JOIN LATERAL (
		SELECT s.ctid AS at FROM TABLE_NAME s WHERE s.name = a.name AND s.sharer = a.sharer AND s.owner = a.owner
			AND s.expires > clock_timestamp() AND ` + countsSQL + `
		FOR NO KEY UPDATE SKIP LOCKED
	) s ON true
), renewed AS (
	UPDATE TABLE_NAME s SET expires = GREATEST(s.expires, clock_timestamp() + m.ttl * interval '1 microsecond')
	FROM mine m WHERE s.ctid = ANY (ARRAY(SELECT at FROM mine)) AND s.ctid = m.at
	RETURNING m.i
)
SELECT a.i, r.i IS NOT NULL FROM asked a
JOIN LATERAL (SELECT * FROM TABLE_NAME WHERE name = a.name AND sharer = a.sharer OFFSET 0) s ON true
LEFT JOIN renewed r ON r.i = a.i
WHERE r.i IS NOT NULL OR s.owner = a.owner AND s.expires > clock_timestamp() AND ` + countsSQL

// releaseSQL frees locks that were held alone or kept, by their owners $2, which no two attempts have in
// common. Like leaveSQL and keepSQL, it returns those that it finds as they were when their rows were there to be
// changed, says which had not ended, and tells those who wait. NOTIFY makes commits wait for each other in the
// whole server, so it is not said to nobody.
const releaseSQL = `UPDATE TABLE_NAME s SET owner = '', label = '', expires = LEAST(expires, clock_timestamp())
WHERE name = ANY ($1::bytea[]) AND sharer = '' AND replace(owner, 'kept ', '') = ANY ($2::text[])
RETURNING name, '', expires >= statement_timestamp() AS in_time, CASE WHEN waited THEN ` + notifySQL + ` END`

// leaveSQL deletes the entries of sharers, also those that do not count.
const leaveSQL = `DELETE FROM TABLE_NAME s USING unnest($1::bytea[], $2::text[]) AS a (name, sharer)
WHERE s.name = ANY ($1::bytea[]) AND s.name = a.name AND s.sharer = a.sharer
RETURNING s.name, s.sharer, s.expires >= statement_timestamp() AND ` + countsSQL + ` AS in_time, ` + toldSQL

// keepSQL keeps what is held, alone or shared, for the rest of a MinHold, once: those who wait learn for how
// long. The statement may have waited for the row. If that was changed meanwhile, it is judged as it is by then: what
// is not held any more is not kept, and what was renewed is. If it was only locked, it is as when the statement began.
const keepSQL = `UPDATE TABLE_NAME s SET owner = 'kept ' || a.owner, expires = CASE
	WHEN s.expires <= clock_timestamp() THEN LEAST(s.expires, statement_timestamp() - interval '1 microsecond')
	WHEN s.owner = a.owner THEN clock_timestamp() + a.keep * interval '1 microsecond' ELSE s.expires END
FROM unnest($1::bytea[], $2::text[], $3::text[], $4::bigint[]) AS a (name, sharer, owner, keep)
WHERE s.name = ANY ($1::bytea[]) AND s.name = a.name AND s.sharer = a.sharer
	AND s.owner IN (a.owner, 'kept ' || a.owner) AND ` + countsSQL + `
RETURNING s.name, s.sharer, s.expires >= statement_timestamp() AS in_time, ` + toldSQL

// lookSQL is the state of one name, and stateSQL of what is held; a condition for the lock l follows it.
const lookSQL = stateSQL + `l.name = $1`

const stateSQL = `SELECT l.name, l.owner, l.label, l.token, coalesce(e.since, l.since),
	(SELECT k.until FROM (VALUES (coalesce(e.kept, CASE WHEN l.owner LIKE 'kept %' THEN l.expires ELSE l.kept END))) k (until)
		WHERE k.until > clock_timestamp()),
	CAST(EXTRACT(EPOCH FROM coalesce(e.expires, l.expires) - clock_timestamp()) * 1000000 AS bigint), e.number, e.labels
FROM TABLE_NAME l CROSS JOIN LATERAL (
	SELECT count(*) AS number, (array_agg(DISTINCT s.label))[1:16] AS labels, max(s.expires) AS expires, min(s.since) AS since,
		max(CASE WHEN s.owner <> s.sharer THEN s.expires ELSE s.kept END) AS kept
	FROM TABLE_NAME s WHERE l.owner = 'shared' AND s.name = l.name AND s.sharer > '' AND s.token = l.token
		AND s.expires > clock_timestamp()
) e
WHERE l.sharer = '' AND (` + aloneSQL + ` OR e.number > 0) AND `

// listSQL finds what is held in a part of the names from $1 to $2, and last, as a row without an owner, where
// the next part begins.
const listSQL = `WITH next AS MATERIALIZED (
	SELECT name FROM TABLE_NAME WHERE name >= $1 AND name < $2 AND sharer = '' ORDER BY name LIMIT 1 OFFSET 10000
)
` + stateSQL + `l.name >= $1 AND l.name < coalesce((SELECT name FROM next), $2)
UNION ALL SELECT name, '', '', 0, 'epoch', NULL, 0, 0, NULL FROM next`

// breakSQL ends the hold of that owner, kept or not, or the generation with that token: no entry has the next
// one.
const breakSQL = `UPDATE TABLE_NAME s SET owner = '', label = '', token = token + 1, expires = clock_timestamp()
WHERE name = $1 AND sharer = '' AND owner IN ($2::text, 'kept ' || $2) AND token = $3 AND owner <> ''
RETURNING ` + notifySQL + ` AS broken`

// latchSQL takes the latch $1 with others, as all do that keep a name from being granted until they end.
const latchSQL = `SELECT pg_advisory_xact_lock_shared($1)`

// rowsSQL are the rows of a hold: its own, and that of the lock, which is the same if it is held alone.
const rowsSQL = `FROM TABLE_NAME l, TABLE_NAME s WHERE l.name = $1 AND l.sharer = ''
	AND s.name = $1 AND s.sharer = $2 AND s.owner = $3 AND s.token = l.token AND s.expires > clock_timestamp()
	AND l.owner = CASE WHEN s.sharer = '' THEN s.owner ELSE 'shared' END`

// heldSQL finds the rows of a hold, after the latch. FOR SHARE looks at them as they are, also where the
// transaction's snapshot is older, and then fails with 40001 if they have changed since (FOR KEY SHARE would
// overlook it). It would be in the way of renewals, and so it ends with a savepoint; the latch goes on.
const heldSQL = `SELECT true ` + rowsSQL + ` FOR SHARE`

// mineSQL is an error if a hold is lost: a text that is no number.
const mineSQL = `SELECT (CASE WHEN EXISTS (SELECT ` + rowsSQL + `) THEN '1' ELSE 'lost' END)::int`

// floorSQL lifts the floor, and makes it.
const floorSQL = `INSERT INTO TABLE_NAME AS l ` + columnsSQL + `
VALUES ('', '', '', '', $1, 'epoch', 'epoch', clock_timestamp(), false, 'epoch', '')
ON CONFLICT (name, sharer) DO UPDATE SET token = excluded.token WHERE l.token < excluded.token`

// raiseSQL sets the sequence far above the token, unless it is above it: where the row is deleted by hand,
// the floor alone would give the same token twice. Far, since others may draw from it between reading and
// setting it, and must not be overtaken. It comes after floorSQL, so that one does so after the other.
const raiseSQL = `SELECT setval('SEQUENCE_NAME', $1::bigint + (1 << 24)) FROM SEQUENCE_NAME WHERE last_value <= $1`

// turnSQL returns a row if nobody has swept for ten minutes.
const turnSQL = `INSERT INTO TABLE_NAME AS l ` + columnsSQL + `
SELECT '', '', '', '', 0, 'epoch', 'epoch', clock_timestamp(), false, 'epoch', '' WHERE NOT EXISTS (
	SELECT FROM TABLE_NAME WHERE name = '' AND sharer = '' AND expires >= clock_timestamp() - interval '10 minutes')
ON CONFLICT (name, sharer) DO UPDATE SET expires = excluded.expires
WHERE l.expires < excluded.expires - interval '10 minutes' RETURNING true`

// sweepSQL deletes, of the next rows after ($1, $2), those that nobody has used for ten minutes, a lock's
// with its latch, and lifts the floor above them. It returns the last row that it looked at. It takes 200
// latches at a time at most: the server has room for 64 for each of its connections.
const sweepSQL = `WITH part AS MATERIALIZED (
	SELECT name, sharer FROM TABLE_NAME WHERE (name, sharer) > ($1::bytea, $2::text) ORDER BY name, sharer LIMIT 200
), last AS MATERIALIZED (
	SELECT name, sharer FROM part ORDER BY name DESC, sharer DESC LIMIT 1
), old AS MATERIALIZED (
	SELECT l.ctid AS at FROM TABLE_NAME l
	WHERE (name, sharer) > ($1, $2) AND (name, sharer) <= ((SELECT name FROM last), (SELECT sharer FROM last)) AND CASE
		WHEN expires >= clock_timestamp() - interval '10 minutes' THEN false
		WHEN sharer > '' THEN true
		WHEN (SELECT true FROM TABLE_NAME s WHERE s.name = l.name AND s.sharer > ''
			AND s.expires >= clock_timestamp() - interval '10 minutes' LIMIT 1) THEN false
		ELSE pg_try_advisory_xact_lock(KEY_OF_NAME) END
	FOR UPDATE SKIP LOCKED
), gone AS (
	DELETE FROM TABLE_NAME WHERE ctid = ANY (ARRAY(SELECT at FROM old)) RETURNING token
), lifted AS (
	UPDATE TABLE_NAME SET token = GREATEST(token, (SELECT max(token) FROM gone))
	WHERE name = '' AND sharer = '' AND (SELECT count(*) FROM gone) > 0
)
SELECT name, sharer FROM last`

// identifier is a table with or without its schema. It is quoted all the same, so that a reserved word
// is a name too. The longest has room for what the sequence's name adds.
var identifier = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]{0,62}\.)?[A-Za-z_][A-Za-z0-9_]{0,54}$`)

// statements are those for one table.
type statements struct {
	schemaName string
	table      string // quoted, with its schema

	schema, sequence, conditions                                    string
	grant, tell, take, close, takeShares, join, mark, unmark, renew string
	release, leave, keep, look, list, evict, held, mine             string
	floor, raise, turn, sweep                                       string
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
	with := strings.NewReplacer(
		"'TABLE_NAME'", literal(quote(table)), "TABLE_NAME", quote(table),
		"'SEQUENCE_NAME'", literal(sequence), "SEQUENCE_NAME", sequence,
		"CHANNEL_NAME", literal(table), "SCHEMA_NAME", literal(schema),
		"MAX_SHARERS", strconv.Itoa(driver.MaxSharers), "BESIDE_SHARERS", strconv.Itoa(besideSharers),
		"BESIDE_SLOTS", strconv.Itoa(besideSlots),
		"KEY_OF_NAME", "('x' || encode(substring(sha256(convert_to("+literal(quote(table))+
			", 'UTF8') || '\\x00'::bytea || name) FOR 8), 'hex'))::bit(64)::bigint",
	).Replace
	return &statements{
		schemaName: schema, table: quote(table),
		schema: with(schemaSQL), sequence: with(sequenceSQL), conditions: with(conditionsSQL),
		grant: with(grantSQL), tell: with(tellSQL), take: with(takeSQL), close: with(closeSQL),
		takeShares: with(takeSharesSQL), join: with(joinSQL),
		mark: with(markSQL), unmark: with(unmarkSQL), renew: with(renewSQL),
		release: with(releaseSQL), leave: with(leaveSQL), keep: with(keepSQL),
		look: with(lookSQL), list: with(listSQL), evict: with(breakSQL), held: with(heldSQL), mine: with(mineSQL),
		floor: with(floorSQL), raise: with(raiseSQL), turn: with(turnSQL), sweep: with(sweepSQL),
	}
}

// key is the latch of a name.
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
