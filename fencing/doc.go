// Package fencing is for callers who need more than a lock can give.
//
// A holder can stop between its last look at its lease and its write: a garbage
// collection, a paused virtual machine, a slow disk. When it goes on, its lease is
// over, and it writes. No lock service can prevent that, since nobody asks the
// service at that moment. The resource can: each hold of a lock has a number, its
// fencing token, which is greater than the token of every earlier hold. The holder
// sends the token along with each write, and the resource refuses a token that is
// lower than the highest one that it has seen.
//
// # What has to be done
//
// Start with [WithTokens], which refuses a backend without tokens. Hold the lock with
// [Do], which puts the token into the context under the lock's name, where
// [TokenFor] finds it. Let the resource check the token with a guard:
//
//   - [Guard], for state in the memory of the server that owns it;
//   - package sqlguard: PostgreSQL, SQLite, MySQL and MariaDB, in the caller's transaction;
//   - package pgxguard: PostgreSQL, in the caller's transaction of pgx;
//   - package redisguard: keys of a Redis, and any script;
//   - package fileguard: a file that is replaced by rename;
//   - packages httpguard and grpcguard carry tokens to the server that owns the resource;
//   - for etcd, ZooKeeper and S3 there are recipes, to be copied from the module examples.
//
// # The rules
//
// All guards keep the same rules. The mark of a resource is the highest token that
// it accepted. A token equal to the mark is accepted, since the same holder goes on.
// A lower token is [ErrStale], and nothing is written; no token is [ErrMissing]. The
// mark moves and the write happens together or not at all. If a store cannot undo (a
// script of Redis that fails in the middle, a crash between a file's mark and its
// content), the mark comes first, and moves alone.
//
// A resource is a name for the state that is written. The mark of a resource must
// only meet tokens of one lock: tokens of different locks say nothing about each
// other. The best name for the resource is the name of the lock: then one mark
// stands for everything in a store that the lock protects.
//
// # Raise before you read
//
// Until a holder's first write, the mark is that of an earlier holder, whose late
// write still passes. A holder that reads, computes and writes would undo that late
// write without having seen it. So a holder first calls the guard's Raise(ctx, resource,
// token) for everything that its lock protects, and then reads. Raise moves the mark and
// writes nothing, and after it no earlier holder can write. Over HTTP and gRPC, a request
// that counts as a write does it. A transaction that checks first and reads after that, as
// sqlguard's does, needs no other Raise. If Raise fails with [ErrUnknown], call it again.
//
// # Shared locks
//
// Readers that hold a lock together have one token ([locker.Shared]), so a guard takes
// them for one holder: it accepts what they write in any order, and does not keep them
// apart. Once one of them has raised the mark or written, every writer from before is
// refused; once the next writer has, all of them are.
//
// # What it rests on
//
// Every write has to go through the guard, and tokens have to rise. [locker.Guarantees]
// says for each backend when they do. A restored backup, or a move to another service,
// sets them back: docs/fencing.md says what to do before that.
//
// A guard decides which of two writes is accepted. It does not take back a write
// from before a holder was paused: work of several steps needs a transaction, or
// steps that the next holder can repeat.
//
// # Guards of your own
//
// A guard for another store compares with [Admit], and does the comparison, the move
// of the mark and the write in one step of the store. Its methods take (ctx,
// resource, token), begin with [Check], use [*StaleError] as described here, make the
// errors of the store with [Failed], and include Raise.
package fencing
