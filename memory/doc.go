// Package memory is the lock service inside one process: goroutines exclude
// each other, and nothing else has to run.
//
//	locks := memory.New()
//	client := locker.New(locks, nil)
//
// Clients made from one [Backend] share its locks; two Backends know nothing
// of each other. That makes it the default for tests, where one Backend stands
// for the service and each Client for a program that uses it, and the start of
// a program that will need a service later. It is also the reference: the
// shortest complete backend that there is, for those who write another.
//
// # What it promises
//
// At most one lease on a name at a time, by one mutex in one process's memory.
// Waiters of all Clients get the lock in the order in which they began to
// wait, and one that gives up leaves the queue at once. Every lease has a
// fencing token; tokens rise, over all names, for as long as the Backend
// lives. No clock is involved, so leases have no deadline: [locker.Lease.Until]
// is the zero time. [Backend.Delete] takes a lock away from its holder, who is
// told at once. A lock with [locker.MinHold] is the exception: it has a deadline,
// and is kept for that long after its Client has ended.
//
// # What it does not promise
//
// Other processes are not kept out, however equal the names. All is gone when
// the process ends, and tokens start at 1 again in the next one: what checks
// them has to end with the process, too, or to be given a
// [locker.Options.TokenBase] above them. And since nothing expires, a goroutine
// that forgets to unlock, or is stuck, holds for ever, unless
// [locker.Options.MaxHold] bounds it.
//
// # Testing with it
//
// [NewExpiring] makes a Backend whose locks end with their TTL, [Backend.Fail]
// makes it fail as a service does that cannot be reached or refuses, and
// [Backend.Break] takes a lock from its holder. In a bubble of testing/synctest
// all of that takes no time; the examples show it.
//
// # URL
//
//	memory://
//
// opens a Backend that belongs to the one Client that is made with it. Clients
// that share locks are made with [New] and [locker.New]: a URL could share them
// only by a list of Backends kept for the whole process, behind everybody's back.
package memory
