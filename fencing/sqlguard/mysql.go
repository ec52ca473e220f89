package sqlguard

// InnoDB shows a transaction at REPEATABLE READ an old picture when it merely
// reads. So nothing here decides by a mere read: INSERT … ON DUPLICATE KEY
// UPDATE waits for the row's lock and works on what was committed last, and so
// does SELECT … FOR UPDATE. The insert comes first: FOR UPDATE of a row that is
// not there would let two in, and then make them a deadlock.
//
// Resources are VARBINARY: most collations take A for a, or ignore a space at
// the end. The session's last insert ID is the caller's, so only draw, which
// runs by itself, makes use of it.
var mysql = statements{
	marks: `CREATE TABLE IF NOT EXISTS TABLE_NAME (
	resource VARBINARY(640) NOT NULL PRIMARY KEY,
	token BIGINT NOT NULL CHECK (token > 0),
	used BIGINT NOT NULL
) ENGINE = InnoDB`,

	raise: `INSERT INTO TABLE_NAME (resource, token, used)
VALUES (?, ?, CAST(UNIX_TIMESTAMP() AS SIGNED))
ON DUPLICATE KEY UPDATE
token = GREATEST(token, ?), used = GREATEST(used, CAST(UNIX_TIMESTAMP() AS SIGNED))`,
	raiseArgs: 2,
	lock:      `SELECT token FROM TABLE_NAME WHERE resource = ? FOR UPDATE`,

	mark:   `SELECT token FROM TABLE_NAME WHERE resource = ?`,
	forget: `DELETE FROM TABLE_NAME WHERE resource = ?`,
	oldMarks: `SELECT resource FROM TABLE_NAME
WHERE used < CAST(UNIX_TIMESTAMP() AS SIGNED) - ? LIMIT 1000`,
	dropMark: `DELETE FROM TABLE_NAME
WHERE resource = ? AND used < CAST(UNIX_TIMESTAMP() AS SIGNED) - ?`,

	counters: `CREATE TABLE IF NOT EXISTS TABLE_NAME (
	name VARBINARY(640) NOT NULL PRIMARY KEY,
	n BIGINT NOT NULL CHECK (n > 0)
) ENGINE = InnoDB`,
	draw: `INSERT INTO TABLE_NAME (name, n)
VALUES (?, LAST_INSERT_ID(CAST(UNIX_TIMESTAMP() AS SIGNED) * 1000000))
ON DUPLICATE KEY UPDATE
n = LAST_INSERT_ID(GREATEST(n + 1, CAST(UNIX_TIMESTAMP() AS SIGNED) * 1000000))`,
	drawsID: true,
	oldNames: `SELECT name FROM TABLE_NAME
WHERE n < CAST(UNIX_TIMESTAMP() AS SIGNED) * 1000000 - ? LIMIT 1000`,
	dropCounter: `DELETE FROM TABLE_NAME
WHERE name = ? AND n < CAST(UNIX_TIMESTAMP() AS SIGNED) * 1000000 - ?`,
}
