// Package etcdguard refuses a late holder's writes to etcd: a transaction
// happens only if no higher fencing token was accepted for its resource. The
// tokens may be those of any lock service. See package fencing for the rules
// that all guards keep.
//
//	guard, err := etcdguard.New(client, nil)
//	…
//	err = fencing.Do(ctx, locks, "billing/config", func(ctx context.Context) error {
//		token, err := fencing.TokenFor(ctx, "billing/config")
//		if err != nil {
//			return err
//		}
//		_, err = guard.Commit(ctx, "billing/config", token, clientv3.OpPut("config/billing", "v2"))
//		return err
//	})
//
// # Two ways
//
// A lock that is in the same etcd as what it protects can be checked there by
// ownership, without this package: etcd.Held returns a comparison that is true
// as long as the lease's own key exists.
//
//	held, err := etcd.Held(lease)
//	…
//	resp, err := client.Txn(ctx).If(held).Then(clientv3.OpPut("config/billing", "v2")).Commit()
//
// What each of them refuses:
//
//   - A holder that was late, after the next holder has written: both.
//   - A holder that was late, before the next holder has written, or got the
//     lock: ownership only. The mark does not know of holders that have not
//     used it. A holder that begins with a Commit without operations closes
//     that gap from then on.
//   - A holder of a lock in another etcd, in ZooKeeper, in a Redis: the mark
//     only. Ownership needs the lock's key in the same etcd.
//   - A token that came by message, with work that was handed on: the mark
//     only, unless key and create revision are handed on with it.
//   - What is still written after the lock was given back in good order:
//     ownership only, as long as nobody came after.
//
// Ownership leaves no keys behind. They go together:
//
//	resp, err := guard.Txn(ctx, "billing/config", token).If(held).Then(…).Commit()
//
// # What it rests on
//
// The mark of a resource is a key beside the caller's own,
// PREFIX/1/mark/RESOURCE, where % and / in RESOURCE are written %25 and %2F;
// the 1 is the version of this layout. Its value is the token in 20 digits, so
// that etcd's comparison of bytes is one of numbers. One request compares it
// and does the rest, so it rests on what etcd's transactions do, and on nobody
// else writing to PREFIX: give a role
//
//	etcdctl role grant-permission ROLE --prefix=true readwrite PREFIX/1/
//
// to those only who use the guard. It does not rest on clocks.
//
// # What it does not protect
//
//   - What is written without the guard, or to another etcd.
//   - A resource whose marks have met the tokens of two locks: see package fencing.
//   - Data set back by a backup. The marks are set back with it, and so are
//     tokens from the same etcd, so that both still fit together; but a holder
//     from before the restoration may have a higher token than those that are
//     given out next: it passes, and they are refused. Stop all holders first,
//     or restore with --bump-revision. Ownership is no better: the key of a
//     lock that was given back since is there again. Tokens of another service
//     are not set back: they pass as before, and what the marks remembered of
//     the time in between is lost.
//
// Each resource leaves a key of some 100 bytes; [Guard.Forget] removes it when
// the resource is no more.
//
// # Nobody answers
//
// Without an answer it is not known whether a transaction was carried out: see
// [fencing.ErrUnknown]. The driver does not repeat transactions, and neither
// does the guard. For the caller to repeat one with the same token is safe where
// it puts the same values; a comparison with what was there before fails if the
// first one succeeded.
//
// # Oldest server
//
// It is tested with etcd 3.7, and package etcd with 3.4, too. Before 3.5 etcd did not
// check what a transaction within a transaction may write: there the rights of the
// client's user do not keep it from the keys of others.
package etcdguard
