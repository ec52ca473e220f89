package sqlguard

// An INSERT takes the database's only write lock before it reads, so that nothing comes
// between. If the transaction has read before, and another has written since, it gets
// SQLITE_BUSY instead (SQLITE_BUSY_SNAPSHOT with WAL).
//
// A number that is too large for an integer would become a rounded REAL: the typeof
// constraint makes this an error.
var sqlite = statements{Statements: Statements{
	Create: `CREATE TABLE IF NOT EXISTS TABLE_NAME (
	resource BLOB NOT NULL PRIMARY KEY,
	token INTEGER NOT NULL CHECK (typeof(token) = 'integer' AND token > 0),
	used INTEGER NOT NULL
) WITHOUT ROWID`,

	Raise: `INSERT INTO TABLE_NAME AS m (resource, token, used)
VALUES (?, ?, CAST(strftime('%s', 'now') AS INTEGER))
ON CONFLICT (resource) DO UPDATE
SET token = max(m.token, excluded.token), used = max(m.used, excluded.used)
RETURNING token`,

	Mark:   `SELECT token FROM TABLE_NAME WHERE resource = ?`,
	Forget: `DELETE FROM TABLE_NAME WHERE resource = ?`,
},

	oldMarks: `SELECT resource FROM TABLE_NAME
WHERE used < CAST(strftime('%s', 'now') AS INTEGER) - ? LIMIT 1000`,
	dropMark: `DELETE FROM TABLE_NAME
WHERE resource = ? AND used < CAST(strftime('%s', 'now') AS INTEGER) - ?`,
}
