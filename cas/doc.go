// Package cas makes a lock service of any store that can replace a small record if nobody has changed it
// meanwhile: a Kubernetes Lease, the key-value stores of Consul and NATS, DynamoDB, S3 or GCS with
// If-Match. No clock and no TTL of the store are needed.
//
//	backend, err := cas.New(store, nil) // store has the methods of a Store
//	client := locker.New(backend, nil)
//
// # How it works
//
// Each name has a record with its holders, for how long each lasts without a renewal, and a number that
// every write raises. A request reads the record, makes a new one of it, and writes that under the version
// that it has read; if another was faster, it begins again. An observer that sees the same beat of a holder
// for the holder's whole TTL, by its own monotonic clock and from after the reply that showed it first,
// knows that the holder is dead: its lease counts from before its last write was sent. The write that takes
// over is under the version that it has seen, so a renewal that comes in between is never overlooked. What a
// client has seen of others stands in all that it writes, for those who look later.
//
// Records stay when names are free, so that tokens rise, some 40 bytes each: use names that
// come back, or remove the records of names that never will.
//
// # What it promises
//
// At most one holder at a time, or sharers with one token, as far as the store's own Exclusion goes; fencing
// tokens that rise as long as the record is kept; a paused server and clocks that are wrong on any machine do
// no harm. What an attempt with an unknown outcome has left is taken back by writing the record once: a
// request that is still under way is under an older version then, and can do nothing any more.
//
// # What it does not promise
//
//   - A dead holder's lock is free a TTL after one client has begun to look, if that one goes on looking
//     ([driver.RecoveryWatched]), as Lock does. Processes that ask once and end never get it: let them wait for
//     longer than a TTL (locker run without --try, with a --wait), or have somebody remove the
//     holder (locker break). If the store knows the age of a record ([Promises].Ages), the lock is free
//     when its TTL has passed ([driver.RecoveryAfterTTL]), for those too; then a clock of the service that
//     steps forward can give a lock to two.
//     A write that arrives late (another sharer's, the note of a writer, a RaiseToken) begins the age anew, and the
//     lock of a dead holder is kept for up to a TTL longer.
//   - MinHold is there only with Ages, for the same reason.
//   - There is no order among waiters of different clients. A writer that waits for sharers keeps new ones out by a
//     note; without Ages, it does so only while others share the name, so that the note of one that has
//     died keeps nobody from a free name.
//   - A take-back that meets an outage is repeated until the store answers: without Ages nothing else ends
//     what is left.
//   - An operator who deletes a record takes its tokens with it. Use locker break.
//
// # What it costs
//
// A lock is a Load and a Swap, a renewal and a release a Swap each; one more Load and Swap where another client
// has changed the record meanwhile. A waiter asks by a Load, twice a second or, if the store is a [Watcher], when
// something has changed and at the end of the holder's TTL; one that waits for sharers writes its note three
// times a second. Sharers of one name write one record: some ten clients are well, a thousand are not.
package cas
