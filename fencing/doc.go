// Package fencing makes writes safe where a lock alone cannot.
//
// A holder can be paused between its last check of its lease and its write, by a garbage collector, a
// virtual machine or a slow disk. When it resumes, its lease has ended, and it writes. No lock service
// can prevent that, because nobody asks the service at that moment. The resource can: each hold of a
// lock has a number, its fencing token, which is greater than the token of every earlier hold. The
// holder sends the token with each write, and the resource refuses a token lower than the highest it
// has seen.
//
// # What to do
//
// Start with [WithTokens], which refuses a backend without tokens. Hold the lock with [Do], which puts
// the token into the context under the lock's name for [TokenFor] to find. Let the resource check the
// token with a guard:
//
//   - [Guard], for state in the memory of the server that owns it;
//   - package sqlguard: PostgreSQL, SQLite, MySQL and MariaDB, in the caller's transaction;
//   - package pgxguard: PostgreSQL, in the caller's pgx transaction;
//   - package redisguard: keys of a Redis, and any script;
//   - package fileguard: a file that is replaced by rename;
//   - packages httpguard and grpcguard carry tokens to the server that owns the resource;
//   - for etcd, ZooKeeper and S3, recipes to copy from the module examples.
//
// # The rules
//
// All guards follow the same rules. The mark of a resource is the highest token that it has accepted. A
// token equal to the mark is accepted, because it is the same holder. A lower token is [ErrStale], and
// nothing is written; no token is [ErrMissing]. The mark moves and the write happens together or not at
// all. If a store cannot undo (a Redis script that fails halfway, a crash between a file's mark and its
// content), the mark moves first, and may move alone.
//
// A resource is a name for the state that is written. A resource's mark must only be compared with
// tokens of one lock: tokens of different locks say nothing about each other. The best name for the
// resource is the lock's name: then one mark covers everything in a store that the lock protects.
//
// # Raise before you read
//
// Until a holder's first write, the mark belongs to an earlier holder, whose late write still passes. A
// holder that reads, computes and writes would overwrite that late write without having seen it. So a
// holder first calls the guard's Raise(ctx, resource, token) for everything that its lock protects, and
// then reads. Raise moves the mark and writes nothing; after it, no earlier holder can write. Over HTTP
// and gRPC, any request that counts as a write does the same. A transaction that checks before it
// reads, as with sqlguard, needs no separate Raise. If Raise fails with [ErrUnknown], call it again.
//
// # Shared locks
//
// Readers that hold a lock together have one token ([locker.Shared]), so a guard treats them as one
// holder: it accepts their writes in any order, and does not keep them apart. Once one of them has
// raised the mark or written, all earlier writers are refused; once the next writer has, all these
// readers are.
//
// # What it relies on
//
// Every write must go through the guard, and tokens must increase. [locker.Guarantees] says for each
// backend when they do. A restored backup or a move to another service sets them back: docs/fencing.md
// says what to do before that.
//
// A guard decides which of two writes is accepted. It does not undo what a holder wrote before it was
// paused: work of several steps needs a transaction, or steps that the next holder can repeat.
//
// # Guards of your own
//
// A guard for another store compares with [Admit], and does the comparison, the move of the mark and
// the write in one atomic step of the store. Its methods take (ctx, resource, token), begin with
// [Check], use [*StaleError] as described here, report the store's errors with [Failed], and include
// Raise.
package fencing
