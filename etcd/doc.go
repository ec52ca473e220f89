// Package etcd keeps locks in etcd v3: a queue of keys for each name, in the
// order in which etcd created them, under leases that one session for each TTL
// keeps alive.
//
// # What it promises
//
// While etcd keeps its data, no two clients hold a name at once, up to the end
// of each lease ([locker.Lease.Until]). Waiters of all clients get the name in
// the order in which they asked. Tokens are etcd's revisions: each is greater
// than every one before it, for all names. A held lock survives the loss of a
// minority of the members, a change of the leader, and a restart of all members
// that is shorter than what remains of the session, or in which they come back
// with their data before the holder's time is over. What is written to etcd itself can be
// fenced in the same transaction: see [Held].
//
// # What it rests on
//
//   - That the clocks of the leader and of the holder run at the same speed,
//     within 1 % + 2 ms. They need not show the same time, and a step of a
//     member's wall clock moves no lease: members count by their monotonic
//     clocks, and what they write down is how much of a lease remains, never a
//     time of day. (On an etcd that testdata/clock/build makes, whose wall clock
//     can be stepped, the conformance suite proves it.)
//   - That the members do what Raft asks of them: one that forgets what it has
//     confirmed (a disk that lies about fsync, --unsafe-no-fsync and a power cut,
//     a member that is re-created with an old name and no data) voids it.
//   - For tokens, that nobody sets the data back: a restored backup rewinds the
//     revisions, unless it is restored with --bump-revision.
//
// # What it does not promise
//
//   - The lock of a holder that died is free after the TTL that etcd granted,
//     which is the one asked for in whole seconds, rounded up, and no less than
//     etcd's own minimum (1.5 election timeouts: 2 s by default), and up to
//     a second later; a change of the leader in between starts it again.
//   - A holder whose key somebody deletes by hand is told at its next renewal,
//     a third of the TTL later at most, and not before the next holder gets in.
//   - A holder that is paused past its lease can still act: check
//     [locker.Lease.Token] at the resource (package fencing).
//
// # How it works
//
// A lock is a key PREFIX/1/lock/NAME/SESSION.N, and of all keys below one NAME
// the one with the lowest create revision holds the lock. The others each
// watch the key before their own. In NAME, % and / are written %25 and
// %2F; the 1 is the version of this layout. A prefix that contains /1/lock itself
// is refused: its keys would stand in a queue of a shorter one.
//
// A key's value begins with the owner, which is new for each attempt; so is the create
// revision. What is granted is a create revision, and every removal compares
// the owner, so that no attempt can be taken for another. The name of the key
// alone is used again: by its session once nothing can be under way any more
// that puts it, and by the next one once the lease of the one before is
// gone for certain. Etcd keeps deleted keys in its index until it is compacted, and
// reading a queue costs time for each, 0.1 µs of the one thread that applies
// all writes. A thousand acquisitions with names of their own would make the
// next one 100 µs slower.
//
// All keys of one client and TTL hang on one etcd lease, the session. It is kept
// alive four times per TTL, and the time from which it counts is read
// before the request is sent. Etcd's answer alone is not believed: a leader that was
// cut off or paused does not know yet that it was replaced, and renews leases
// that its successor counts differently. A read that needs a majority is made after
// it, and both have to come from the same term.
//
// What can go wrong in the middle, and what covers it:
//
//   - The reply to an acquire is lost, or its caller cancels: the
//     key is deleted by a transaction that, if it finds no key, leaves a void key,
//     PREFIX/1/lock/NAME/~OWNER, on the same lease instead. The acquire compares the void key absent: if it
//     arrives later, it does nothing. If the lease is gone, an acquire
//     under it fails.
//   - That deletion, or a release, gets no answer: the session owes it, and tries again
//     for as long as it lives, whatever the engine does. If
//     it lives on for more than a TTL without being able to, no new locks are taken on it, and it is
//     revoked when the last one is gone.
//   - The store is full: etcd then refuses what puts a key, perhaps after it has
//     put it. That is an answer, so the request will not come later, and the key
//     is deleted without a void one, which etcd lets through.
//   - The session is not heard of for a TTL: the time of its holders is over, and
//     it is revoked, which is tried for another TTL. What is left then goes with
//     the lease; the next session waits for it in the queues as for anybody's.
//   - The backend is closed while locks are held: their holders are told, and
//     then the sessions are revoked.
//   - A waiter gives up or dies: its key is deleted, or goes with its session; who
//     watches it reads the queue again and watches the one before.
//   - The session expires while one waits: that is found out by its next keep-alive or by its
//     local deadline, and the waiter queues again, at the end. Having got to the
//     front it reads its own key before it believes it.
//   - A watch is cancelled (compaction, a member without a leader, a token that
//     expired, a broken connection) or hangs (a paused member): a poll
//     every few seconds reads the queue, and a new watch is made on a new stream.
//   - The key before was deleted between the reading of the queue and
//     the creation of the watch: the queue is read again after etcd has confirmed the watch.
//   - The leader changes: etcd keeps leases at least as long as without; requests that
//     fail have unknown outcomes and are taken back as above.
//   - A member stops answering: keep-alives go out again before the one before
//     has failed, and take turns among the members.
//
// # Access
//
// With authentication on, a user needs a role with
//
//	etcdctl role grant-permission ROLE --prefix=true readwrite PREFIX/1/
//
// The oldest server that this is tested with is etcd 3.7; nothing is used
// that 3.4 does not have.
//
// # URLs
//
//	etcd://[user:password@]host[:port][,host[:port]…][/PREFIX]
//	etcds://…    the same over TLS
//
// The port is 2379 and PREFIX is locker if not given. Parameters beside the
// common ones of [locker.Openers.Open]:
//
//	timeout        the longest wait for one answer; default 3s
//	members        Options.Members; asked of etcd if not given
//	ca, cert, key  PEM files: the authority to trust, the client's certificate and key (TLS only)
//	server_name    the name to expect in the server's certificate (TLS only)
package etcd
