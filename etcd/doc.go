// Package etcd keeps locks in etcd v3. Each name has a queue of keys, in the order in
// which etcd created them. The keys are on leases; one session for each TTL keeps its
// lease alive.
//
// # What it promises
//
// While etcd keeps its data, no two clients hold a name at once, up to the end of
// each lease (locker.Lease.Until). The exception is a leader that stands still for
// longer than a TTL: see below. The waiters of all clients get the name in the order
// in which they asked. Tokens are etcd's revisions, plus the amount by which they
// were raised. Of one name, each token is greater than every earlier one. Of
// different names, tokens rise in the order in which the locks were asked for. A held
// lock survives the loss of a minority of the members, a change of the leader, and a
// restart of all members that is shorter than the remaining time of the session, or
// after which they are back with their data before the holder's time is over. Writes
// to the same etcd can be fenced in their own transaction: see [Held].
//
// # Shared locks
//
// A sharer (locker.Shared) has a key of its own in the same queue, on the session of
// its own client, and lives as long as that. Only those before it that want the name
// alone keep it out, and whoever wants it alone waits until all before it are gone. So
// a waiting writer keeps out the readers who come later, the readers between two
// writers get in together, and the order is that of the keys. A waiting writer that
// has died is in the way until its session ends. A free name takes one transaction to
// share, and one that others share, too; a writer pays nothing for it.
//
// Shared leases have no tokens: the revisions of those who hold together differ. Writes
// to the same etcd can be fenced by [Held] all the same. Beyond [driver.MaxSharers] that
// hold a name, a sharer is refused; each sharer that comes costs etcd some 0.2 µs for each
// that is there, since it counts them.
//
// A writer watches one key at a time, the last before its own, and reads the queue
// when that goes: of n readers who leave in any order it meets some ln n so. With
// StrictExpiry, a dead reader keeps writers out for one more TTL, as any holder, and its
// time begins when it is found: by a writer that waits directly behind it, or tries; by a
// reader, if more are dead than alive; and by any writer when those who live have left.
//
// # What it rests on
//
//   - The clocks of the leader and of the holder run at the same speed, within 1 % +
//     2 ms. They need not show the same time. A step of a member's wall clock does
//     not move the end of a lease: members count by their monotonic clocks, and store
//     the remaining time of a lease, never a time of day. (The conformance suite
//     proves this, on an etcd from testdata/clock/build, whose wall clock can be
//     stepped.)
//   - The members keep the data that they have confirmed, as Raft requires. A member
//     that forgets it breaks the promise: with a disk that lies about fsync, with
//     --unsafe-no-fsync and a power failure, or as a member that is re-created with
//     its old name and no data.
//   - For tokens, nobody sets the data back: a restored backup sets the revisions
//     back, unless it is restored with --bump-revision.
//
// # What it does not promise
//
//   - The lock of a dead holder is free when the TTL that etcd granted is over, or up
//     to a second later. The granted TTL is the requested one, rounded up to whole
//     seconds, and at least etcd's own minimum (1.5 election timeouts: 2 s by
//     default). A change of the leader starts the TTL again.
//   - A leader that was stopped for longer than a TTL (a frozen virtual machine) and
//     goes on believes that all leases have expired, although its successor has kept
//     them alive, and revokes them. Then the next holder gets the lock. A watch tells
//     the earlier holder, most often within a millisecond; but if that holder is cut
//     off at this moment, it does not learn of it for up to a TTL.
//     Options.StrictExpiry (strict_expiry=true) makes this impossible, at a price:
//     the lock of a dead holder is then free one TTL after somebody first finds its
//     lease gone, which can be two TTLs in all, and each lock takes one more write. It
//     is off by default because such a pause is rare, because fencing tokens also cover
//     it, and because dead holders are not rare. Each holder decides for itself:
//     clients with and without it can be mixed.
//   - If somebody deletes a holder's key by hand, the holder learns of it at its next
//     renewal, within a third of the TTL, and not before the next holder gets the
//     lock.
//   - A holder that is paused past its lease can still act: check
//     locker.Lease.Token at the resource (package fencing).
//
// # How it works
//
// A lock is a key PREFIX/1/lock/NAME/CLIENT.N, or NAME/sCLIENT.N if it is shared. Of all
// keys below one NAME, the key with the lowest create revision holds the lock; each other
// client watches the key before its own, and a sharer the one before that is not shared.
// In NAME, % and / are written %25 and %2F; the 1 is the version of this layout. A
// prefix that contains /1/lock is refused: its keys would be in the queue of a shorter
// prefix.
//
// A key's value begins with the owner, which is new for each attempt; so is the
// create revision. A grant is for a create revision, and every removal compares the
// owner, so that no attempt is taken for another. Only the name of the key is used
// again, when no request that puts it can be in flight any more. This is for speed:
// etcd keeps deleted keys in its index until it is compacted, and reading a queue
// costs 0.1 µs for each, in the one thread that applies all writes. A thousand
// acquisitions with names of their own would make the next one 100 µs slower.
//
// locker.Lease.RaiseToken puts a key PREFIX/1/lock/NAME/~/tokens, on no lease,
// which has the number that is added to the create revisions of later holders. It is
// put while the holder's key exists, and the transaction in which the next holder
// finds itself first reads it. The key is never deleted: to delete it by hand sets the
// tokens back.
//
// All keys of one client and TTL are on one etcd lease, the session. It is kept alive
// four times per TTL, and its time counts from before each request was sent. Etcd's
// answer alone is not enough: a leader that was cut off or paused does not know yet
// that it was replaced. It renews leases that its successor counts differently, and
// does not know leases that its successor has granted. So the client then reads the
// session's own key from a majority, and both answers have to come from the same
// term.
//
// All requests go to one member, on the backend's own connections. If that member
// does not answer within a tenth of Options.Timeout, the backend stops asking it and
// sends the request to the next member, which gets more time. So a request can be
// carried out twice, and at any later time. The members are those that the driver's
// client had when the Backend was made: later SetEndpoints and AutoSync do not count.
// Names are looked up anew for each connection, so a name may move to another address.
//
// A beat of a session has less time: a member that does not answer within a sixteenth of
// the TTL may wait for a leader that hangs, and the next one is asked at once. From then
// on, the question whether the session's key is there goes through the log, as a write
// that does nothing: a member of etcd 3.4 that has asked a hanging leader for a read keeps
// all reads waiting for some 6 s.
//
// A floor keeps others out where the key of a holder is gone. It is another key,
// NAME/!CLIENT.N or NAME/!sCLIENT.N, put with the grant while the first one is there, and
// deleted with it. No waiter has one, so any number of dead waiters leave nothing. With
// StrictExpiry, it is on no lease. The client that finds it alone puts it on one of the
// holder's TTL that nobody renews. No leader ends that one early: what a leader can have
// missed are renewals. The floors of dead sharers do not pile up: a sharer that comes and
// finds more floors than keys of sharers looks for them.
//
// MinHold has a floor of its own, NAME/!CLIENT.OWNER.N+, on a lease of that length from
// the grant on (1 % and a second longer, for the clocks of leader and holder). A grant
// that takes more than that second is given back. A lock that is released before its
// MinHold is over is kept: its key is deleted, and this floor is not. Neither the session
// nor the client has to live on. The lock is free up to three seconds after MinHold, or
// later if the leader changes, which makes the lease begin again. The names of such keys
// are never used again, since nobody knows for certain when they go.
//
// What can go wrong in the middle, and what covers it:
//
//   - The reply to an acquire is lost, or its caller cancels: the engine takes the
//     request back. A transaction deletes the key and leaves a void key,
//     PREFIX/1/lock/NAME/~OWNER, on the same lease. The acquire requires that the
//     void key is absent: if it arrives later, it does nothing. If the lease is gone,
//     an acquire under it fails. A session with many void keys is retired.
//   - The store is full: etcd then refuses what puts a key, perhaps after it has
//     put it. That is an answer, so the request will not come later, and the key
//     is deleted without a void one, which etcd lets through.
//   - There is no answer about the session for a TTL: the time of its holders is
//     over, and the backend tries to revoke it, for another TTL. Keys that are left
//     then go with the lease; the next session waits for them in the queues as for
//     any others.
//   - The backend is closed while locks are held: it tells their holders, and then
//     revokes the sessions.
//   - A release with MinHold gets no answer, or comes twice, or late: a second one finds
//     the floor, and changes nothing; after a removal it finds nothing. If the session
//     ends before it, the lock was lost, and the floor ends when it was to end.
//   - A floor is put late, after the release: that compares that the key is there. The
//     time of one begins late, or twice: that compares that the floor is as it was, and
//     that the key is not there.
//   - The backend is closed under holders with StrictExpiry: their floors are deleted once
//     the revocation was answered, and those of a MinHold stay.
//   - Two ask at once, of either kind: etcd carries out one transaction after the other,
//     and what each compares covers whatever is in its way. A sharer's request that
//     arrives twice finds its own key, also if a writer has come since, which is behind it.
//   - A waiter gives up or dies: its key is deleted, or goes with its session;
//     the next one reads the queue again and watches the one before.
//   - The session expires while one waits: its watch tells, or its next keep-alive,
//     and the waiter queues again, at the end. Having got to the
//     front it reads its own key before it believes it. A session whose own key was
//     deleted by hand is revoked, after its holders have been notified.
//   - A watch is refused or cancelled (compaction, a member without a leader, a token
//     that expired, a broken connection): the waiter looks, and watches again on a new
//     stream, which logs in again. The watch hangs with its member: the next
//     keep-alive finds that out, and the driver goes on with it at another. Each
//     waiter looks every 20 s or so, or once per TTL, and those of a session share requests.
//   - The key before was deleted between the reading of the queue and
//     the creation of the watch: it is read again after etcd has confirmed the watch.
//   - The leader changes: etcd keeps leases at least as long as without; requests that
//     fail have unknown outcomes and are taken back as above.
//
// # One cluster
//
// All endpoints have to belong to one cluster: in two, two clients would hold one lock. Every answer of
// etcd has its cluster's ID. Before its first grant, a Backend compares those of all endpoints that answer,
// and later that of each endpoint on each new connection. A second ID is refused with [driver.ErrRefused]
// and an error that names both endpoints; such an endpoint is never used. Endpoints that cannot be reached
// stay unchecked until they are to be used, so two clients that each reach a different cluster do not find
// out. "locker check" asks each endpoint several times, and so finds two clusters behind one balancer, too.
//
// A cluster that is restored from a backup has a new ID, and refuses the clients from before: stop all of
// them, restore it, and start them again, or make new Backends. Give the restored cluster an
// --initial-cluster-token of its own: the ID is made of that and of the peers' URLs, and with the old token
// and the old URLs it is the old one.
//
// # Access
//
// A URL is connected to directly: HTTPS_PROXY does not count. With [New], the client decides; give it
// grpc.WithNoProxy() for the same.
//
// With authentication on, a user needs a role with
//
//	etcdctl role grant-permission ROLE --prefix=true readwrite PREFIX/1/
//
// Tokens of users may expire at any time: the Backend logs in again, once for all the requests that need
// it, also at etcd 3.4, which refuses a login that carries an expired token. (There, the driver's own
// requests on a client that was given to [New] hang for ever once its token has expired, until the Backend
// has logged in.) If the password is changed or rights are taken away, holders are told when their time is
// over, and waiters within a TTL, with etcd's own words and not with [driver.ErrUnavailable]. A client has
// one password for as long as it lives.
//
// Certificates of servers may be replaced at any time. Those of clients count from the
// next connection on: with [New], if the tls.Config has GetClientCertificate; with a
// URL, when its files are replaced. A ca file is read once: while the authority
// changes, it has to have both.
//
// The oldest server that this is tested with is etcd 3.4 (3.4.23), the newest 3.7.
//
// # URLs
//
//	etcd://[user:password@]host[:port][,host[:port]…][/PREFIX]
//	etcds://…    the same over TLS
//
// The port is 2379 and PREFIX is locker if not given. Parameters beside the
// common ones of locker.Open:
//
//	timeout        the longest wait for one answer; default 3s
//	members        Options.Members; asked of etcd if not given
//	strict_expiry  Options.StrictExpiry: true or false, the default; with true,
//	               MaxTTL is ttl, or 30 s if that is more
//	ca             a PEM file: the authorities to trust (TLS only)
//	cert, key      PEM files: the client's certificate and key (TLS only)
//	server_name    the name to expect in the server's certificate (TLS only)
package etcd
