package postgres

// While sharers hold a name, its row says so: its owner is sharersOwner, its token theirs, and it expires
// with the last of them. A request for the lock alone looks at nothing else. Each sharer has an entry of its
// own in the same table, and so has the writer that waits for them: the note. The entry's name is the byte
// FF, which no name has since names are UTF-8, the lock's name, FF again, and the sharer's owner, or nothing
// more for a note. Its owner is empty, so that nobody takes it for a lock. An entry counts only while its
// token is that of the lock's row. So what ends the row ends all entries: a deletion, a Break, and the grant
// of the next token, which makes every note void.
//
// Each change of a sharer's entry but a renewal is made by a statement that comes after one which has locked
// the lock's row, and it changes that row, too. Under READ COMMITTED, a statement sees what was committed
// before it began. So those who share a name see each other's changes one after the other, whatever clients
// they come from. A writer's grant is one statement that changes the lock's row: it waits for the transaction
// that has locked the row, and then judges the row as that has left it (ON CONFLICT). What can meet:
//
//   - A sharer asks while a writer's grant is under way, or the other way round: the one that has locked the
//     row first commits, and the other finds it held. They may hinder each other at the advisory lock: then
//     the one that waits for the row gets the lock.
//   - The last sharer leaves while another comes: if it leaves first, the other opens a generation of its
//     own, with a new token; if not, it finds the other's entry, and the row stays.
//   - A sharer's request, or its repetition, arrives when the row is a writer's: it changes nothing. If the
//     row is free, or another generation's, it makes a sharer that ends with its TTL, as a late request of
//     a writer does.
//   - A renewal or a release arrives late: there is no entry with that owner and the token of the row.
//   - The row expires: its end is never before that of an entry, so no sharer outlives it.
//   - A transaction that called Held has the advisory lock shared: it keeps writers and new generations out.
//   - A note is written without the row's lock. A sharer that does not see it yet has come before it.
const sharersOwner = "shared"

// entriesSQL is the condition for the entries s of those who share a row l.
const entriesSQL = `s.name > BYTE_FF || l.name || BYTE_FF AND s.name < BYTE_FF || l.name || BYTE_FF || BYTE_FF
	AND s.token = l.token AND s.expires > clock_timestamp()`

// makeSQL makes the rows that are missing, and locks all.
const makeSQL = `INSERT INTO TABLE_NAME AS l (name, owner, label, token, expires, waited)
SELECT name, '', '', 0, clock_timestamp(), false FROM unnest($1::bytea[]) AS a (name) ORDER BY name
ON CONFLICT (name) DO UPDATE SET waited = l.waited WHERE false`

// lockSQL locks the rows that are there.
const lockSQL = `SELECT FROM TABLE_NAME WHERE name = ANY ($1::bytea[]) ORDER BY name FOR NO KEY UPDATE`

// joinSQL lets in the sharers who find their name free, or shared without a note, or their own entry. It
// returns the token of each, 0 if it was not let in; how long the note still stands that kept it out, 0 if
// there is none; and whether the name has all the sharers that it can have. A generation is opened as a lock
// is granted to one alone: nextval comes after the advisory lock, and a token that does not rise is NULL.
const joinSQL = `WITH asked AS MATERIALIZED (
	SELECT a.*, clock_timestamp() + ttl * interval '1 microsecond' AS expires
	FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bigint[], $5::bigint[]) WITH ORDINALITY
		AS a (name, entry, label, ttl, key, i)
), found AS MATERIALIZED (
	SELECT l.name, l.token, l.shared, g.expires AS note,
		CASE WHEN l.shared THEN (SELECT count(*) FROM TABLE_NAME s WHERE ENTRIES_OF_L) ELSE 0 END AS sharers
	FROM (
		SELECT *, owner = 'SHARERS_OWNER' AND expires > clock_timestamp() AS shared
		FROM TABLE_NAME WHERE name IN (SELECT name FROM asked)
	) l
	LEFT JOIN TABLE_NAME g
		ON g.name = BYTE_FF || l.name || BYTE_FF AND g.token = l.token AND g.expires > clock_timestamp()
	WHERE l.shared OR l.owner = '' OR l.expires <= clock_timestamp()
), judged AS MATERIALIZED (
	SELECT a.*, f.shared, f.note, s.name IS NOT NULL AS has, NOT (f.shared AND f.sharers + row_number()
		OVER (PARTITION BY a.name, s.name IS NULL ORDER BY a.i) > MAX_SHARERS) AS fits
	FROM asked a JOIN found f ON f.name = a.name
	LEFT JOIN TABLE_NAME s
		ON f.shared AND s.name = a.entry AND s.token = f.token AND s.expires > clock_timestamp()
), let AS MATERIALIZED (
	SELECT * FROM judged WHERE has OR note IS NULL AND fits
), opened AS (
	UPDATE TABLE_NAME l SET owner = 'SHARERS_OWNER', label = '', waited = l.waited AND n.shared,
		expires = CASE WHEN n.shared THEN GREATEST(l.expires, n.expires) ELSE n.expires END,
		token = CASE WHEN n.shared THEN l.token ELSE (
			SELECT CASE WHEN d.token > GREATEST(l.token, f.token) THEN d.token END
			FROM nextval('SEQUENCE_NAME') AS d (token) LEFT JOIN TABLE_NAME f ON f.name = ''
		) END
	FROM (SELECT name, key, shared, max(expires) AS expires FROM let GROUP BY name, key, shared) n
	WHERE l.name = n.name AND CASE WHEN n.shared THEN true ELSE pg_try_advisory_xact_lock(n.key) END
	RETURNING l.name, l.token
), entered AS (
	INSERT INTO TABLE_NAME AS s (name, owner, label, token, expires, waited)
	SELECT a.entry, '', a.label, o.token, a.expires, false FROM let a JOIN opened o ON o.name = a.name
	ON CONFLICT (name) DO UPDATE SET label = excluded.label, token = excluded.token,
		expires = CASE WHEN s.token = excluded.token THEN GREATEST(s.expires, excluded.expires)
			ELSE excluded.expires END
	RETURNING s.name, s.token
)
SELECT j.i, coalesce(e.token, 0),
	coalesce(CAST(EXTRACT(EPOCH FROM j.note - clock_timestamp()) * 1000000 AS bigint), 0),
	j.note IS NULL AND NOT j.fits AND NOT j.has
FROM judged j LEFT JOIN entered e ON e.name = j.entry`

