// Package locker is one interface for distributed locks, with many lock
// services behind it.
//
// A program or a library takes a [Locker] and asks it for leases on names. A
// [Client] is a Locker on one [Backend]; the backends are packages of their
// own: memory (one process), file (one host), single (one Redis), redlock (a
// majority of independent Redis servers), etcd and zookeeper. This package
// needs nothing but the standard library.
//
//	client := locker.New(memory.New(), nil)
//	defer client.Close()
//
//	err := locker.Do(ctx, client, "invoice/1234", func(ctx context.Context, lease *locker.Lease) error {
//		return send(ctx, invoice) // ctx ends if the lease is lost
//	})
//
// With [Openers.Open] a URL decides which service it is.
//
// # Leases
//
// A lock in a network service is a lease: it ends by itself when its holder
// does not renew it, so that a dead holder does not keep everybody out. The
// Client renews each lease every third of its TTL until it is unlocked. What a
// holder has to know is when it is over:
//
//   - [Lease.Until] is the time up to which the holder may act. It is counted
//     from before the request that granted or renewed the lease was sent, and
//     leaves room for clocks that run at different speeds.
//   - [Lease.Done], [Lease.Context] and the context that [Do] gives to its
//     function end at that time, on a timer of their own: no request that
//     hangs delays them.
//   - A renewal that fails is not a loss, it is tried again until Until. A
//     service that says that the lock is gone ends the lease at once, and it is
//     never acquired again behind its holder's back.
//
// Whether a lock may be taken for lost too early or too late is never a
// question of luck: too early, when the holder's own clock is stepped forward
// (Until is kept in wall time too, since the monotonic clock stands still while
// a machine sleeps); too late, only if what [Guarantees] names as its ground
// does not hold.
//
// # What no lease can do
//
// A holder can be paused at any instruction, for longer than any TTL, and
// wake up without knowing. If it then writes, it writes beside the next
// holder. Only the resource that is written to can refuse that: give
// [Lease.Token] along, a number that rises with every holder, and let the
// resource refuse one that is lower than the highest it has seen.
// See Kleppmann, "How to do distributed locking", 2016.
//
// # Failures
//
// Lock and TryLock never return before it is known what they left behind, or
// that it is being taken back: after a lost reply or a cancelled context the
// Client asks the service in the background to undo what may have been done.
// ErrHeld and ErrUnavailable are never taken for each other.
//
// # Writing a backend
//
// A [Backend] has three methods, and a [Hold] two; optional abilities are the
// interfaces [Notifier] and [Inspector]. Package conformance has the tests that
// it must pass and an example of a whole backend.
package locker
