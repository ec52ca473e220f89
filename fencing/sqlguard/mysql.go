package sqlguard

// InnoDB shows a transaction at REPEATABLE READ an old picture when it merely
// reads. So nothing here decides by a mere read: INSERT … ON DUPLICATE KEY
// UPDATE waits for the row's lock and works on what was committed last, and so
// does SELECT … FOR UPDATE. The insert comes first: FOR UPDATE of a row that is
// not there would let two in, and then make them a deadlock.
//
// Resources are VARBINARY: most collations take A for a, or ignore a space at
// the end.
var mysql = statements{Statements: Statements{
	Create: `CREATE TABLE IF NOT EXISTS TABLE_NAME (
	resource VARBINARY(640) NOT NULL PRIMARY KEY,
	token BIGINT NOT NULL CHECK (token > 0),
	used BIGINT NOT NULL
) ENGINE = InnoDB`,

	Raise: `INSERT INTO TABLE_NAME (resource, token, used)
VALUES (?, ?, CAST(UNIX_TIMESTAMP() AS SIGNED))
ON DUPLICATE KEY UPDATE
token = GREATEST(token, ?), used = GREATEST(used, CAST(UNIX_TIMESTAMP() AS SIGNED))`,
	Lock: `SELECT token FROM TABLE_NAME WHERE resource = ? FOR UPDATE`,

	Mark:   `SELECT token FROM TABLE_NAME WHERE resource = ?`,
	Forget: `DELETE FROM TABLE_NAME WHERE resource = ?`,
},

	oldMarks: `SELECT resource FROM TABLE_NAME
WHERE used < CAST(UNIX_TIMESTAMP() AS SIGNED) - ? LIMIT 1000`,
	dropMark: `DELETE FROM TABLE_NAME
WHERE resource = ? AND used < CAST(UNIX_TIMESTAMP() AS SIGNED) - ?`,
}
