// Package single keeps locks in one Redis, or one Valkey: SET NX PX in effect,
// with a release that checks its owner, a fencing token in the same round trip,
// and waiters that are told of a release.
//
// "One Redis" is one server at a time that decides: a standalone server, the
// master that Sentinel names, or the master of the shard of a Redis Cluster on
// which the lock's key lives. For a lock that outlives the loss of a server,
// see package redlock, or etcd and zookeeper.
//
// # What it promises
//
// While that server keeps running, keeps its data and keeps its clock, no two
// clients hold a name at once, up to the end of each lease ([locker.Lease.Until]);
// a dead holder's lock is free after its TTL; and every token is greater than
// those before it.
//
// # What it does not promise
//
//   - A restart without persistence forgets held locks, and so does FLUSHALL.
//     Tokens still rise afterwards, since they are never lower than the server's
//     clock in microseconds; but if that clock is set back too, they may not.
//   - A fail-over (Sentinel, Cluster) can lose a lock: replication is
//     asynchronous, the new master may not have the key. Options.Replicas
//     narrows the window and does not close it.
//   - A step of the server's wall clock moves expiry: forward, it frees locks
//     early, and two may hold; back, it keeps dead holders' locks longer.
//   - A server that runs out of memory with any maxmemory-policy but noeviction
//     may throw lock keys away. The backend looks once, where it is allowed to,
//     and warns.
//   - Waiters of different clients get the lock in no particular order.
//   - A holder that is paused past its lease can still act: check
//     [locker.Lease.Token] at the resource (package fencing).
//
// # Keys
//
// All keys of a lock share a hash tag and so a shard: locker:1:{name} is the
// lock, with the owner and the holder's label as its value; locker:1:{name}:fence
// the token counter, which expires a day after its last use (see
// Options.KeepTokens); :wait notes that somebody waits, until two seconds after
// the holder's TTL; :void:… that a request was given up and is refused should it
// still arrive, for the TTL or a minute, whichever is longer. The 1 is the
// version of this layout. In names, %, { and } are written %25, %7B, %7D.
//
// # Access
//
// The oldest servers that work are Redis 6.2 and Valkey 7.2. A user needs this
// much of an ACL:
//
//	ACL SETUSER locker on >password ~locker:1:* &locker:1:* +@connection +eval +evalsha +script|load
//	    +mget +set +del +exists +pexpire +pttl +time +publish +spublish +subscribe +unsubscribe
//	    +ssubscribe +sunsubscribe +wait
//
// Beside that, the look at the eviction policy and [Backend.Check] need +info, and
// [Backend.List] needs +scan.
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
// More addresses can also be given as addr=host:port, more than once, as
// go-redis has it. Parameters beside the common ones of [locker.Openers.Open]:
//
//	db                 the database, as the path
//	timeout            the longest wait for one answer; default 3s
//	replicas           Options.Replicas
//	replica_timeout    Options.ReplicaTimeout
//	keep_tokens        Options.KeepTokens: on or off
//	ca, cert, key      PEM files: the authority to trust, the client's certificate and key (TLS only)
//	server_name        the name to expect in the server's certificate (TLS only)
//	sentinel_username, sentinel_password    credentials for the Sentinels themselves
//
// go-redis writes to standard error when it cannot connect. What it writes of a
// client that Open made names no host, but those of Sentinels and of a Cluster's
// nodes: redis.SetLogger, which is the program's to call, stops that.
package single
