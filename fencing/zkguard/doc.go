// Package zkguard refuses a late holder's writes to ZooKeeper: a transaction
// (multi) happens only if no higher fencing token was accepted for its resource.
// The tokens may come from any lock service. Package fencing has the rules that all
// guards keep.
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
// If the lock is in the same ZooKeeper, a transaction can check the lock itself,
// without this package: it looks whether the lease's own node exists.
//
//	var node zookeeper.Node
//	if !lease.As(&node) { … }
//	_, err := conn.Multi(
//		&zk.CheckVersionRequest{Path: node.Path, Version: -1}, // zk.ErrNoNode: the lock was lost
//		&zk.SetDataRequest{Path: "/config/billing", Data: data, Version: -1})
//
// The section "Mark or ownership" of docs/fencing.md says which late writes each way
// refuses. For both at once, give the check to [Guard.Multi] among its operations.
//
// # What it rests on
//
// The mark of a resource is a node beside the caller's own nodes,
// PREFIX/1/mark/RESOURCE, whose data is the token in decimal digits. The 1 is the
// version of this layout. RESOURCE is written with % and two hexadecimal digits for
// /, %, whatever is not a printable ASCII character, and a name that is . or .. .
//
// The guard reads the mark, compares, and sends a transaction that compares the
// version of the node. A server that is behind shows a mark that is too low, never
// one that is too high: that can cost another attempt, and never lets a wrong write
// through or refuses a right one. So the guard rests on ZooKeeper's transactions,
// and on nobody else writing or deleting the nodes below PREFIX: without
// Options.ACL, everybody can. It does not rest on clocks.
//
// # What it does not protect
//
//   - Writes without the guard, or to another ensemble.
//   - A resource whose mark has met the tokens of two locks: see package fencing.
//   - Data that a backup has set back: see "Restoring a backup" in docs/fencing.md.
//   - A mark that somebody deletes: a token of any age passes then. And a new node
//     has the same version as a deleted one that a transaction under way may have
//     read. So there is no method that deletes marks. If a resource is no more,
//     delete its node while nobody can be writing to it.
//
// Each resource leaves a node for ever, some 200 bytes in the memory of each server.
// Marks that expire would need nodes with a TTL. ZooKeeper has these only if its
// servers are configured for it, and the driver cannot make them in a transaction.
//
// # No answer
//
// If no answer comes, it is not known whether a transaction was carried out: see
// [fencing.ErrUnknown]. The driver does not repeat requests, and the guard repeats
// only its reads. The caller may repeat a transaction with the same token if it sets
// the same data unconditionally. A create, a delete, and any operation that compares
// a version fail with an [OpError] if the first transaction succeeded: look first
// what is there.
//
// A request that was given up stays with the driver, which may send it later. For
// each Guard up to 128 requests are under way at a time; further calls wait for
// their turn.
//
// # Oldest server
//
// The tests run with ZooKeeper 3.8 and 3.9. The package uses nothing that 3.4 does
// not have.
package zkguard
