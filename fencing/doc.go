// Package fencing is for callers who need more than a lock can give.
//
// A holder can stop between its last look at its lease and its write: a
// garbage collection, a paused virtual machine, a slow disk. It comes back
// after its lease is over, and writes. No lock service can prevent that, since
// nobody asks it at that moment. The resource can: each hold of a lock has a
// number, its fencing token, which is greater than that of every earlier hold;
// the holder sends it along with each write, and the resource refuses a number
// lower than the highest that it has seen.
//
// # What has to be done
//
// Start with [Require], which refuses a backend without tokens. Hold the lock
// with [Do], which puts the token into the context under the lock's name, where
// [TokenFor] finds it. Let the resource check it with a guard:
//
//   - [Guard], for state in the memory of the server that owns it;
//   - package sqlguard: PostgreSQL, SQLite, MySQL and MariaDB, in the caller's transaction;
//   - package redisguard: keys of a Redis, and any script;
//   - package etcdguard: an etcd transaction;
//   - package zkguard: a ZooKeeper multi;
//   - package fileguard: a file that is replaced by rename;
//   - packages httpguard and grpcguard carry tokens to the server that owns the resource.
//
// # The rules
//
// All guards keep the same rules. The mark of a resource is the highest token
// that it accepted. A token equal to the mark is accepted, since the same
// holder goes on; a lower one is [ErrStale] and nothing is written; no token is
// [ErrMissing]. The mark moves and the write happens together or not at all;
// where a store cannot undo (a script of Redis that fails in the middle, a crash
// between a file's mark and its content) the mark comes first, and moves alone.
//
// A resource is a name for what is written. The mark of one resource must only
// meet tokens of one lock: numbers of different locks say nothing about each
// other. The name of the lock is the best name for the resource: then one mark
// stands for everything in a store that the lock protects.
//
// # Raise before you read
//
// Until a holder's first write, the mark is that of the holder before, whose
// late write still passes. A holder that reads, computes and writes would undo
// that write without having seen it. So every guard has a method
//
//	Raise(ctx, resource, token)
//
// which moves the mark and writes nothing. A holder first raises the mark of
// everything that its lock protects, and then reads: after Raise has returned, no
// earlier holder can write, and what was read stays as it is until this holder
// writes, or until a later one has raised the mark and this one is refused.
// A transaction that checks first and reads after that, as sqlguard's does, needs
// no other Raise. An error of Raise is one of a write: with [ErrUnknown], call it
// again.
//
// # What it rests on
//
// Tokens have to rise. [locker.Guarantees] says for each backend when they do:
// a restored backup of etcd or ZooKeeper sets them back, and a move to another
// service starts them elsewhere. Guards then refuse everything, which is what
// one notices. But a holder from before, whose token nobody has seen yet, is
// above its successors and may write over them. So stop all holders first, and
// set Options.TokenBase (token_base in the URL) above every token that was
// given out, not only above every mark; docs/fencing.md has a chapter on it.
//
// Every write has to go through the guard: a path to the resource without it
// is a path around it.
//
// A guard decides which of two writes is obeyed. It does not take back what a
// holder wrote before it was paused: work of several steps needs a transaction,
// or steps that can be done again by the next holder.
//
// # Guards of your own
//
// A guard for another store compares with [Admit] and keeps the comparison, the
// move of the mark and the write in one step of the store. Its methods take
// (ctx, resource, token), give [*StaleError], [ErrMissing] and [ErrUnknown] the
// meaning that they have here, and include Raise.
package fencing
