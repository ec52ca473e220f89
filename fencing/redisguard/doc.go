// Package redisguard lets writes to a Redis happen only if they come from the
// latest holder of a lock: it compares the fencing token, moves the mark and
// writes in one script, which the server runs as one step.
//
//	guard, err := redisguard.New(client, nil)
//	…
//	err = fencing.Do(ctx, l, "orders/42", func(ctx context.Context) error {
//		token, err := fencing.TokenFor(ctx, "orders/42")
//		if err != nil {
//			return err
//		}
//		return guard.Set(ctx, "orders/42", token, "{orders/42}:state", "paid", 0)
//	})
//
// [Guard.Set] and [Guard.Del] are there for the simple cases; [Guard.Run] puts
// the guard in front of any Lua script of the caller's, and [Prelude] is its
// text, for other drivers and languages. The lock may be of any backend: it
// need not be the same Redis, nor a Redis at all.
//
// # Keys
//
// The mark of a resource is a key of its own; see [Guard.MarkKey]. On a Redis
// Cluster one script writes keys of one hash slot only, so what is written has
// to share the slot of the mark. It does if it is named after the resource: for
// the resource orders/42 the keys orders/42, {orders/42}:state and so on; for a
// resource with a {tag} in its name all keys with the same tag. Others are
// refused before anything is sent, on one server too, so that a program that
// works there works on a Cluster. [Options.Unclustered] lifts that.
//
// Resources with one tag have marks of their own: the tag decides where a mark
// is, the whole name which one it is.
//
// # Scripts that fail
//
// The order is: compare, move the mark, write. Redis runs a script with nothing
// in between, and gives it to its replicas and its append-only file as one
// transaction; but it does not roll back a script that fails in the middle. So
// this holds:
//
//   - A refused token changes nothing. Nor does a server that cannot take
//     writes (no memory, read-only, too few replicas), or a user who must not
//     write the mark: then the mark, which is first, is what fails.
//   - Set and Del happen together with their mark or not at all, with one
//     exception: if the user may write the mark but must not use the command
//     DEL, the mark has moved.
//   - A script that fails, by an error that it raises (error, a failed
//     redis.call) or returns (redis.error_reply), has been let in: the mark has
//     moved and stays, and so does what the script had written before. The other
//     order would leave writes without a mark, for a lower token to write over.
//
// So no write of a lower token is let in after one of a higher token. A script that
// has to write all or nothing looks at everything that can make it fail before its
// first write; and it is short, since SCRIPT KILL cannot stop one that has written.
//
// # Lost answers
//
// A Guard has the driver send each request once, whatever its MaxRetries says.
// Where the answer is lost, Set, Del, Raise and Forget ask again themselves, since
// they may be carried out twice; Run does not. If a later holder has written
// meanwhile, the second request is refused although the first may have written,
// before that holder, which is in order: that is [fencing.ErrUnknown], not ErrStale.
//
// A request whose answer did not come may also arrive late. Then it is refused
// if a higher token was there before it. If none was, it passes: a guard does
// not order the writes of one holder among each other. A holder that has to be
// sure of that acquires the lock again, and so has a higher token.
//
// # What it does not protect against
//
//   - A mark that is gone lets a token of any age pass. Marks go when they have
//     not been used for [Options.Keep]; when they are evicted, so that
//     maxmemory-policy has to be noeviction; with FLUSHALL, FLUSHDB, a server
//     without persistence that is restarted, and a DEL by hand. With
//     appendfsync everysec, the last second is lost when the machine fails.
//   - A fail-over to a replica that lags behind loses the last writes together
//     with their marks, since each pair is one transaction. What remains is a
//     history in which tokens do not fall, but a write that was acknowledged is
//     not in it, and until the next write a token passes that the lost mark
//     would have refused. WAIT makes that rarer. While two servers both believe
//     to be the primary, each has marks of its own.
//   - A program that writes the keys without the guard is not held up by it, and a
//     key that expires or is evicted is gone without one.
//   - Reading is not guarded: call [Guard.Raise] before you read what you will write.
//
// # Rights
//
// With the default prefix an ACL user needs the keys fencing:1:* beside its
// own, and the commands EVALSHA, EVAL, GET, SET, for Del and Forget DEL, and
// what its scripts use. On a Cluster the driver also needs COMMAND, CLUSTER
// SLOTS and ASKING.
package redisguard
