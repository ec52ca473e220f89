// Package memory keeps locks inside one process: goroutines exclude each other, and no server is
// needed.
//
//	locks := memory.New()
//	client, err := locker.New(locks, nil)
//
// Clients of one [Backend] share its locks; two Backends are independent. Use it for tests, where one
// Backend stands for the service and each Client for a program, and for programs that will need a
// service only later. It is also the reference for authors of backends: the shortest complete one.
//
// # What it promises
//
// There is at most one lease on a name at a time, by a mutex in the memory of the process. The waiters
// of all Clients get the lock in the order in which they began to wait, and a waiter that gives up
// leaves the queue at once. Every lease has a fencing token; tokens increase, over all names, for as
// long as the Backend exists. No clock is involved, so leases have no deadline, and locker.Lease.Until
// is a century away. The exception is a lock with locker.MinHold: it has a deadline, and is kept until
// then even if its Client has ended.
//
// # What it does not promise
//
// It does not exclude other processes. When the process ends, all locks are gone, and the next process
// starts at token 1 again. So the resource that checks tokens must end with the process too, or
// locker.Options.TokenBase must be above the old tokens. Nothing expires, so a goroutine that is stuck
// or forgets to unlock holds the lock forever, unless locker.Options.MaxHold bounds it.
//
// For tests, package lockertest has a lock service in memory whose locks can expire, get lost, or be
// unreachable.
//
// # URL
//
//	memory://
//
// opens a Backend for one Client. To share locks between Clients, use [New] and
// locker.New: sharing by URL would need a global list of Backends.
package memory
