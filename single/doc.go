// Package single keeps locks in one Redis, or one Valkey. It works like SET NX PX,
// with a release that checks the owner, a fencing token in the same round trip, and
// wake-ups for waiters at a release.
//
// "One Redis" means that one server at a time decides: a standalone server, the
// master that Sentinel names, or, in a Redis Cluster, the master of the shard with
// the lock's key. For a lock that survives the loss of a server, see package redlock,
// or etcd and zookeeper.
//
// # What it promises
//
// While that server keeps running, keeps its data, and its clock makes no step: no
// two clients hold a name at once, up to the end of each lease
// (locker.Lease.Until); the lock of a dead holder is free after its TTL; and every
// token is greater than all earlier tokens.
//
// Those who share a lock (locker.Shared) have one token, and nobody holds the lock alone
// beside them. Each of them ends by itself, by the server's clock. A writer that waits leaves
// a note that keeps new ones out; it lasts for a second, and is renewed while the writer waits.
//
// # What it does not promise
//
//   - A restart without persistence forgets held locks, and so does FLUSHALL. Tokens
//     still rise afterwards, since they are never lower than the server's clock in
//     microseconds, unless that clock is set back too.
//   - A fail-over (Sentinel, Cluster) can lose a lock: replication is asynchronous,
//     so the new master may not have the key. (Redis' WAIT would not change that: a replica
//     that has the key need not be the one that takes over.)
//   - A step of the server's wall clock moves expiry. A step forward frees locks
//     early, and two may hold. A step back keeps the locks of dead holders for
//     longer.
//   - A server that runs out of memory may evict the keys of locks, with any
//     maxmemory-policy except noeviction. Open reads this setting, if it has the right
//     to, and warns; so does [Backend.Check].
//   - A proxy that spreads keys over several servers, other than as a Redis Cluster,
//     is not one Redis: its servers refuse the scripts.
//   - A load balancer in front of several independent servers is not one Redis either, and nothing refuses
//     it: two clients get the same lock. [Backend.Check] compares the run_id on 16 new connections. It
//     cannot where the user may not run INFO, and sees one server where the balancer chooses by the
//     client's address.
//   - Waiters of different clients get the lock in no guaranteed order. Busy clients
//     take turns, except on a Cluster; one that has no connection for wake-ups has no turn. Of several writers that wait for
//     sharers to end, any may be the first, and new sharers may come between two of them.
//   - Releases of this package without shared locks take a lock that is shared for one that is
//     held, and leave no note while they wait for it.
//   - While a Cluster moves the slot of a name, some of whose keys are on the one shard and some on the other, the
//     name can be neither locked nor unlocked (TRYAGAIN): for half a second that is waited for, then the error
//     matches ErrUnavailable. A lease whose renewals fail for so long ends in time.
//   - A release that had to be sent twice, since its first answer was lost, answers nil although the lock may have
//     been lost before: the second copy cannot tell the first one's work from a loss. A holder that must
//     know relies on the lease's validity (locker.Lease.Until).
//   - A holder that is paused past its lease can still act: check
//     locker.Lease.Token at the resource (package fencing).
//
// # Keys
//
// All keys of a lock share a hash tag, and so a shard. locker:2:{name} is the lock, with its token, the
// owner and the holder's label as its value, and "kept" in a second line once its holder has released
// it while a MinHold keeps it; or "turn" and a client, for the 200 ms for which it is kept for that
// client; or "shared", a token, and the note of a writer that waits. :shared is a sorted set of those
// who share it, or have a MinHold there, with the time in ms at which each of them ends. It and
// "shared" stay for a second after the last one that died, and are then in nobody's way. :wait says
// which clients wait, until two seconds after the holder's TTL; each listens on the channels :wake and
// :wake:CLIENT. :void:… makes a request void that was
// given up, should it still arrive; it lasts for the TTL, for MinHold or for a minute, whichever is
// longest. In names, %, { and } are written %25, %7B, %7D.
//
// locker:2:tokens, without expiry, is the counter of tokens: one for all names, on a
// Cluster one for the names of each slot (locker:2:tokens:{N}). So
// locker.Lease.RaiseToken raises the tokens of all of them. The 2 is the version of
// this layout.
//
// # Connections that end
//
// A server with an idle limit, a load balancer, a fail-over, a new certificate and a
// new address all close connections, and a NAT can make one silent. A request whose connection was
// closed without an answer is sent again, at once, on a new connection. One that is not answered within
// 100 ms, or four times what answers take, is sent again on new connections beside the
// first; a server that does not answer them either gets no copy. Requests are made so that a second
// copy does no harm. If the client has a CredentialsProvider and the server refuses the
// password, the provider is asked once more. A fixed password that is wrong is an error at once.
//
// All copies of a request but a renewal go to one run of the server: after a restart or a fail-over, a second copy
// could be granted what the first one was not. So a Backend asks which run answers (run_id, in INFO), and
// the texts of its scripts name that. Where the user may not run INFO, which is tried again after half a minute, there
// are no copies except of renewals: a request that meets a connection which has ended fails, and the engine asks anew.
//
// Give New a client of its own, with a connection pool of its own, as Open does. Where the program's own
// requests use up the pool, or block its connections (BLPOP, long scripts), renewals wait for one, and
// leases are lost.
//
// A server that has as many clients as its maxclients allows says so and hangs up. For a client that Open
// made, the error has its words; others report what the driver makes of it, such as "write: broken pipe".
// Over TLS the server hangs up without a word.
//
// # Hooks
//
// A Backend sends many requests by way of copies of its client, with timeouts of its own
// (WithTimeout) or with connections of their own, and the driver's copies have no hooks: those of the client
// see some requests, and not all. To trace or count what is locked use locker.Trace, or package
// observe; to count what is sent, INFO commandstats.
//
// # A server that is not to be trusted
//
// The driver believes the lengths in a server's answers. A program at the server's
// address that is no Redis can send one at which the driver panics: a Backend takes
// that for a broken connection, except on a Cluster, where the driver reads in
// goroutines of its own. And it can send a length for which there is not enough
// memory, which ends the program. Use TLS where others can get between.
//
// # Access
//
// The oldest servers are Redis 7.0 and Valkey 7.2. A user needs this much of an ACL:
//
//	ACL SETUSER locker on >password ~locker:2:* &locker:2:* +@connection +eval +evalsha +info
//	    +mget +set +del +exists +pexpire +pttl +time +publish +spublish +subscribe +unsubscribe
//	    +ssubscribe +sunsubscribe +zadd +zrem +zrange +zscore +zcount +zremrangebyscore
//
// The commands that begin with z are for shared locks alone.
//
// A user that is to have some names alone, as with ~locker:2:{app/*, needs
// ~locker:2:tokens* beside them, and can then raise everybody's tokens. Open asks for a
// name with the prefix of its URL, prefix=app/.
//
// Without +info, requests are not sent again ("Connections that end"). In addition, reading the eviction policy and
// [Backend.Check] need +config|get, and [Backend.List] needs +scan. Check names the rights that are missing. Since
// Redis 7, new users have no right to any channel: then waiters are not woken by a release, and ask again and again.
//
// # URLs
//
//	redis://[user:password@]host[:port][/db]               one server; the port is 6379 if not given
//	rediss://…                                             the same over TLS
//	unix://[user:password@]/path/to/redis.sock             a unix socket
//	redis+sentinel://[…@]host:port,host:port[/db]?master_name=NAME    the Sentinels
//	redis+cluster://[…@]host:port,host:port                some nodes of a Cluster
//	rediss+sentinel://…, rediss+cluster://…                over TLS
//
// Parameters beside the common ones of locker.Open:
//
//	db                 the database, as the path
//	timeout            the longest wait for one answer; default 3s
//	ca, cert, key      PEM files: the authority to trust, the client's certificate and key (TLS only)
//	server_name        the name to expect in the server's certificate (TLS only)
//	sentinel_username, sentinel_password    credentials for the Sentinels themselves
//
// go-redis writes to standard error when it cannot connect. For a client that Open
// made, it names no host except those of Sentinels and of a Cluster's nodes. The
// program can stop this with redis.SetLogger.
package single
