// Package postgres keeps locks in one PostgreSQL: a row for each name, with its
// owner, its fencing token and its expiry by the server's clock. If the lock protects
// data in the same database, [Held] is all the fencing that you need;
// docs/postgres.md says when.
//
// # What it promises
//
// While the server keeps its committed data and its clock makes no step: no two
// clients hold a name at once, up to the end of each lease ([locker.Lease.Until]);
// the lock of a dead holder is free after its TTL; a held lock survives a restart of
// the server; and each token is greater than all earlier tokens.
//
//   - Acquire, Renew and Release are one round trip each, and one transaction: one
//     statement takes a free row, and the next one says how long the holder of a row
//     still has it. pgxpool adds a ping on connections that were idle for a second. Up
//     to 64 concurrent callers share a statement.
//   - Every time is the server's clock_timestamp(), read when it is needed, and never
//     the client's.
//   - Tokens come from a sequence, which no rollback sets back. One advisory lock of
//     the transaction covers drawing the token and committing its row, so that tokens
//     rise in the order of the grants. A token is granted only if it is above all that
//     its name ever had: a sequence that was lost, or set back, is set above all
//     tokens that the table remembers, and one whose numbers do not rise (CACHE,
//     CYCLE) is refused.
//   - A commit that grants or renews waits for the disk, whatever synchronous_commit
//     is. A release does not: if a crash undoes it, the lock ends with its TTL.
//   - LISTEN and NOTIFY wake up waiters at a release, on one connection for all names
//     of a client, outside the pool. A release sends a message only if somebody
//     waits. If a proxy drops messages, as pgbouncer in transaction mode does, the
//     backend says so in its Logger, and waiters poll.
//   - A request with an unknown outcome is taken back. If it arrives after that, it
//     makes a lock that ends with its TTL, or its MinHold.
//   - Sharers ([locker.Shared]) have an entry each in the same table, with an expiry of
//     its own, and one token; the row of the lock ends with the last of them. An entry
//     counts only while the row has its token, so neither a late request nor a lost row
//     lets a sharer in beside a writer. Each change of an entry comes after the lock on
//     the row, in one more statement of the same round trip. At most
//     [locker.MaxSharers] share a name.
//   - A writer that waits for sharers leaves a note, in a round trip of its own, which
//     keeps new sharers out for a second; it renews it three times a second. The grant
//     of the next token makes the note void, and a writer that leaves removes it.
//   - Rows that were not used for ten minutes are removed, by one client at a time,
//     in passes over the whole table. This does not set tokens back.
//
// # What it does not promise
//
//   - A fail-over to a standby that is behind loses the last locks and sets tokens
//     back. A fail-over to a synchronous standby does not, with Options.FailoverSafe:
//     then each grant and renewal is seen on each standby that may take over before it
//     is believed. The old primary, if it still runs, must not accept writes.
//   - A step of the server's wall clock moves expiry. A step forward frees locks
//     early, and two may hold. A step back keeps the locks of dead holders for
//     longer.
//   - A backup that is restored has old locks and an old sequence.
//   - Waiters of different clients get the lock in no particular order.
//   - A holder that is paused past its lease can still act: check with [Held], or
//     check the token (package fencing).
//
// # How it works
//
// A transaction that has called [Held] keeps the name's advisory lock in shared mode
// until it ends; meanwhile nobody else is granted the name, except those who join the
// sharers that hold it. The number of an advisory lock is the first 8 bytes of the
// SHA-256 of the table's name with its schema, both quoted, a NUL and the lock's name. A
// program's own advisory locks conflict with it only by a chance of one in 2⁶⁴.
//
// The table's columns are name (bytes, which convert_from(name, 'UTF8') shows of rows
// with an owner), owner (” once it is released), label, token, expires and waited, which
// says whether somebody is to be told. The row whose name is empty is no lock: its token
// is at least that of every row that was removed. While sharers hold a lock, its owner is
// the word shared. The entry of a sharer has as its name the byte FF, the lock's name, FF
// and the sharer's owner, and the note of a writer the same without an owner; no lock has
// such a name, which would not be UTF-8. The columns will not change in a way that makes
// two releases of this package misread each other.
//
// # Access
//
// PostgreSQL 12 is the oldest that works (docs/postgres.md says why). A user needs
// SELECT, INSERT, UPDATE and DELETE on the table and USAGE on its sequence (and
// UPDATE for [locker.Lease.RaiseToken], or to set back up a sequence that was lost), to
// make them CREATE in the schema, and for Options.FailoverSafe pg_read_all_stats. Give
// the locks a pool of their own with four connections, so that they can be renewed
// while the program's transactions use up its own pool; Open does so. Behind
// pgbouncer in transaction mode, prepared statements need max_prepared_statements
// there, or default_query_exec_mode=exec in the address.
//
// # URLs
//
//	postgres://[user:password@]host[:port][,host…][/database][?parameter=value&…]
//	postgresql://…    the same
//
// Parameters beside the common ones of [locker.Openers.Open]:
//
//	table            Options.Table
//	create           off: Options.NoCreate
//	failover_safe    Options.FailoverSafe: on or off
//	timeout          Options.Timeout
//
// and those of libpq and pgx: host, port, sslmode, sslrootcert, sslcert, sslkey,
// target_session_attrs (read-write if there are several hosts), connect_timeout,
// application_name, options, default_query_exec_mode, pool_max_conns and so on.
package postgres
