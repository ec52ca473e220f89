package sqlguard

// At REPEATABLE READ, a plain SELECT of InnoDB shows an old snapshot. So no plain SELECT
// decides here: INSERT … ON DUPLICATE KEY UPDATE waits for the row's lock and works on
// the row that was committed last, and so does SELECT … FOR UPDATE. The insert comes
// first: two transactions can both pass FOR UPDATE of a row that does not exist, and
// then deadlock.
//
// Resources are VARBINARY: most collations treat A like a, or ignore a space at the
// end.
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
