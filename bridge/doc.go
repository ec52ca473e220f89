// Package bridge is a lock on two services at once, for the time in which a fleet
// of programs moves from one service to the other.
//
// While a half of a fleet has the old URL and a half the new one, two programs can
// hold the same name on two services. With a step in the middle they cannot:
//
//	LOCKER_BACKEND="redis://old:6379"                    A
//	LOCKER_BACKEND="redis://old:6379 etcd://new:2379"    A B
//	LOCKER_BACKEND="etcd://new:2379"                     B
//
// A fleet rolls from A to A B, as in any deployment, and when the last process has
// come over, from A B to B. At every moment any two of its members share a service.
// The way back is the same. docs/moving.md is the whole story, with what a step
// costs and how to see that it is complete.
//
// # What a lease on both is
//
// It is granted when both services have granted it, lasts as long as both say (the
// earlier end), is lost when one of them has lost it, and is released on both. A
// waiter stands in the first service's line. At its head it takes the lock there,
// keeps it, and waits for the second service as a member of the fleet does that
// knows only that one: so each gets its turn beside the other. It gives the first
// one back at once if the second one fails or does not answer for a TTL.
//
// Write the pair in the same order everywhere. Of two programs with "A B" and "B A",
// each may hold what the other one waits for; they give it back after some ten TTLs.
//
// # Tokens
//
// The fencing token of a lease on both is the higher one of the two, and the service
// that is behind is raised to it before the lease is given out (see
// [locker.TokenRaiser]). So whoever comes next through one service alone draws a higher
// one: tokens of a name rise through the whole move if a program with both has held it
// after the last one with A and before the first one with B. Of names that nobody
// holds in that time, docs/moving.md says where they rise all the same.
// If only one of the two has tokens, the pair has none.
//
// # What it promises
//
// [Backend.Guarantees] are what both together promise to a fleet in the middle of a
// move: field by field the weaker one, and no order among waiters, since members with
// one URL do not stand in the other one's line. Both services have to serve: the pair
// is available when both are.
package bridge
