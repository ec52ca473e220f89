package sqlguard

// An INSERT takes the one write lock of the database before it reads, so that
// nothing comes between. A transaction that has read before and is not the
// latest any more gets SQLITE_BUSY instead (SQLITE_BUSY_SNAPSHOT with WAL).
//
// A sum that is too large for an integer would become a rounded REAL: the
// typeof constraints make it an error.
var sqlite = statements{
	marks: `CREATE TABLE IF NOT EXISTS TABLE_NAME (
	resource BLOB NOT NULL PRIMARY KEY,
	token INTEGER NOT NULL CHECK (typeof(token) = 'integer' AND token > 0),
	used INTEGER NOT NULL
) WITHOUT ROWID`,

	raise: `INSERT INTO TABLE_NAME AS m (resource, token, used)
VALUES (?, ?, CAST(strftime('%s', 'now') AS INTEGER))
ON CONFLICT (resource) DO UPDATE
SET token = max(m.token, excluded.token), used = max(m.used, excluded.used)
RETURNING token`,
	raiseArgs: 1,

	mark:   `SELECT token FROM TABLE_NAME WHERE resource = ?`,
	forget: `DELETE FROM TABLE_NAME WHERE resource = ?`,
	oldMarks: `SELECT resource FROM TABLE_NAME
WHERE used < CAST(strftime('%s', 'now') AS INTEGER) - ? LIMIT 1000`,
	dropMark: `DELETE FROM TABLE_NAME
WHERE resource = ? AND used < CAST(strftime('%s', 'now') AS INTEGER) - ?`,

	counters: `CREATE TABLE IF NOT EXISTS TABLE_NAME (
	name BLOB NOT NULL PRIMARY KEY,
	n INTEGER NOT NULL CHECK (typeof(n) = 'integer' AND n > 0)
) WITHOUT ROWID`,
	draw: `INSERT INTO TABLE_NAME AS c (name, n)
VALUES (?, CAST(strftime('%s', 'now') AS INTEGER) * 1000000)
ON CONFLICT (name) DO UPDATE SET n = max(c.n + 1, excluded.n)
RETURNING n`,
	oldNames: `SELECT name FROM TABLE_NAME
WHERE n < CAST(strftime('%s', 'now') AS INTEGER) * 1000000 - ? LIMIT 1000`,
	dropCounter: `DELETE FROM TABLE_NAME
WHERE name = ? AND n < CAST(strftime('%s', 'now') AS INTEGER) * 1000000 - ?`,
}
