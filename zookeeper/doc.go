// Package zookeeper keeps locks in a ZooKeeper service of one server or an ensemble.
// It follows ZooKeeper's own recipe, with ephemeral sequential nodes and one queue
// per lock, and also does the work that the recipe leaves to its user.
//
//	b, err := zookeeper.New([]string{"zk1:2181", "zk2:2181", "zk3:2181"}, nil)
//	client, err := locker.New(b, nil)
//
// # What it promises
//
// No two clients hold a name at once, up to the end of each lease (locker.Lease.Until): while a minority of servers is
// down, through a change of leader, and through a restart of all servers that is shorter than the lease. Waiters of all
// clients get the lock in the order in which their nodes were created; a release wakes one of them. A holder is notified
// when somebody deletes its node or its session ends, and, when this client ends the session, before the next holder
// gets in.
//
// Each lease has a fencing token: the czxid of its node, plus whatever tokens were raised by. Tokens of one name rise in
// the order in which the lock was requested, which is the order in which it is granted. Across two names, the later
// holder can have the lower token, since it may have waited for a long time.
//
// # The TTL is the session's
//
// All locks of a session last as long as the session: the TTL of every lock of a [Backend] is Options.SessionTimeout,
// 30 s by default. A longer TTL is refused with errors.ErrUnsupported. A shorter one has no effect: the lock of a dead
// holder becomes free after the session's timeout and a little more time that the servers need (DeadHolderSlack in
// [Guarantees] includes both). For several TTLs, make several Backends. The servers have bounds of their own, by default
// two and twenty ticks. If they shorten the timeout, TTLs above the granted timeout are refused. A lock cannot outlast
// its session, so a MinHold is refused with errors.ErrUnsupported.
//
// One write every tenth of the timeout keeps a session alive, for all its locks together: renewing a lease costs no
// request. A lease is valid for less than the timeout, because the age of the last write that is proven to count is
// subtracted. While the servers answer, locker.Lease.Until of a new lease is half of the timeout ahead or a little more,
// and renewals keep it at a third or more. If they have not answered for a quarter of the timeout, or less than a
// quarter of it is left, the backend grants and renews nothing.
//
// # Many locks need several connections
//
// When a session ends, the service makes one transaction that lists the paths of all its nodes. If that is longer than
// 2 × jute.maxbuffer (2,097,150 bytes by default), no server can read it, and the service is lost for all its users,
// even after a restart (ZOOKEEPER-4306). So a Backend counts the paths of its holders and waiters, and opens another
// session, on a connection of its own, for each 255 KiB of them: some 2,300 locks with names of 40 bytes, or 480 with
// names of 480 bytes. 20,000 locks needed 9 and 42 sessions. If the servers refuse another connection (maxClientCnxns),
// locks beyond that fail with ErrUnavailable and an error that says why, until others are released. Two dangers remain:
// servers with a jute.maxbuffer below 128 KiB, and sessions of other programs with too many nodes.
//
// When the connections break, all waiters go on waiting soon after there are new ones: 10,000 waiters of one client
// within a minute, by test (0.6 s, measured on two busy cores).
//
// A session that nobody uses any more ends after one more timeout: a client that neither holds nor waits costs the
// servers nothing, and its next request opens a session again, which takes a connection and some four requests.
//
// # Shared locks
//
// A sharer (locker.Shared) has a node of its own in the same queue, with another mark. Only the writers before it keep
// it out, and a writer waits until everything before it is gone. So a waiting writer keeps out readers that come later,
// and the readers between two writers get in together. A waiting writer that has died is in their way until its session
// ends. Shared leases have no tokens: the czxids of those that hold together differ, and finding a number that they have
// in common would take one more request. A writer that waits for many readers watches one of them at a time, the last;
// each waiting reader watches the same writer, and reads the queue once when it goes. Beyond [driver.MaxSharers] that
// share a name or wait to, a sharer is refused.
//
// # What it does not promise
//
//   - If the list has servers of two ensembles, two clients can hold a lock, one in each, and no client notices, since a
//     session stays in one of them. "locker check" finds it.
//   - Servers that lose written data (a disk that lies, forceSync=no and a power failure) or are set back to a backup
//     can grant a lock to a second holder, and can issue tokens again.
//   - A session timeout below three ticks of the servers leaves no time for a leader that is late. At two ticks,
//     ZooKeeper's minimum, a follower that is cut off at the wrong moment can break exclusion.
//   - If somebody removes by hand the node of a session while the client is cut off, and one of its locks has no node
//     either (somebody has removed that too, or it was just released), the client can conclude too early that the service
//     has ended the session. Its other locks then stay for up to one more session timeout.
//   - A holder that is paused past its lease can still act: check locker.Lease.Token at the resource (package fencing).
//   - TryLock looks first, and joins the queue only if it is empty. Two callers that look at the same moment may both be
//     refused.
//   - A process that dies after creating a lock's container and before creating its own node leaves the container
//     behind until its next use: the service keeps a container that never had a node.
//   - Inspect and List say since when a lock has been held only if nobody has come or left since it was granted, or once
//     it has been held for a second: its node is marked then, which costs one write. They cannot say how long it lasts.
//
// # Nodes
//
//	/locker                                     Options.Prefix
//	/locker/%beat-<random>                      one for each session: the heartbeat writes to it
//	/locker/<name>                              the lock, a container: the service removes it when it is empty
//	/locker/<name>/<owner>-lock-<sequence>      holder and waiters in their order, with their labels
//	/locker/<name>/<owner>-read-<sequence>      the same, for sharers
//	/locker/<name>/%tokens                      what is added to the czxids, once tokens were raised
//
// locker.Lease.RaiseToken makes %tokens, a lasting node, in a transaction that fails if the holder's node is gone. The
// next waiter finds %tokens in the queue when it is the first, and reads it. A name whose tokens were never raised pays
// nothing. Otherwise, each lock costs two more reads (without contention, locking and unlocking took twice as long), and
// the name keeps its container, so that its sequence number does not start again: it lasts for 2³¹ locks in all. To
// delete %tokens by hand sets the tokens back.
//
// In names, % and / and everything that is not printable ASCII are written as % and two hexadecimal digits per byte. With
// [Node], locker.Lease.As returns the node of a lease.
//
// # What can come between
//
// Each item is an interleaving and what makes it harmless; the tests make them happen on real servers.
//
//   - The answer to a create is lost, or the caller gives up while it is in flight: the node has the random owner of its
//     attempt. On the next connection, after a sync, the backend looks for it and deletes it, until it has an answer.
//   - The create arrives late: a server drops a connection that the session has left, and the leader refuses what a
//     server passes on for a session that has moved or ended. So nothing arrives after the session's next connection, on
//     which the look that counts is made. The driver would open a new session and go on, but gets no server for it.
//   - A node of an older session, or of anybody else, has the attempt's owner: it is deleted, never used.
//   - The session connects to a server that is behind: only after a sync does a missing node count as missing. A node
//     that is gone cannot come back, so a stale look never shows a place in the queue that is too good.
//   - A waiter is canceled at any step: its node is deleted in the background. Its watch is on the node ahead, lasts
//     only as long as that node, and is used again by the next wait.
//   - The node ahead belongs to a waiter that gave up, or to readers that come and go: the queue is read again after each
//     wake-up, on a new connection, and a few times an hour without any reason.
//   - Somebody removes a waiter's node: the waiter does not find it when it reads the queue, and takes no lock.
//   - The session expires during a wait: the attempt ends with ErrUnavailable. In a shorter outage, a waiter keeps its
//     place in the queue.
//   - The holder, its server or the network stops: the lease ends at its deadline, which only an answered heartbeat
//     moves. A follower may acknowledge a heartbeat and be cut off before the leader knows of it: the deadline counts
//     from one that is proven to have reached the leader.
//   - The leader changes: sessions count anew from the change, so no deadline is too late. A disconnection alone is no
//     loss.
//   - A server accepts and does not answer: a greeting or heartbeat without an answer for a quarter of the timeout (at
//     most 5 s) makes the session try another server. Where there are others, a greeting has 1 s, and twice as long each
//     time that its server hangs; others that have no quorum are asked in between, since an election may end. All are
//     dialed at nearly the same time, those that failed last at the end, until one takes up the session.
//   - The heartbeats are refused, since somebody has changed the ACL of the session's node: leases end at their
//     deadlines, and then the backend ends the session, which the driver would keep alive.
//   - Somebody removes the session's node: the next heartbeat creates it again.
//   - A release gets no answer: it is repeated in the background until the node is gone.
//   - The container is removed between two requests: it is created again. If the caller gives up then, its node is
//     created and deleted all the same, so that the service removes the container.
//   - The sequence number would roll over, after 2³¹ locks of one name that was never free for the minute in which its
//     container is reaped: servers since 3.6 stop counting there. The name is refused shortly before (ErrRefused) until
//     an operator has removed its container.
//
// # Access
//
// With credentials (Options.Auth, mostly digest), only clients with the same credentials have rights on the nodes;
// without credentials, everybody has. If others have created the node Options.Prefix, the right to create is enough
// there.
//
// A Backend keeps the credentials that it was made with. To replace a credential, first give all clients the old one and
// the new one (auth and auth2): their nodes are for both. Then give both the nodes that have lasted (setAcl -R on
// Options.Prefix, as auth::cdrwa with both added). Then give all clients the new one alone.
//
// # URLs
//
//	zookeeper://host:2181,host:2181/prefix?ttl=30s&auth=digest:user:password
//	zookeepers://…        over TLS
//
// The default port is 2181, and the default prefix /locker. ttl is the session's timeout. Parameters in addition to the
// common ones of locker.Open:
//
//	auth               a credential as scheme:credential; auth2: one more
//	ca, cert, key      PEM files: the authority to trust, the client's certificate and key (TLS only)
//	server_name        the name to expect in the servers' certificates (TLS only)
//
// # Servers
//
// ZooKeeper 3.8 is the oldest supported version; tests run with that and with 3.9. Before 3.5 there are no containers,
// and locks are refused. A server's limit of connections per host (maxClientCnxns) is 60 if it is not set: each process
// that locks needs one, and more for thousands of locks. jute.maxbuffer must be 128 KiB or more. Local sessions
// (localSessionsEnabled) need localSessionsUpgradingEnabled.
//
// An ensemble can be rolled to another version, and its members replaced, while locks are held: one member at a time,
// the next when the last one follows. With a session timeout longer than an election, no lease is lost. The list of
// servers is fixed when a Backend is made. Host names are looked up for each connection, so a name may move to another
// address. If the names change, make new Backends with the new list before the last server of the old one goes; clients
// with either list share the locks.
package zookeeper
