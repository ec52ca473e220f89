// Package sqlguard refuses stale fencing tokens in a SQL database: PostgreSQL,
// SQLite, MySQL and MariaDB, through [database/sql] and whatever driver the
// program has, or what is built on it (sqlx, GORM, ent). Package pgxguard is the
// same for pgx itself, and [Statements] are for other languages.
//
// The mark of a resource, the highest token that was accepted for it, is a row
// of a table beside the resource. [Guard.Check] raises it in the transaction
// that writes the resource, so that both are committed together or not at all:
//
//	guard, err := sqlguard.New(sqlguard.Postgres, nil)
//	…
//	err = guard.Create(ctx, db) // or guard.Schema() in a migration
//	…
//	err = fencing.Do(ctx, locks, "invoice/1234", func(ctx context.Context) error {
//		token, err := fencing.TokenFor(ctx, "invoice/1234")
//		if err != nil {
//			return err
//		}
//		return guard.Do(ctx, db, nil, "invoice/1234", token, func(ctx context.Context, tx *sql.Tx) error {
//			_, err := tx.ExecContext(ctx, "UPDATE invoices SET state = 'sent' WHERE id = 1234")
//			return err
//		})
//	})
//
// [Guard.Do] is the whole transaction; Check is for programs that have one of
// their own. A refusal is a [fencing.StaleError], and the transaction is rolled
// back. Read after Check in the same transaction, or call [Guard.Raise] before
// you read.
//
// # What is promised, and by what
//
// Check locks the mark's row until the transaction ends, so the writers of one
// resource come one after the other, at every isolation level: after a commit
// with a token, no transaction with a lower one is committed. Check never decides
// by what a snapshot shows. Where a transaction's snapshot is older than the mark,
// it sees the mark as it is now, or fails with the driver's error that asks for
// the transaction again:
//
//   - PostgreSQL, REPEATABLE READ and SERIALIZABLE: SQLSTATE 40001; everywhere
//     40P01 for a deadlock.
//   - MySQL and MariaDB: 1213 (deadlock), 1205 (the wait for a lock was too
//     long), 1020 (MariaDB with innodb_snapshot_isolation).
//   - SQLite: SQLITE_BUSY, when a transaction has read before it checks and
//     another has written since, or when the wait for the write lock was too
//     long. Set a busy_timeout: without one, a transaction that meets another fails.
//
// Only the owner of a transaction knows what else is in it, so this package does
// not repeat it. To repeat it with the same token is always right. The promise
// holds as long as each of these does:
//
//   - Every write to the resource is in a transaction that has checked.
//   - Check comes first. In MySQL at REPEATABLE READ, what was read before it is
//     a picture of the time before, also when it is read again: a value computed
//     from it can undo what the holder before has written.
//   - Check is in no savepoint that is rolled back by itself: that takes back the
//     mark, and on PostgreSQL its lock.
//   - A statement that fails ends the transaction: return its error. After a
//     deadlock MySQL has rolled back already, and after a full disk SQLite may
//     have; what is sent after that is committed by itself, without a check.
//   - MySQL: the written tables are InnoDB's, and no statement in between commits
//     by itself, as CREATE TABLE does. There is one primary: clusters that take
//     writes on several nodes (Galera, multi-primary Group Replication) do not
//     keep row locks between them, and are not covered.
//   - SQLite: the marks are in the file that the resource is in. With journal_mode
//     WAL, MEMORY or OFF, SQLite does not commit an attached database in one step
//     with the main one over a crash.
//   - The database keeps what it has committed. A fail-over to a replica that was
//     behind, or a restored backup, sets marks back with the resources beside them:
//     a holder whose token was too low for the lost mark passes.
//
// A transaction that checks waits for the one before it: keep them short, and give
// Check a context with a deadline. A holder that is paused in the middle of a
// transaction keeps its successors waiting until the database ends that: set
// idle_in_transaction_session_timeout (PostgreSQL; pgx takes it as a parameter of
// the URL) or idle_transaction_timeout (MariaDB) to about the TTL of the lock.
// Check several resources in the order of their names, or two transactions may
// wait for each other.
//
// # The table
//
// A resource is a name of 1 to 640 bytes of valid UTF-8, stored as bytes: no
// collation takes two for one. To read it, write convert_from(resource, 'UTF8')
// (PostgreSQL), CAST(resource AS TEXT) (SQLite) or CONVERT(resource USING utf8mb4)
// (MySQL). A token is a signed 64-bit integer: one above 2⁶³-1, which only a high
// token_base makes, is an error.
//
// There is one row per resource. [Guard.Forget] removes that of a resource that
// is deleted, [Guard.Sweep] those that nobody used for a long time; both say what
// is lost with them.
//
// # Drivers and versions
//
// Errors are understood that come from pgx and lib/pq, modernc.org/sqlite and
// mattn/go-sqlite3, and go-sql-driver/mysql; another driver is as safe, but fewer
// of its errors match [locker.ErrUnavailable]. The tests run on PostgreSQL 15,
// MariaDB 10.11 and SQLite, with pgx, go-sql-driver and modernc.org/sqlite; MySQL
// itself and the other drivers are not among them.
package sqlguard