// renewSharedSQL is renewSQL for sharers. It locks the lock's row itself, and goes on with that as it is then
// (the lock looks at the row again if it has changed meanwhile); an entry that was made since is not renewed.
const renewSharedSQL = `WITH mine AS MATERIALIZED (
	SELECT name, token FROM TABLE_NAME
	WHERE name = ANY ($1::bytea[]) AND owner = 'SHARERS_OWNER' AND expires > clock_timestamp()
	FOR NO KEY UPDATE SKIP LOCKED
), kept AS (
	UPDATE TABLE_NAME s
	SET expires = GREATEST(s.expires, clock_timestamp() + a.ttl * interval '1 microsecond')
	FROM unnest($1::bytea[], $2::bytea[], $3::bigint[]) WITH ORDINALITY AS a (name, entry, ttl, i)
	JOIN mine m ON m.name = a.name
	WHERE s.name = a.entry AND s.token = m.token AND s.expires > clock_timestamp()
	RETURNING a.i, a.name, s.expires
), longest AS (
	UPDATE TABLE_NAME l SET expires = GREATEST(l.expires, k.expires)
	FROM (SELECT name, max(expires) AS expires FROM kept GROUP BY name) k WHERE l.name = k.name
)
SELECT a.i, k.i IS NOT NULL
FROM unnest($1::bytea[], $2::bytea[]) WITH ORDINALITY AS a (name, entry, i)
JOIN TABLE_NAME l ON l.name = a.name LEFT JOIN TABLE_NAME s ON s.name = a.entry LEFT JOIN kept k ON k.i = a.i
WHERE k.i IS NOT NULL OR s.token = l.token AND s.expires > clock_timestamp()
	AND l.owner = 'SHARERS_OWNER' AND l.expires > clock_timestamp() AND a.name NOT IN (SELECT name FROM mine)`

// leaveSQL says which sharers were still held. The lock's row ends with the last of the others, and at once
// if there are none; then those are told who wait.
const leaveSQL = `WITH gone AS (
	DELETE FROM TABLE_NAME s USING unnest($1::bytea[], $2::bytea[]) WITH ORDINALITY AS a (name, entry, i)
	LEFT JOIN TABLE_NAME l ON l.name = a.name
	WHERE s.name = a.entry
	RETURNING a.i, a.name, (s.token = l.token AND l.owner = 'SHARERS_OWNER') IS TRUE AS here, s.expires
), freed AS (
	UPDATE TABLE_NAME l SET owner = CASE WHEN r.expires IS NULL THEN '' ELSE l.owner END,
		expires = coalesce(r.expires, LEAST(l.expires, clock_timestamp()))
	FROM (
		SELECT l.name, (SELECT max(s.expires) FROM TABLE_NAME s WHERE ENTRIES_OF_L AND s.name <> ALL ($2::bytea[]))
			AS expires
		FROM TABLE_NAME l WHERE l.name IN (SELECT name FROM gone WHERE here)
	) r
	WHERE l.name = r.name
	RETURNING l.name, l.waited AND r.expires IS NULL AS tell
)
SELECT g.i, g.here AND g.expires > clock_timestamp(),
	CASE WHEN f.tell THEN pg_notify(CHANNEL_NAME, SCHEMA_NAME || '/' || encode(g.name, 'hex')) IS NULL END
FROM gone g LEFT JOIN freed f ON f.name = g.name`

// noteSQL keeps new sharers out for a second, for the writers with those owners, and returns the names that
// are shared.
const noteSQL = `INSERT INTO TABLE_NAME AS g (name, owner, label, token, expires, waited)
SELECT BYTE_FF || l.name || BYTE_FF, '', a.writer, l.token, clock_timestamp() + interval '1 second', false
FROM unnest($1::bytea[], $2::bytea[]) AS a (name, writer) JOIN TABLE_NAME l ON l.name = a.name
WHERE l.owner = 'SHARERS_OWNER' AND l.expires > clock_timestamp() ORDER BY l.name
ON CONFLICT (name) DO UPDATE SET label = excluded.label, token = excluded.token, expires = excluded.expires
RETURNING substring(g.name FROM 2 FOR length(g.name) - 2)`

// unnoteSQL removes the note of that owner.
const unnoteSQL = `WITH gone AS (
	DELETE FROM TABLE_NAME WHERE name = BYTE_FF || $1::bytea || BYTE_FF AND label = $2::bytea RETURNING name
)
SELECT pg_notify(CHANNEL_NAME, SCHEMA_NAME || '/' || encode($1::bytea, 'hex')) IS NULL FROM gone`

// heldSharedSQL is heldSQL for a sharer.
const heldSharedSQL = `SELECT true FROM TABLE_NAME l, TABLE_NAME s
WHERE l.name = $1 AND l.owner = 'SHARERS_OWNER' AND l.expires > clock_timestamp()
	AND s.name = $2 AND s.token = l.token AND s.expires > clock_timestamp() FOR SHARE`
