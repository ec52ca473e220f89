// Package zkguard refuses a late holder's writes to ZooKeeper: a transaction
// (multi) happens only if no higher fencing token was accepted for its
// resource. The tokens may be those of any lock service. See package fencing
// for the rules that all guards keep.
//
//	guard, err := zkguard.New(conn, nil)
//	…
//	err = fencing.Do(ctx, locks, "billing/config", func(ctx context.Context) error {
//		token, err := fencing.TokenFor(ctx, "billing/config")
//		if err != nil {
//			return err
//		}
//		_, err = guard.Multi(ctx, "billing/config", token,
//			&zk.SetDataRequest{Path: "/config/billing", Data: data, Version: -1})
//		return err
//	})
//
// # Two ways
//
// A lock that is in the same ZooKeeper as what it protects can be checked there
// by ownership, without this package: by looking in the transaction whether the
// lease's own node exists.
//
//	var node zookeeper.Node
//	if !lease.As(&node) { … }
//	_, err := conn.Multi(
//		&zk.CheckVersionRequest{Path: node.Path, Version: -1}, // zk.ErrNoNode: the lock was lost
//		&zk.SetDataRequest{Path: "/config/billing", Data: data, Version: -1})
//
// What each of them refuses:
//
//   - A holder that was late, after the next holder has written: both.
//   - A holder that was late, before the next holder has written, or got the
//     lock: ownership only. The mark does not know of holders that have not
//     used it. A holder that begins with Raise closes that gap from then on.
//   - A holder of a lock in another ensemble, in etcd, in a Redis: the mark
//     only. Ownership needs the lock's node in the same ensemble.
//   - A token that came by message, with work that was handed on: the mark
//     only, unless the node's path is handed on with it.
//   - What is still written after the lock was given back in good order:
//     ownership only, as long as nobody came after.
//
// Ownership leaves no nodes behind. They go together: give the check to
// [Guard.Multi] among its operations.
//
// # What it rests on
//
// The mark of a resource is a node beside the caller's own,
// PREFIX/1/mark/RESOURCE, whose data is the token in decimal digits; in
// RESOURCE, what is not a printable ASCII character, / and % are written as %
// and two hexadecimal digits, and so are . and .. alone; the 1 is the version
// of this layout. The guard reads the mark, compares, and makes a transaction
// that compares the version of the node. A read from a server that is behind
// shows a mark that is too low, never one that is too high: it can cost another
// attempt, and cannot let through or refuse what should not be. So it rests on
// what ZooKeeper's transactions do, and on nobody else writing to, or deleting,
// the nodes below PREFIX: without Options.ACL, everybody can. It does not rest
// on clocks.
//
// # What it does not protect
//
//   - What is written without the guard, or to another ensemble.
//   - A resource whose marks have met the tokens of two locks: see package fencing.
//   - Data set back by a backup. The marks are set back with it, and so are
//     tokens from the same ensemble, so that both still fit together; but a
//     holder from before the restoration may have a higher token than those
//     that are given out next: it passes, and they are refused. Stop all
//     holders first. Tokens of another service are not set back: they pass as
//     before, and what the marks remembered of the time in between is lost.
//   - A mark that somebody deletes: a token of any age passes then. And a new
//     node has the version of one that was deleted, which a transaction under
//     way may have read. So there is no method for it; delete the node of a
//     resource that is no more when nobody can be writing to it.
//
// Each resource leaves a node for ever, some 200 bytes in the memory of each
// server. Marks that expire would need nodes with a TTL, which ZooKeeper has
// only if its servers are told so and which the driver cannot make in a
// transaction.
//
// # Nobody answers
//
// Without an answer it is not known whether a transaction was carried out: see
// [fencing.ErrUnknown]. The driver does not repeat requests, and the guard
// repeats only its reads. For the caller to repeat one with the same token is
// safe where it sets the same data unconditionally; a create, a delete, and
// whatever compares a version, fail with an [OpError] if the first one
// succeeded, so look before what is there. A request that was given up stays with the driver and may be sent
// later; up to 128 of them wait at a time for each Guard, and calls beyond that
// wait for their turn.
//
// # Oldest server
//
// It is tested with ZooKeeper 3.8 and 3.9. Nothing is used that 3.4 does not have.
package zkguard
