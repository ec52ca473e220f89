// Package bridge locks on two services at once, while a fleet of programs moves from
// one service to the other.
//
// While one half of a fleet uses the old URL and the other half the new one, two
// programs can hold the same name on two services. A step in the middle prevents
// this:
//
//	LOCKER_BACKEND="redis://old:6379"                    A
//	LOCKER_BACKEND="redis://old:6379 etcd://new:2379"    A B
//	LOCKER_BACKEND="etcd://new:2379"                     B
//
// A fleet changes from A to A B, as in any deployment, and, when the last process has
// changed, from A B to B. At every moment any two processes share a service. The way
// back has the same steps. docs/moving.md has the details: what a step costs, and how
// to see that it is complete.
//
// # What a lease on both is
//
// The lease is granted when both services have granted it. It ends at the earlier of
// the two ends, is lost when one of them has lost it, and is released on both. A
// waiter waits for the first service. When it is at the front there, it takes that
// lock, keeps it, and waits for the second service like a program with only that URL,
// so that both kinds of programs get their turns. It releases the first lock at once
// if the second service fails or does not answer for a TTL. With [locker.MinHold], it does
// not keep the first lock while it waits, and that time counts from the grant of both.
//
// Write the two URLs in the same order everywhere. A program with "A B" and one with
// "B A" may each hold the lock that the other waits for; they release it after some
// ten TTLs. If both URLs lead to the same locks, the first lock is an error that says so.
//
// # Shared locks
//
// A pair has exclusive locks only. A call with [locker.Shared] is refused with an error that
// matches [errors.ErrUnsupported], whatever the two services can do; docs/moving.md says how a
// fleet that shares locks moves. A program with one URL may still share a name on its
// service. A program with both URLs then waits for the sharers to leave, and keeps new ones
// out of the service where it waits: first of A, then of B. With MinHold it does not wait
// for B, and keeps nobody out there.
//
// # Tokens
//
// The fencing token of a lease on both services is the higher of the two tokens.
// Before the lease is given out, the service that is behind is raised to that token
// (see [driver.TokenRaiser]). So the next holder through one service alone gets a
// higher token. The tokens of a name rise through the whole move if a program with
// both URLs has held the name after the last program with A alone and before the
// first one with B alone. For names that nobody holds in that time, docs/moving.md
// says on which services tokens rise nevertheless. If only one of the two services
// has tokens, the pair has none.
//
// # What it promises
//
// [Backend.Guarantees] are the promises to a fleet in the middle of a move: field by
// field the weaker of the two, and no order among waiters, since programs with only
// one URL do not wait for the other service. The pair is available only when both
// services are.
package bridge
