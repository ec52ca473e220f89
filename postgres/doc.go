// Package postgres keeps locks in one PostgreSQL: a row for each name, with its owner, its fencing token
// and its expiry by the server's clock. It is for programs that already run a PostgreSQL. If the lock
// protects data in the same database, [Held] is all the fencing that you need.
//
// # Lock and data in one database
//
// A holder can be paused for longer than its lease, between its last look at the lease and its write.
// [Held], called first in the transaction that writes, prevents a late write: from then on nobody else is
// granted the lock until the transaction has ended. A holder that is paused past its lease
//
//   - before Held gets [driver.ErrLost], and its transaction is rolled back;
//   - after Held, and resumes, commits: the next holder waits for that, and comes after;
//   - after Held, and never resumes: the server ends the transaction with the connection, or after
//     idle_in_transaction_session_timeout; then the next holder gets the lock. The server notices a host
//     that vanishes after tcp_keepalives_idle, two hours by default.
//
// Renewals do not wait for the transaction; waiters ask again twice a second. There is no token to carry
// and no mark to keep. If the lock is elsewhere and the data here, check the token in the transaction:
// fencing/pgxguard for pgx.Tx, fencing/sqlguard for database/sql. If the data is elsewhere, let the
// resource check the token (package fencing).
//
// # When you need less
//
// SELECT … FOR UPDATE is enough, and better, if the work is one short transaction on one connection. It has
// no limit for a stuck holder, locks nothing that has no row, and takes a connection for each waiter. An
// advisory lock (pg_advisory_lock) lasts as long as its session, and is enough if the program stops when
// its connection is lost. It is no lease: a holder that does not notice the loss goes on while the next one
// begins, and there is no token by which to refuse its late writes. It has a number instead of a name,
// takes a connection for each lock and waiter, and does not work behind pgbouncer in transaction mode.
// Neither survives a restart of the server.
//
// # What it promises
//
// While the server keeps its committed data and its clock makes no step: no two clients hold a name at
// once, up to the end of each lease (locker.Lease.Until); the lock of a dead holder is free after its TTL;
// a held lock survives a restart of the server; and each token is greater than all earlier tokens of its
// name.
//
//   - Acquire, Renew and Release are one round trip and one transaction each. A name that sharers had last
//     takes one more, and so does a Lock that finds it held. pgxpool adds a ping on connections that were idle
//     for a second. Up to 64 concurrent callers share a statement.
//   - Every time is the server's clock_timestamp(), read when it is needed, and never the client's.
//   - A token is above that of the name's row, above all rows that were removed, above the sequence beside
//     the table, and above the server's clock in microseconds. So tokens rise also if the table or the
//     sequence is lost, or a backup is restored, unless the clock is behind by then.
//   - A crash empties an UNLOGGED table, and a TEMPORARY one ends with its session. Each grant and renewal
//     checks in its own transaction that the table is neither, and is refused otherwise; so is one through
//     a view or a partitioned table, behind which there may be such a table.
//   - A client that has found the table never makes it again: if it was renamed, moved or dropped, calls
//     return an error until it is back.
//   - A commit that grants or renews waits for the disk, whatever synchronous_commit is. A release does
//     not: if a crash undoes it, the lock ends with its TTL. One that keeps the lock for the rest of its
//     MinHold waits for the server's own disk: a crash does not undo it, and a fail-over may.
//   - LISTEN and NOTIFY wake up waiters at a release, on one connection for all names of a client, outside
//     the pool. A release sends a message only if somebody waits.
//   - A request with an unknown outcome is taken back. If it arrives after that, or a copy of one that was
//     answered after the release, it makes a lock that ends with its TTL, or its MinHold.
//   - Sharers (locker.Shared) have an entry each in the same table, with an expiry of its own, and one
//     token. An entry counts only while the row of the lock has its token, so neither a late request nor a
//     lost row lets a sharer in beside a writer. A sharer that is in changes its own entry only: it is in
//     nobody's way, however many come and go and however slow commits are. At most [driver.MaxSharers]
//     share a name.
//   - A writer that waits for sharers leaves a note in the lock's row, which keeps new sharers out for a
//     second; it renews it three times a second. The note ends with its grant, and a writer that leaves
//     removes it.
//   - Break of sharers waits until those that are just being let in are in, and for their open transactions
//     that called [Held], for as long as its context lasts and Options.Timeout at most. Until then no
//     sharer is let in; its error names the transaction. Break of a sole holder waits for nothing.
//   - Rows that were not used for ten minutes are removed, by one client at a time, in passes over the
//     whole table. This does not set tokens back.
//
// # What it does not promise
//
//   - A fail-over to a standby that is behind, which is what asynchronous standbys are, loses the last
//     locks and sets tokens back; see below.
//   - A step of the server's wall clock moves expiry. A step forward frees locks early, and two may hold. A
//     step back keeps the locks of dead holders for longer.
//   - A backup that is restored has old locks. If the clock was set back as well, tokens rise only above
//     those that the backup has.
//   - Waiters of different clients get the lock in no particular order.
//   - A holder that is paused past its lease can still act: check with [Held], or check the token (package
//     fencing).
//
// # Fail-over
//
// Options.FailoverSafe makes locks survive a fail-over to a synchronous standby, under two conditions,
// which you have to ensure: a fail-over never goes to another standby, and the old primary is stopped, so
// that it grants nothing any more. It costs a round trip for each grant and renewal, works through
// pgbouncer too, and needs pg_read_all_stats: without the right, Open fails, and so does the first lock of
// a pool of your own.
//
//   - Each grant and renewal is seen on the disk of each standby in synchronous_standby_names before it is
//     believed: the server's word for a commit is not enough, since a cancelled wait (pg_cancel_backend,
//     statement_timeout) or an emptied list leaves a warning at most.
//   - With ANY 1 (a, b) or FIRST 1 (a, b) the server waits for one standby, and the package for each of the
//     list, since the fail-over may go to any. While one is away, no lock is granted and no lease renewed:
//     take it out of the list, or list only the one that may take over. A * does not say which one may, and
//     is refused.
//   - The old connection of a standby that is not yet known to be lost (wal_sender_timeout) counts as a
//     standby of its own.
//   - A server without a synchronous standby grants nothing, and leases end; one that has just taken over,
//     and has had no standby yet, renews them.
//   - Your own commit after [Held] is as safe as synchronous_commit makes it. A fail-over may lose it as a
//     whole, never a part of it. A release that is lost leaves a lock that ends with its TTL.
//
// If the address has several hosts, the client connects to the one that accepts writes, and leaves a server
// that has become read-only.
//
// # Connections that end, passwords that change
//
// A request whose connection is lost before the answer is sent again on the next one. So a connection
// closed by idle_session_timeout, an administrator or a proxy refuses no lock. If the second copy of a
// release finds the lock released, Unlock returns an error that matches [driver.ErrUnavailable]: whether
// the lock was held until then was in the lost reply.
//
// Open sets pgx's PingTimeout to a tenth of Options.Timeout, and TCP keepalives, against proxies that
// forget connections. It reads password files, service files and certificates again with each connection; a
// pool of your own does so by its BeforeConnect, which the connection for wake-ups calls too. That
// connection has no idle_session_timeout; when it is lost, it is made again, and all waiters look again. A
// wrong password, or a user whose time has passed (VALID UNTIL), is an error that does not match
// ErrUnavailable; leases go on while a connection lasts.
//
// # What it costs
//
// A release waits for no disk, so lock and unlock wait for one flush of the server's log, where an INSERT
// and a DELETE by hand wait for two. A hand-over to another process takes four round trips. While nothing
// changes, all waiters of a client for one name cost one query every ten seconds or so.
//
// The releases of a moment share a statement, which waits for all their rows. If another program's
// transaction has locked one of the rows, up to 63 other releases of the client wait for it, until
// Options.Timeout, and are tried again in the background. Renewals do not.
//
// A lock that is used all the time updates one row again and again. A transaction that began long ago
// (pg_dump, a forgotten session, a prepared transaction) keeps vacuum from removing the old versions: with
// 60,000 of them, a lock and unlock took 26 times as long, until that transaction ended. Dump from a
// standby, or leave the table out. The table has the names of the last twenty minutes or so. "locker check"
// names a transaction that is older than five minutes, and settings that break the guarantees (fsync, a
// read-only server, missing rights, a proxy that drops wake-ups).
//
// # Table and access
//
// The table has a row for each name, and one for each sharer of a name. Its columns are name (bytes, which
// convert_from(name, 'UTF8') shows), sharer (empty for the lock itself), owner (empty once it is released;
// shared while sharers hold it; kept and a space before the owner while only a MinHold keeps it), label,
// token, since when it is held, kept until when by a MinHold, expires, waited, which says whether somebody
// is to be told, and wanted and wanter, the note of a writer. The row whose name is empty is no lock: its
// token is at least that of every row that was removed. A table of the layout before this one is refused:
// DROP it when no program of the older release runs any more, or name another in Options.Table.
//
// A transaction that has called [Held] keeps the name's advisory lock in shared mode until it ends. The
// number of an advisory lock is the first 8 bytes of the SHA-256 of the table's name with its schema, both
// quoted, a NUL and the lock's name. A program's own advisory locks conflict with it only by a chance of
// one in 2⁶⁴.
//
// A user needs SELECT, INSERT, UPDATE and DELETE on the table and USAGE on its sequence (and UPDATE for
// locker.Lease.RaiseToken), to make them CREATE in the schema, and for Options.FailoverSafe
// pg_read_all_stats. A program that starts while the table is renamed, or looks for it in another schema,
// makes a new one, and its locks exclude nobody. Where that must not happen, make the table in a migration
// (with [Schema]), grant the programs' user no CREATE on any schema of its search_path, and set
// Options.NoCreate (create=off).
//
// PostgreSQL 12 is the oldest that works: the statements need plan_cache_mode and WITH … AS MATERIALIZED.
// The tests run on 15; histories, and those of connections that end, passwords, certificates, moved
// addresses and the table run on 12.22 and 18.4 as well, where scripts/postgres can get these. To run them
// with another version: LOCKER_POSTGRES=/path/to/postgres LOCKER_INITDB=/path/to/initdb go test ./postgres.
//
// # Pools and pgbouncer
//
// Give the locks a pool of their own with four connections, so that they can be renewed while the program's
// transactions use up its own pool; Open does so. Behind pgbouncer in transaction mode, prepared statements
// need max_prepared_statements there, or default_query_exec_mode=exec in the address.
//
// The connection for wake-ups uses LISTEN, which belongs to one connection to the server. In transaction
// mode pgbouncer gives that to others as soon as LISTEN has been answered, and drops the messages ("got
// packet 'A' from server when not linked" in its log). The backend notices within two seconds that it hears
// nothing, says so in its Logger, closes its own connection, and tries again a minute later; waiters poll
// until then. Connect to the server itself, or to pgbouncer in session mode.
//
// # URLs
//
//	postgres://[user:password@]host[:port][,host…][/database][?parameter=value&…]
//	postgresql://…    the same
//
// Parameters in addition to the common ones of locker.Open are table (Options.Table), create (off:
// Options.NoCreate), failover_safe (Options.FailoverSafe: on or off) and timeout (Options.Timeout), and
// those of libpq and pgx: host, port, sslmode, sslrootcert, sslcert, sslkey, target_session_attrs
// (read-write if there are several hosts), connect_timeout, application_name, options,
// default_query_exec_mode, pool_max_conns and so on.
package postgres
