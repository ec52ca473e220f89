// Package nats keeps locks in a key-value bucket of NATS JetStream: each lock is a record there, which package cas
// reads and replaces.
//
//	client, err := locker.Open(ctx, "nats://host:4222,host/bucket", nil, nats.Openers)
//
// Create the bucket beforehand, for locks alone, with as many replicas as the cluster allows:
//
//	nats kv add locks --replicas=3
//
// A bucket that forgets records is refused, and so is a mirror or one with sources, whose reads may be
// stale. All reads go to the leader of the bucket's stream, even if the bucket allows replicas to
// answer. (A leader that was cut off and does not know it yet may return old data for some seconds:
// waiters then wait longer, and a Swap under an old version fails.) When a leader fails, the cluster
// needs some ten seconds to elect another, during which no lease is renewed: use a TTL of 30 s. A
// client that gets no service from its server for two seconds moves to another one. The parameters of
// the URL are
//
//	credentials  a .creds file; or write user:password@ or token@ before the host
//	timeout      how long one request may take; default: that of package cas
//	ca           with natss://: a PEM file with the authorities to trust; default: those of the system
//	cert, key    with natss://: PEM files with the client's certificate and its key
//	server_name  with natss://: the name to expect in the server's certificate; default: the host
//
// and those that locker.Open lists. A program with its own connection calls [New]. That connection must
// not buffer what it cannot send (nats.ReconnectBufSize(-1)).
//
// The user needs permission to publish to $KV.bucket.>, $JS.API.STREAM.INFO.KV_bucket and
// $JS.API.STREAM.MSG.GET.KV_bucket, and to subscribe to _INBOX.>. Waiters poll twice a second: a
// consumer for each of them would cost the server more than their reads.
//
// NATS syncs confirmed writes to disk later, by default within two minutes. A killed server loses
// nothing; after a power failure, a lock may be granted twice and tokens may repeat, unless other
// replicas survive or the server's sync_interval is always.
package nats
