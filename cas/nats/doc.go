// Package nats keeps locks in a key-value bucket of NATS JetStream: each lock is a record there, which package cas
// reads and replaces.
//
//	client, err := locker.Open(ctx, "nats://host:4222,host/bucket", nil, nats.Openers)
//
// The bucket is made beforehand, for locks alone, with as many replicas as the cluster can have:
//
//	nats kv add locks --replicas=3
//
// A bucket that forgets records is refused, as is a mirror, or one with sources: its reads may be stale. All reads go to
// the leader of the bucket's stream, also where the bucket allows replicas to answer. (One that was cut off and does
// not know it yet may tell what was, for some seconds: who waits waits longer, and no Swap under what it tells
// succeeds.) When a leader fails, its cluster needs some ten seconds to elect another, in which no lease is renewed:
// give locks a TTL of 30 s. A client whose server serves nothing for two seconds goes to another one. The parameters of
// the URL are
//
//	credentials  a .creds file; or write user:password@ or token@ before the host
//	timeout      how long one request may take; default: that of package cas
//	ca           with natss://: a PEM file with the authorities to trust; default: those of the system
//	cert, key    with natss://: PEM files with the client's certificate and its key
//	server_name  with natss://: the name to expect in the server's certificate; default: the host
//
// and those that locker.Open lists. A program that has a connection calls [New]. That connection must not keep what it
// cannot send, for later (nats.ReconnectBufSize(-1)).
//
// The user needs these rights: to publish $KV.bucket.>, $JS.API.STREAM.INFO.KV_bucket and
// $JS.API.STREAM.MSG.GET.KV_bucket, and to subscribe _INBOX.>. Waiters ask, twice a second: a consumer for each of them
// would cost the server more than their reads.
//
// NATS writes what it has confirmed to its disk later, by default within two minutes. Servers that are killed keep
// everything; where a machine loses power, a lock may be given out twice and tokens may repeat, unless other replicas
// go on or the server's sync_interval is always.
package nats
