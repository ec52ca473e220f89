// Package etcd keeps locks in etcd v3. Each name has a queue of keys, ordered by their create revisions. The keys
// are attached to etcd leases: each client has one session per TTL, which keeps its lease alive.
//
// # What it promises
//
// As long as etcd keeps its data, no two clients hold a name at once, up to the end of each lease
// (locker.Lease.Until); the one exception is a leader that pauses for longer than a TTL, see below. All clients'
// waiters get a name in the order in which they asked. Tokens are etcd's revisions, plus what they were raised by.
// Each token of a name is greater than all earlier ones of that name; across names, tokens rise in the order in which
// the locks were requested. A held lock survives the loss of a minority of the members, a change of leader, and a
// restart of all members, as long as they are back with their data before the session's time is up. Writes to the
// same etcd can be fenced in their own transactions: see [Held].
//
// # Shared locks
//
// Each sharer (locker.Shared) has a key of its own in the same queue. It waits for exclusive places ahead of it, and
// an exclusive request waits for everything ahead of it. So a waiting writer keeps out readers that come later,
// the readers between two writers get in together, and a waiting writer that has died is in the way until its session
// ends. Getting a free name, or one that others share, takes one transaction.
//
// Shared leases have no tokens, because the revisions of sharers that hold together differ; [Held] fences them all the
// same. At most [driver.MaxSharers] can hold a name; each one makes joining some 0.2 µs slower, because etcd counts
// them. A writer watches only the last key ahead of it and reads the queue again when that is gone: about ln n times
// for n readers that leave in any order.
//
// # What it rests on
//
//   - The clocks of the leader and the holder run at the same speed, within 1 % + 2 ms. They need not show the same
//     time: members count leases by monotonic clocks and store what remains of a lease, never a time of day. (The
//     conformance suite proves this with an etcd whose wall clock can be set: testdata/clock/build.)
//   - Members keep the data that they have confirmed, as Raft requires. A disk that lies about fsync, --unsafe-no-fsync
//     with a power failure, or a member that is re-created under its old name without its data breaks the promise.
//   - For tokens: a backup is restored only with --bump-revision. Otherwise revisions go back.
//
// # What it does not promise
//
//   - The lock of a dead holder is free when the granted TTL has passed, or up to a second later. The granted TTL is
//     the requested one, rounded up to seconds, and at least etcd's minimum (1.5 election timeouts: 2 s by default). A
//     change of leader starts it again.
//   - A leader that was paused for longer than a TTL (a frozen virtual machine) believes that all leases have expired,
//     although its successor kept them alive, and revokes them. The next holder then gets in. A watch notifies the
//     earlier holder, mostly within a millisecond, but not if that holder is cut off: then the two overlap for up to a
//     TTL. Options.StrictExpiry (strict_expiry=true) rules this out. Its price is one more write per lock, and that a
//     dead holder's lock is free only one TTL after somebody finds its lease gone, so after two TTLs in the worst case.
//     It is off by default because such pauses are rare, fencing tokens cover them too, and holders die often. Clients
//     with and without it can be mixed.
//   - If somebody deletes a holder's key by hand, the holder learns of it with its next renewal, within a third of the
//     TTL. The next holder may be in by then.
//   - A holder that is paused past its lease can still act: check locker.Lease.Token at the resource (package fencing).
//
// # Keys
//
//	PREFIX/1/lock/NAME/CLIENT.N    a place in the queue of NAME; sCLIENT.N for a sharer
//	PREFIX/1/lock/NAME/!CLIENT.N   a floor: it keeps others out when the place is gone
//	PREFIX/1/lock/NAME/~OWNER      a void key: the request of that owner does nothing when it arrives
//	PREFIX/1/lock/NAME/~/tokens    what RaiseToken adds to later create revisions; deleting it sets tokens back
//	PREFIX/1/session/LEASE         a session's own key
//
// The 1 is the version of this layout. In NAME, % and / are written %25 and %2F. A prefix that contains /1/lock is
// refused, because its keys would be in the queues of a shorter prefix. A place's value begins with its owner, which is
// new for each attempt, and every removal compares it. The names of keys are used again once no request that puts them
// can be in flight: etcd keeps deleted keys in its index until compaction, and each adds 0.1 µs to every reading of the
// queue, in the one thread that applies all writes.
//
// # Sessions and requests
//
// A session's lease is renewed four times per TTL, and its time counts from before each request was sent. The answer
// alone proves nothing: a leader that was cut off or paused may not know that it was replaced. So the client then reads
// the session's key from a majority, and both answers must come from the same term.
//
// All requests go to one member, over the backend's own connections. If it does not answer within a tenth of
// Options.Timeout, the request is sent to the next member, which gets more time. So a request may be executed twice,
// and at any later time. A session's beat waits for only a sixteenth of the TTL, because the member may be waiting for a
// leader that hangs; from then on the majority is asked with a write that does nothing, because a member of etcd 3.4 that
// has asked a hanging leader for a read keeps all reads waiting for some 6 s. The members are those that the client had
// when the Backend was made: later SetEndpoints and AutoSync are ignored. Names are looked up for each connection.
//
// # Floors
//
// A floor is put with the grant, while its place is there, and deleted with it. Waiters have none, so dead waiters leave
// nothing behind.
//
// The floor of StrictExpiry is on no lease. Whoever finds it without its place moves it to a lease of the holder's TTL
// that nobody renews; no leader ends that early, because what a paused leader has missed is renewals. The time of a dead
// sharer begins when it is found: by a writer directly behind it, by one that tries, by a sharer that comes when more
// are dead than alive, and by any writer once the living have left.
//
// MinHold has another floor, whose name ends in +, on a lease that is longer than MinHold by 1 % and a second. A grant
// that takes longer than that second is given back. Releasing a lock before MinHold has passed deletes the place and
// leaves this floor, which needs neither the session nor the client. The lock is free up to three seconds after MinHold,
// or later if the leader changes, which starts the lease again. If the client stands still between etcd's answer and its
// caller's, the release has the floor last longer; a lock that is lost before ends with MinHold after etcd's grant.
//
// # What can go wrong, and what covers it
//
//   - The answer to an acquire is lost, or its caller gives up: the engine takes the attempt back. One transaction
//     deletes the place and puts a void key on the same lease; the acquire compares that the void key is absent. Once the
//     lease is gone, acquires under it fail. A session with many void keys is retired.
//   - The store is full: etcd refuses the put, perhaps after executing it. That is an answer, so nothing will arrive
//     later, and the place is deleted without a void key, which etcd lets through.
//   - Nothing is heard of a session for a TTL: its holders' time is up, and the backend tries to revoke it for another
//     TTL. What is left goes with the lease; the next session waits for it like any other client.
//   - The backend is closed, or a session's own key is deleted by hand: holders are notified, and then the session is
//     revoked. At Close, the floors of StrictExpiry are deleted once that was answered; those of MinHold stay.
//   - A floor's put arrives after the release: it compares that the place is there. A floor is moved to a lease late or
//     twice: that compares that the place is absent and the floor unchanged.
//   - A waiter's session expires: it queues again, at the end. At the front, it reads its own key before it believes it.
//   - A watch fails or misses the deletion: the waiter looks, when etcd has confirmed the watch, when it has failed, and
//     every 20 s or once per TTL, in requests that many waiters share. A new watch goes to a new stream, which logs in again.
//   - The leader changes: etcd keeps leases for longer then; failed requests are taken back as above.
//
// # One cluster
//
// All endpoints must belong to one cluster: with two, two clients could each hold the lock in one of them. Every answer
// names its cluster. Before its first grant a Backend compares all endpoints that answer, and later each endpoint on each
// new connection. A second cluster is refused with [driver.ErrRefused] and an error that names both endpoints. Endpoints
// that cannot be reached are compared before they are used, so two clients that each reach a different cluster do not
// notice. "locker check" asks each endpoint several times, to find two clusters behind one balancer as well.
//
// A cluster restored from a backup has a new ID and refuses earlier clients: stop all of them, restore, and start them
// again. Give it a new --initial-cluster-token: with the old token and peer URLs it would have the old ID.
//
// # Access
//
// URLs are connected to directly, whatever HTTPS_PROXY says. With [New], use grpc.WithNoProxy() for the same. With
// authentication, the user needs a role with
//
//	etcdctl role grant-permission ROLE --prefix=true readwrite PREFIX/1/
//
// Users' tokens may expire at any time: the Backend logs in again, once for all requests that need it, also at etcd 3.4,
// which refuses a login that carries an expired token (the driver's own requests hang there). After a change of password
// or rights, holders are told when their time is up and waiters within a TTL, with etcd's words and not as
// [driver.ErrUnavailable]. Certificates may be replaced at any time; a client's count from its next connection on (with
// [New], through tls.Config.GetClientCertificate). A ca file is read once, so while the authority changes it must
// contain both.
//
// The oldest tested server is etcd 3.4.23, the newest 3.7.
//
// # URLs
//
//	etcd://[user:password@]host[:port][,host[:port]…][/PREFIX]
//	etcds://…    the same over TLS
//
// The default port is 2379 and the default PREFIX is locker. Parameters besides the common ones of locker.Open:
//
//	timeout        the longest wait for one answer; default 3s
//	members        Options.Members; asked of etcd if not given
//	strict_expiry  Options.StrictExpiry: true or false, the default; with true, MaxTTL is ttl, or 30 s if that is more
//	ca             a PEM file: the authorities to trust (TLS only)
//	cert, key      PEM files: the client's certificate and key (TLS only)
//	server_name    the name to expect in the server's certificate (TLS only)
package etcd
