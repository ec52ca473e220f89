// Package fencingproof proves with real lock services, real processes and
// real pauses that fencing does what package fencing says.
//
// It has tests only. The main one: a holder in a process of its own takes a
// lock, looks at its lease, finds it valid, and is stopped (SIGSTOP) between
// that look and its write. When its lease has run out and another holder has
// written, it goes on (SIGCONT), and writes. A resource that checks nothing
// takes that write every time; one behind a guard never does, and the holder is
// told both tokens.
//
// Nothing in it depends on luck with time: the holder says that it has looked,
// and then waits for a word of the test, which the test sends after it has seen
// the process stand still and another client has got the lock.
//
// The others set tokens back, as operators can: a Redis restarted without its
// data, a move from one lock service to another, an etcd restored from a
// backup.
package fencingproof
