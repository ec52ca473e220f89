// Package sqlguard refuses stale fencing tokens in a SQL database: PostgreSQL,
// SQLite, MySQL and MariaDB, through [database/sql] and any driver, or through a
// library on top of it (sqlx, GORM, ent). Package pgxguard is the same for pgx
// itself, and [Statements] are for other languages.
//
// The mark of a resource, the highest token accepted for it, is a row of a table in the resource's
// database. [Guard.Check] raises it in the transaction that writes the resource, so that both are
// committed together or not at all:
//
//	guard, err := sqlguard.New(sqlguard.Postgres, nil)
//	…
//	err = guard.Create(ctx, db) // or guard.Statements().Create in a migration
//	…
//	err = guard.Do(ctx, db, nil, "invoice/1234", token, func(ctx context.Context, tx *sql.Tx) error {
//		_, err := tx.ExecContext(ctx, "UPDATE invoices SET state = 'sent' WHERE id = 1234")
//		return err
//	})
//
// [Guard.Do] runs the whole transaction; Check is for programs with their own transaction. Read after
// Check in the same transaction, or call [Guard.Raise] before you read.
//
// # The promise, and its conditions
//
// Check locks the mark's row until the transaction ends. So the writers of one resource follow one
// another, at every isolation level: after a commit with a token, no transaction with a lower token is
// committed. Check never decides by a snapshot. If a transaction's snapshot is older than the mark,
// Check sees the current mark, or fails with a driver's error that means "repeat the transaction":
//
//   - PostgreSQL, REPEATABLE READ and SERIALIZABLE: SQLSTATE 40001; everywhere
//     40P01 for a deadlock.
//   - MySQL and MariaDB: 1213 (deadlock), 1205 (the wait for a lock was too
//     long), 1020 (MariaDB with innodb_snapshot_isolation).
//   - SQLite: SQLITE_BUSY, if a transaction reads before it checks and another has written since, or if
//     the wait for the write lock was too long. Set a busy_timeout: without one, a transaction that
//     meets another fails.
//
// Only the owner of a transaction knows its other statements, so this package does not repeat it.
// Repeating it with the same token is always right. The promise holds under these conditions:
//
//   - Every write to the resource is in a transaction that has called Check first. In MySQL at
//     REPEATABLE READ, an earlier read takes an old snapshot, which later reads show again.
//   - Check is in no savepoint that is rolled back separately: that undoes the mark and, on PostgreSQL,
//     releases its lock.
//   - A failing statement ends the transaction: return its error. After a deadlock MySQL has already
//     rolled back, and after a full disk SQLite may have; later statements are then committed by
//     themselves, without a check.
//   - PostgreSQL: the table of marks is neither UNLOGGED nor TEMPORARY, which a crash would empty:
//     Check refuses such a table.
//   - MySQL: the tables of marks and of resources are InnoDB tables, and no statement in between
//     commits implicitly, as CREATE TABLE does. There is one primary: clusters that accept writes on
//     several nodes (Galera, multi-primary Group Replication) are not covered.
//   - SQLite: the marks are in the same file as the resource. With journal_mode WAL,
//     MEMORY or OFF, a crash can split a commit between two files.
//   - The database keeps what it has committed. A failover to a replica that was behind, or a restored
//     backup, sets marks back together with the resources.
//
// Keep transactions short, and give Check a context with a deadline, because it waits for the
// transaction before it. If a holder is paused in a transaction, its successors wait until the database
// ends that transaction: set idle_in_transaction_session_timeout (PostgreSQL; pgx takes it as a
// parameter of the URL) or idle_transaction_timeout (MariaDB) to about the TTL of the lock. Check
// several resources in the order of their names, or two transactions may deadlock.
//
// # The table
//
// A resource is a name of 1 to 640 bytes of valid UTF-8, stored as bytes, so that no
// collation treats two names as one. To read it, write convert_from(resource, 'UTF8')
// (PostgreSQL), CAST(resource AS TEXT) (SQLite) or CONVERT(resource USING utf8mb4)
// (MySQL). A token is a signed 64-bit integer: a token above 2⁶³-1, which only a high
// token_base makes, is an error.
//
// Of the [Statements], Mark reads the mark of a resource, for people and for tests: only Check decides.
// Forget removes it, in the transaction that deletes the resource, after a Check as for every write.
// Sweep removes the rows that were not checked for a number of seconds, by the database's clock. A
// removed mark no longer protects against older holders: the time must be longer than any pause of a
// holder, and than any message with a token can be in flight, so days rather than minutes. A row that
// is checked meanwhile stays, but Sweep and the transactions around it wait for each other: run it
// alone, when there are few writes, and in MySQL at READ COMMITTED.
//
// # Drivers and versions
//
// The package understands the errors of pgx and lib/pq, modernc.org/sqlite and
// mattn/go-sqlite3, and go-sql-driver/mysql. Another driver is as safe, but fewer of
// its errors match [locker.ErrUnavailable]. The tests run on PostgreSQL 15, MariaDB
// 10.11 and SQLite, with pgx, go-sql-driver and modernc.org/sqlite.
package sqlguard
