// Package postgres keeps locks in one PostgreSQL: a row for each name, with its owner, its fencing token and
// its expiry by the server's clock. For locks whose data is in the same database, [Held] is all the fencing
// that one needs; docs/postgres.md says when.
//
// # What it promises
//
// While the server keeps what it has committed and its clock makes no step, no two clients hold a name at
// once, up to the end of each lease ([locker.Lease.Until]); a dead holder's lock is free after its TTL; a held
// lock survives a restart of the server; and each token is greater than those before it.
//
//   - Acquire, Renew and Release are one round trip each, and so one transaction: a statement takes a free
//     row, or says how long its holder has it. pgxpool adds a ping to connections that were idle for a second.
//     Concurrent callers share statements, of up to 64.
//   - Every time is the server's clock_timestamp(), read when it is needed, never the client's.
//   - Tokens come from a sequence, which no rollback sets back. A token is drawn and its row committed under
//     one advisory lock of the transaction, so that tokens rise in the order of the grants.
//   - A commit that grants or renews waits for the disk whatever synchronous_commit is, a release does not: one
//     that a crash undoes is a lock that ends with its TTL.
//   - Waiters are told of releases by LISTEN and NOTIFY, on one connection for all names of a client that is
//     none of the pool's. A release is told only if somebody waits. Behind a proxy that swallows this, such as
//     pgbouncer in transaction mode, the backend says so to its Logger, and waiters ask again and again.
//   - A request whose outcome is not known is taken back. One that arrives after that is a lock that ends with
//     its TTL, or its MinHold.
//   - Rows that nobody has used for ten minutes are removed, by one client at a time. Tokens do not begin again.
//
// # What it does not promise
//
//   - A fail-over to a standby that is behind loses the last locks, and sets the last tokens back. With a
//     synchronous standby it does not: see Options.FailoverSafe. A server that was the primary and still runs
//     must take no writes.
//   - A step of the server's wall clock moves expiry: forward, it frees locks early, and two may hold; back, it
//     keeps dead holders' locks longer.
//   - A backup that is restored has old locks and an old sequence.
//   - Waiters of different clients get the lock in no particular order.
//   - A holder that is paused past its lease can still act: check with [Held], or the token (package fencing).
//
// # How it works
//
// A transaction that has called [Held] has the name's advisory lock in shared mode until it ends, and nobody
// else is granted the name meanwhile. Advisory locks are those of the 64-bit number that the first 8 bytes of
// SHA-256 make of the table's name without schema, a NUL and the lock's name; a program's own are not in their
// way but by a chance of one in 2⁶⁴.
//
// The table's columns are name (bytes; convert_from(name, 'UTF8') shows it), owner (” once it is released),
// label, token, expires and waited, which says whether somebody is to be told. They will not change in a way
// that two releases of this package misread.
//
// # Access
//
// PostgreSQL 12 is the oldest that works (docs/postgres.md says why). A user needs SELECT, INSERT, UPDATE and DELETE on the table and USAGE
// on its sequence (and UPDATE for [locker.Lease.RaiseToken]), and to make them, CREATE in the schema. Give the
// locks a pool of their own, of four connections, so that they are renewed while the program's transactions
// have all of theirs; Open does. Behind pgbouncer in transaction mode, prepared statements need
// max_prepared_statements there, or default_query_exec_mode=exec in the address.
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
// and those of libpq and pgx: host, port, sslmode, sslrootcert, sslcert, sslkey, target_session_attrs (read-write if
// there are several hosts), connect_timeout, application_name, options, default_query_exec_mode, pool_max_conns
// and so on.
package postgres
