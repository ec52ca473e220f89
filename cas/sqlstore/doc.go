// Package sqlstore keeps locks in a table of MySQL, MariaDB or SQLite, through [database/sql]: each lock is
// a record there, which package cas reads and replaces. It knows the errors of go-sql-driver/mysql,
// modernc.org/sqlite and mattn/go-sqlite3.
//
//	store, err := sqlstore.New(ctx, db, sqlstore.MySQL(), nil)
//	backend, err := cas.New(store, nil)
//	client, err := locker.New(backend, nil)
//
// Package cas/mysql does this for a URL. SQLite has no URL: a program brings its driver. The pool may be
// the application's, at any isolation level, with or without autocommit: no request holds a transaction
// open. A connection that was given back to the pool inside a transaction, or with its timestamp set, is not
// noticed: do not send BEGIN or SET timestamp as a text.
//
// A record's age counts by the database's clock, so a dead holder's lock is free when its TTL has passed,
// also for a process that tries once, and MinHold is possible. A step of that clock forward can give a
// lock to a second holder. The age counts from the write, and others see a write when it is committed: a
// MinHold whose commit waits (for a disk, or a semi-synchronous replica) ends that much earlier. A record
// stays when its lock is free, because it counts the fencing tokens.
//
// A transaction of the application cannot check a lock here: the holder could not renew a record that
// the transaction has locked. Let it check the token, with package fencing/sqlguard.
//
// # MySQL and MariaDB
//
// The locks are those of one server, which must keep what it has committed: [New] refuses tables that are
// not InnoDB's, since those of MyISAM or MEMORY lose rows in a crash. A replica lags, even a
// semi-synchronous one once it has timed out: when it takes over, the locks and tokens of the last moments
// are lost, so that a second holder can get a lock, and tokens repeat. Galera certifies writes on all nodes,
// but a node may read old data, and a cluster that starts anew from a node that was behind has lost
// locks. locker check looks for both, for servers that are read-only, and for --sysdate-is-now, which
// makes a write that waited seem older than it is. READ COMMITTED needs a binary log in the format row or
// mixed. We have not tested Group Replication, nor proxies such as ProxySQL, which may send reads to a
// replica.
//
// # SQLite
//
// All processes of one host that open the file exclude each other. [New] refuses a database in memory, and
// a file on a file system that other hosts share, as package file does. Give it a pool of a few connections
// (SetMaxOpenConns), because only one writes at a time; journal_mode=wal; and a busy_timeout of some 200 ms:
// drivers wait that long even if the request's context ends, and the Store repeats what met another.
//
// A process that is stopped (SIGSTOP, a container that is paused) in the middle of a write keeps the file
// locked: until it goes on or is gone, nobody gets or renews any lock in that file. Without WAL, a process
// that is stopped in the middle of a read does the same. A write takes as long as the disk: we measured
// 3.5 ms, 0.3 ms with WAL, and 0.01 ms with WAL and synchronous=normal, with which a power failure can set
// tokens back.
package sqlstore
