// Package etcd keeps locks in etcd v3: a queue of keys for each name, in the
// order in which etcd created them, under leases that one session for each TTL
// keeps alive.
//
// # What it promises
//
// While etcd keeps its data, no two clients hold a name at once, up to the end of
// each lease ([locker.Lease.Until]), but for a leader that stands still for longer
// than a TTL: see below. Waiters of all clients get the name in the order in which
// they asked. Tokens are etcd's revisions, plus what they were raised by: of one
// name, each is greater than every one before it. Of different names they rise in
// the order in which the locks were asked for. A held lock survives the loss of a
// minority of the members, a change of the leader, and a restart of all members that
// is shorter than what remains of the session, or in which they come back with their
// data before the holder's time is over. What is written to etcd itself can be
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
//   - A leader that was stopped for longer than a TTL (a frozen virtual machine)
//     and goes on takes all leases for expired, although its successor has kept
//     them alive, and revokes them. The next holder gets in. The one before is
//     told by a watch, most often within a millisecond, but for up to a TTL not if
//     it is cut off at that moment. Options.StrictExpiry (strict_expiry=true)
//     makes that impossible, at a price: the lock of a holder that died is then
//     free one TTL after somebody first finds its lease gone, so up to twice the
//     TTL, and each lock writes one key more. It is off by default because such a
//     pause is rare, a fencing token covers it, too, and holders that die are not
//     rare. Each holder decides for itself: clients with and without it mix.
//   - A holder whose key somebody deletes by hand is told at its next renewal,
//     a third of the TTL later at most, and not before the next holder gets in.
//   - A holder that is paused past its lease can still act: check
//     [locker.Lease.Token] at the resource (package fencing).
//
// # How it works
//
// A lock is a key PREFIX/1/lock/NAME/CLIENT.N, and of all keys below one NAME
// the one with the lowest create revision holds the lock. The others each
// watch the key before their own. In NAME, % and / are written %25 and
// %2F; the 1 is the version of this layout. A prefix that contains /1/lock itself
// is refused: its keys would stand in a queue of a shorter one.
//
// A key's value begins with the owner, which is new for each attempt; so is the create
// revision. What is granted is a create revision, and every removal compares
// the owner, so that no attempt can be taken for another. The name of the key
// alone is used again, once nothing can be under way any more that puts it. Etcd
// keeps deleted keys in its index until it is compacted, and reading a queue costs
// time for each, 0.1 µs of the one thread that applies all writes. A thousand
// acquisitions with names of their own would make the next one 100 µs slower.
//
// [locker.Lease.RaiseToken] puts a key PREFIX/1/lock/NAME/~/tokens, on no lease, that
// says what is added to the create revisions of later holders. It is put while the
// holder's key is there, and read by the transaction in which the next one finds
// itself first. A name that was never raised has no such key and pays nothing: its
// first comparison says that there is none. One that was raised has one more key
// read in the same request (1.1 times the time of a lock and unlock, measured). The
// key is never deleted: whoever does that by hand sets the tokens back.
//
// All keys of one client and TTL hang on one etcd lease, the session. It is kept
// alive four times per TTL, and the time from which it counts is read
// before the request is sent. Etcd's answer alone is not believed: a leader that was
// cut off or paused does not know yet that it was replaced, renews leases that its
// successor counts differently, and does not know those that its successor has
// granted. The session's own key is read from a majority after it, and both
// answers have to come from the same term.
//
// All requests go to one member, on connections of the backend's own. One that
// does not answer within a tenth of Options.Timeout is asked no more, and the request goes to
// the next, for longer. Requests can be carried out twice, and at any time later.
//
// With StrictExpiry, or MinHold, a key has a shadow, CLIENT.N! or CLIENT.N$, put in the
// same transaction and deleted with it, but not on the session's lease. When the
// key goes without it, the shadow still holds the queue. Whoever finds it so puts it
// on a lease of the holder's TTL that nobody renews. No leader ends that one early:
// what a leader can have missed are renewals. A MinHold's shadow is on such a lease
// from the grant on.
//
// What can go wrong in the middle, and what covers it:
//
//   - The reply to an acquire is lost, or its caller cancels: the engine has it
//     taken back. The key is deleted by a transaction that leaves a void
//     key, PREFIX/1/lock/NAME/~OWNER, on the same lease. The acquire compares the
//     void key absent: if it arrives later, it does nothing. If the lease is gone,
//     an acquire under it fails. A session with many void keys is retired.
//   - The store is full: etcd then refuses what puts a key, perhaps after it has
//     put it. That is an answer, so the request will not come later, and the key
//     is deleted without a void one, which etcd lets through.
//   - The session is not heard of for a TTL: the time of its holders is over, and
//     it is revoked, which is tried for another TTL. What is left then goes with
//     the lease; the next session waits for it in the queues as for anybody's.
//   - The backend is closed while locks are held: their holders are told, and
//     then the sessions are revoked.
//   - A waiter gives up or dies: its key is deleted, or goes with its session;
//     the next one reads the queue again and watches the one before.
//   - The session expires while one waits: its watch tells, or its next keep-alive,
//     and the waiter queues again, at the end. Having got to the
//     front it reads its own key before it believes it.
//   - A watch is cancelled (compaction, a member without a leader, a token that
//     expired, a broken connection): a new one is made. It hangs with its member:
//     the next keep-alive finds that out, and the driver goes on with it at
//     another. All waiters of a session share a look every 20 s or more.
//   - The key before was deleted between the reading of the queue and
//     the creation of the watch: it is read again after etcd has confirmed the watch.
//   - The leader changes: etcd keeps leases at least as long as without; requests that
//     fail have unknown outcomes and are taken back as above.
//
// # Access
//
// With authentication on, a user needs a role with
//
//	etcdctl role grant-permission ROLE --prefix=true readwrite PREFIX/1/
//
// The oldest server that this is tested with is etcd 3.4 (3.4.23), the newest 3.7.
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
//	strict_expiry  Options.StrictExpiry: true or false, the default; MaxTTL is ttl then, or 30 s if that is more
//	ca, cert, key  PEM files: the authority to trust, the client's certificate and key (TLS only)
//	server_name    the name to expect in the server's certificate (TLS only)
package etcd
