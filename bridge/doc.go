// Package bridge locks on two services at once while a fleet of programs moves from one service to the
// other.
//
// While half of a fleet uses the old URL and half the new one, two programs can hold the same name,
// each on its service. A step in between prevents this:
//
//	LOCKER_BACKEND="redis://old:6379"                    A
//	LOCKER_BACKEND="redis://old:6379 etcd://new:2379"    A B
//	LOCKER_BACKEND="etcd://new:2379"                     B
//
// A fleet changes from A to A B, as in any deployment, and, when the last process has changed, from A B
// to B. At every moment any two processes share a service. The way back has the same steps.
// docs/moving.md describes what a step costs, and how to see that it is complete.
//
// # What a lease on both is
//
// The lease is granted when both services have granted it. It ends at the earlier of the two ends, is
// lost when either service has lost it, and is released on both. A waiter waits for the first service.
// Once it is at the front there, it takes that lock, keeps it, and waits for the second service like a
// program with only that URL, so that both kinds of programs get their turns. It releases the first
// lock at once if the second service fails or does not answer for a TTL. With [locker.MinHold], it does
// not keep the first lock while it waits, and the MinHold counts from the grant of both.
//
// Write the two URLs in the same order everywhere. A program with "A B" and one with "B A" may each
// hold the lock that the other waits for; they release it after about ten TTLs. If both URLs lead to
// the same locks, the first Lock returns an error that says so.
//
// # Shared locks
//
// A bridge has exclusive locks only. A call with [locker.Shared] is refused with an error that matches
// [errors.ErrUnsupported], even if both services have shared locks; docs/moving.md says how a fleet
// that shares locks moves. A program with one URL may still share a name on its service. A program with
// both URLs then waits for the sharers to leave, and keeps new ones out of the service for which it
// waits: first A, then B. With MinHold it does not wait for B, and keeps no sharers out there.
//
// # Tokens
//
// The fencing token of a lease on both services is the higher of the two tokens. Before the lease is
// given out, the service that is behind is raised to that token (see [driver.TokenRaiser]), so the next
// holder on one service alone gets a higher token. A name's tokens increase through the whole move if a
// program with both URLs has held the name after the last program with A alone and before the first
// with B alone. For names that nobody holds in that time, docs/moving.md says on which services tokens
// still increase. If only one of the two services has tokens, the bridge has none.
//
// # What it promises
//
// [Backend.Guarantees] are the promises to a fleet in the middle of a move: in each field the weaker of
// the two, and no order among waiters, because programs with only one URL do not wait for the other
// service. The bridge is available only when both services are.
package bridge
