// Package redisguard accepts writes to a Redis only from the latest holder of a lock:
// one script, which the server runs as one step, compares the fencing token, moves
// the mark and writes.
//
//	var pay = redisguard.NewScript("return redis.call('SET', KEYS[1], ARGV[1])")
//	…
//	guard, err := redisguard.New(client, nil)
//	…
//	err = fencing.Do(ctx, locks, "orders/42", func(ctx context.Context) error {
//		token, err := fencing.TokenFor(ctx, "orders/42")
//		if err != nil {
//			return err
//		}
//		return guard.Run(ctx, "orders/42", token, pay, []string{"{orders/42}:state"}, "paid").Err()
//	})
//
// [Guard.Run] puts the guard before any Lua script of the caller; [Prelude] is the text
// of the guard, for other drivers and languages. The lock may be of any backend.
//
// # Keys
//
// The mark of a resource is a key of its own; see [Guard.MarkKey]. On a Redis Cluster
// one script writes keys of one hash slot only, so all written keys have to share the
// slot of the mark. They do if they are named after the resource: for the resource
// orders/42 the keys orders/42, {orders/42}:state and so on; for a resource with a
// {tag} in its name all keys with the same tag. For a *redis.ClusterClient, other keys
// are refused before anything is sent. Elsewhere a script may write any keys; name them
// so all the same in a program that may move to a Cluster.
//
// # Scripts that fail
//
// The script compares, moves the mark, and writes, in this order. Redis runs it with
// nothing in between, and passes it to replicas and to the append-only file as one
// transaction. But Redis does not roll back a script that fails in the middle. So:
//
//   - A refused token changes nothing. Neither does a server that cannot take writes
//     (no memory, read-only, too few replicas), nor a user without the right to write
//     the mark: the mark comes first, and fails first.
//   - A script that fails by an error that it raises (error, a failed redis.call) or
//     returns (redis.error_reply) has passed the guard: the mark has moved and stays,
//     and so does everything that the script wrote before. In the other order, there
//     would be writes without a mark, which a lower token could overwrite.
//
// A script that has to write all or nothing checks everything that can make it fail
// before its first write.
//
// # Lost answers
//
// A Guard makes the driver send each request once, whatever its MaxRetries is. If the
// connection is closed without an answer, Raise repeats its request, since it may be
// carried out twice; Run does not. A request without an answer may also arrive
// late. It is refused if a higher token came before it. Otherwise it passes: a guard does
// not order the writes of one holder. A holder that has to be sure acquires the lock
// again, and so gets a higher token.
//
// # What it does not protect
//
//   - When a mark is gone, a token of any age passes. A mark goes when it was not used
//     for [Options.Keep]; by eviction, so that maxmemory-policy has to be noeviction;
//     with FLUSHALL, FLUSHDB, or a DEL by hand; and when a server without persistence
//     is restarted. With appendfsync everysec, the last second is lost when the
//     machine fails.
//   - A fail-over to a replica that lags behind loses the last writes together with
//     their marks. Until the next write a token passes that the lost mark would have
//     refused. WAIT makes this rarer. While two servers both believe to be the primary,
//     each has its own marks.
//   - The guard does not stop a program that writes the keys without it.
//   - Reads are not guarded: call [Guard.Raise] before you read the state that you
//     will write.
//
// # Rights
//
// With the default prefix, an ACL user needs the keys fencing:1:* beside its own, and
// the commands EVALSHA, EVAL, GET, SET, and those in its scripts. On a Cluster the driver
// also needs COMMAND, CLUSTER SLOTS and ASKING.
package redisguard
