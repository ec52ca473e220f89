package sqlguard

// ON CONFLICT DO UPDATE waits for another transaction that has locked the row. Then, at
// READ COMMITTED, it sees the row that was committed; at the higher levels it fails
// with SQLSTATE 40001, since the snapshot is older. It never decides by the snapshot.
//
// Resources are bytes: text cannot have NUL, and depends on the database's encoding.
var postgres = statements{Statements: Statements{
	// Each Check is an update: fillfactor leaves room for it on the same page.
	Create: `CREATE TABLE IF NOT EXISTS TABLE_NAME (
	resource BYTEA NOT NULL PRIMARY KEY,
	token BIGINT NOT NULL CHECK (token > 0),
	used BIGINT NOT NULL
) WITH (fillfactor = 70)`,

	Raise: `INSERT INTO TABLE_NAME AS m (resource, token, used)
VALUES ($1, $2, CAST(FLOOR(EXTRACT(EPOCH FROM clock_timestamp())) AS BIGINT))
ON CONFLICT (resource) DO UPDATE
SET token = GREATEST(m.token, excluded.token), used = GREATEST(m.used, excluded.used)
RETURNING token`,

	Mark:   `SELECT token FROM TABLE_NAME WHERE resource = $1`,
	Forget: `DELETE FROM TABLE_NAME WHERE resource = $1`,
},

	oldMarks: `SELECT resource FROM TABLE_NAME
WHERE used < CAST(FLOOR(EXTRACT(EPOCH FROM clock_timestamp())) AS BIGINT) - $1 LIMIT 1000`,
	dropMark: `DELETE FROM TABLE_NAME
WHERE resource = $1 AND used < CAST(FLOOR(EXTRACT(EPOCH FROM clock_timestamp())) AS BIGINT) - $2`,
}
