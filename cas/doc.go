// Package cas turns any store with compare-and-swap on small records into a lock service: a Kubernetes
// Lease, the key-value stores of Consul and NATS, DynamoDB, S3 or GCS with If-Match. It needs neither a
// clock nor a TTL of the store.
//
//	backend, err := cas.New(store, nil) // store has the methods of a Store
//	client, err := locker.New(backend, nil)
//
// # How it works
//
// Each name has a record with its holders, how long each lasts without a renewal, and a number that
// every write raises. A request reads the record, makes a new one from it, and writes that under the
// version it has read; if another write came first, it starts over. An observer that sees the same beat
// of a holder for the holder's whole TTL, by its own monotonic clock and counted from after the reply
// that first showed it, knows that the holder is dead, because the holder's lease counts from before
// its last write was sent. The write that takes over is under the version that the observer has seen,
// so it never overlooks a renewal in between. Each client includes what it has seen of others in every
// write, for later observers.
//
// Records of free names stay, some 40 bytes each, so that tokens keep increasing: reuse names, or
// remove the records of names that you will never use again.
//
// # What it promises
//
// At most one holder at a time, or sharers with one token, as far as the store's own Exclusion goes.
// Fencing tokens increase as long as the record is kept. A paused server and wrong clocks on any
// machine do no harm. What an attempt with an unknown outcome has left is taken back with one write of
// the record: a request still in flight is then under an older version, and has no effect.
//
// # What it does not promise
//
//   - A dead holder's lock is free once one client has watched it for a TTL ([driver.RecoveryWatched]),
//     as Lock does. Processes that ask once and exit never get it: let them wait for longer than a TTL
//     (locker run without --try, with a --wait), or have a person remove the holder (locker break). If
//     the store knows the age of a record ([Promises].Ages), the lock is free for them too when its TTL
//     has passed ([driver.RecoveryAfterTTL]); but then a clock of the service that steps forward can
//     give a lock to two holders. A write that arrives late (another sharer's, a writer's note, a
//     RaiseToken) restarts the age, and keeps the lock of a dead holder for up to a TTL longer.
//   - MinHold needs Ages, for the same reason. A holder that is gone stays in the record as kept until
//     its MinHold ends.
//   - There is no order among waiters of different clients. A writer that waits for sharers keeps new
//     ones out with a note; without Ages, only while others share the name, so that a dead writer's
//     note keeps nobody from a free name.
//   - A take-back is repeated through an outage until the store answers: without Ages, nothing else
//     ends what is left.
//   - Deleting a record also deletes its tokens. Use locker break.
//
// # What it costs
//
// A lock costs a Load and a Swap, a renewal and a release one Swap each, plus one Load and Swap
// whenever another client has changed the record meanwhile. A waiter polls with a Load, twice a second
// or, if the store is a [Watcher], after each change and at the end of the holder's TTL. One that waits
// for sharers writes its note three times a second. Sharers of one name write one record: some ten
// clients work well, a thousand do not.
package cas
