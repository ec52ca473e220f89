// Package memory keeps locks inside one process: goroutines exclude each other, and
// no server has to run.
//
//	locks := memory.New()
//	client := locker.New(locks, nil)
//
// Clients of one [Backend] share its locks; two Backends are independent. Use it for
// tests, where one Backend stands for the service and each Client for a program, and
// for a program that will need a service only later. It is also the reference for
// authors of backends: the shortest complete one.
//
// # What it promises
//
// There is at most one lease on a name at a time, by a mutex in the memory of the
// process. The waiters of all Clients get the lock in the order in which they began
// to wait, and a waiter that gives up leaves the queue at once. Every lease has a
// fencing token; tokens rise, over all names, for as long as the Backend exists. No
// clock is involved, so leases have no deadline, and locker.Lease.Until is a
// century away. The exception is a lock with locker.MinHold: it has a deadline, and is kept
// until then even if its Client has ended. [Backend.Delete] takes a lock away from
// its holder, who is told at once.
//
// # What it does not promise
//
// Other processes are not kept out. All locks are gone when the process ends, and
// tokens begin at 1 again in the next process. So the resource that checks tokens has
// to end with the process too, or locker.Options.TokenBase has to be above the old
// tokens. Since nothing expires, a goroutine that is stuck or forgets to unlock holds
// for ever, unless locker.Options.MaxHold bounds it.
//
// # Testing with it
//
// [NewExpiring] makes a Backend whose locks end with their TTL. [Backend.Fail] makes
// it fail like a service that is out of reach or refuses. [Backend.Delete] takes a
// lock away from its holder. In a bubble of testing/synctest all of this takes no
// time; the examples show it.
//
// # URL
//
//	memory://
//
// opens a Backend for one Client. To share locks between Clients, use [New] and
// locker.New: sharing by URL would need a global list of Backends.
package memory
