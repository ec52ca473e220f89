// Package etcdguard refuses a late holder's writes to etcd: a transaction happens
// only if no higher fencing token was accepted for its resource. The tokens may come
// from any lock service. Package fencing has the rules that all guards keep.
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
// If the lock is in the same etcd, a transaction can check the lock itself, without
// this package: etcd.Held returns a comparison that is true as long as the lease's
// own key exists.
//
//	held, err := etcd.Held(lease)
//	…
//	resp, err := client.Txn(ctx).If(held).Then(clientv3.OpPut("config/billing", "v2")).Commit()
//
// The section "Mark or ownership" of docs/fencing.md says which late writes each way
// refuses. They can be used together:
//
//	resp, err := guard.Txn(ctx, "billing/config", token).If(held).Then(…).Commit()
//
// # What it rests on
//
// The mark of a resource is a key beside the caller's own keys,
// PREFIX/1/mark/RESOURCE, where % and / in RESOURCE are written %25 and %2F. The 1
// is the version of this layout. The value is the token in 20 digits, so that etcd's
// comparison of bytes compares numbers. One request compares the mark and writes, so
// the guard rests on etcd's transactions, and on nobody else writing to PREFIX: give
// a role
//
//	etcdctl role grant-permission ROLE --prefix=true readwrite PREFIX/1/
//
// only to the users of the guard. The guard does not rest on clocks.
//
// # What it does not protect
//
//   - Writes without the guard, or to another etcd.
//   - A resource whose mark has met the tokens of two locks: see package fencing.
//   - Data that a backup has set back: see "Restoring a backup" in docs/fencing.md.
//
// Each resource leaves a key of some 100 bytes; [Guard.Forget] removes it when the
// resource is no more.
//
// # No answer
//
// If no answer comes, it is not known whether a transaction was carried out: see
// [fencing.ErrUnknown]. Neither the driver nor the guard repeats transactions. The
// caller may repeat one with the same token if it puts the same values. A comparison
// with what was there before fails if the first transaction succeeded.
//
// # Oldest server
//
// The tests run with etcd 3.7; those of package etcd also with 3.4. Before 3.5, etcd
// did not check the rights for a transaction within a transaction: there, the rights
// of the client's user do not keep it from other keys.
package etcdguard
