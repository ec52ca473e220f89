package etcd

import (
	"context"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// sweep ends the places of the dead in a queue: those of which nothing but a shadow is left. One that may have
// been granted the lock may be believed in: its shadow is kept for its TTL from now on. The others are deleted
// at once: eight dead waiters cost what one dead holder does.
func (b *Backend) sweep(ctx context.Context, queue string) error {
	resp, err := b.pool.read(ctx, readers, clientv3.OpGet(queue, inOrder(queue)...))
	if err != nil {
		return err
	}
	counted, orphans := dead(resp.Responses[0].GetResponseRange().Kvs)
	for _, shadows := range counted {
		if err := b.count(ctx, shadows); err != nil {
			return err
		}
	}
	var deletions []clientv3.Op
	for _, o := range orphans {
		cmps := unchanged(o.shadow)
		if o.behind != nil {
			is := clientv3.Compare(clientv3.CreateRevision(string(o.behind.Key)), "=", o.behind.CreateRevision)
			cmps = append(cmps, is)
		}
		then := []clientv3.Op{clientv3.OpDelete(string(o.shadow.Key))}
		deletions = append(deletions, clientv3.OpTxn(cmps, then, nil))
	}
	for chunk := range slices.Chunk(deletions, keysAtOnce) {
		if _, _, err := b.pool.txn(ctx, ordinary, nil, chunk, nil); err != nil {
			return err
		}
	}
	return nil
}

// orphan is what is left of one who waited.
type orphan struct {
	shadow *mvccpb.KeyValue
	// behind has been in its way from the beginning, as it still is, so it was never granted the lock; nil:
	// the shadow itself says that it was not.
	behind *mvccpb.KeyValue
}

// dead finds the places of a queue, in its order, of which only a shadow is left: those whose time has to be
// counted from now on, by their seconds, and those that never were granted the lock.
func dead(queue []*mvccpb.KeyValue) (counted map[int64][]*mvccpb.KeyValue, orphans []orphan) {
	counted = map[int64][]*mvccpb.KeyValue{}
	var stands, standsAlone *mvccpb.KeyValue // the first of all, and of those that are no sharers
	for place := range eachPlace(queue) {
		kv := front(place)
		shared := isShared(string(kv.Key))
		o := orphan{shadow: kv, behind: stands}
		if shared {
			o.behind = standsAlone
		}
		switch {
		case isDead(kv) && (o.behind != nil || wasNeverGranted(kv)):
			orphans = append(orphans, o)
			continue
		case isUncounted(kv):
			counted[seconds(kv)] = append(counted[seconds(kv)], kv)
		}
		if stands == nil {
			stands = kv
		}
		if standsAlone == nil && !shared {
			standsAlone = kv
		}
	}
	return counted, orphans
}

// count begins to count the time, the same of all, for which shadows keep the lock whose keys are gone: it puts
// them on a lease that nobody renews, and that no leader can end early therefore.
//
// A holder may believe in the lock for as long: a leader that was stopped for longer than a TTL revokes
// leases that its successor has kept alive.
func (b *Backend) count(ctx context.Context, shadows []*mvccpb.KeyValue) error {
	lease := newLease()
	if _, err := b.pool.grantLease(ctx, lease, seconds(shadows[0])); err != nil {
		return err
	}
	onLease := clientv3.WithLease(clientv3.LeaseID(lease))
	used := false
	for chunk := range slices.Chunk(shadows, keysAtOnce) {
		var ops []clientv3.Op
		for _, kv := range chunk {
			key := string(kv.Key)
			put := []clientv3.Op{clientv3.OpPut(key, string(kv.Value), onLease)}
			ops = append(ops, clientv3.OpTxn(unchanged(kv), put, []clientv3.Op{clientv3.OpGet(key)}))
		}
		resp, _, err := b.pool.txn(ctx, ordinary, nil, ops, nil)
		if err != nil {
			return notOfSession(err)
		}
		for _, r := range resp.Responses {
			each := r.GetResponseTxn()
			used = used || each.Succeeded
			for _, now := range each.Responses[0].GetResponseRange().GetKvs() {
				used = used || now.Lease == lease // a repeated request (R11)
			}
		}
	}
	if !used {
		_ = b.pool.revokeLease(ctx, lease) // another was faster; it ends by itself, too
	}
	return nil
}

// unchanged is true as long as a shadow is as it was, and the key itself is not there.
func unchanged(shadow *mvccpb.KeyValue) []clientv3.Cmp {
	return []clientv3.Cmp{
		clientv3.Compare(clientv3.CreateRevision(base(shadow.Key)), "=", 0),
		clientv3.Compare(clientv3.ModRevision(string(shadow.Key)), "=", shadow.ModRevision),
	}
}

// notOfSession makes the error that a lease is gone one that may go away. It is for requests with a lease
// that was just granted: no session is what is gone.
func notOfSession(err error) error {
	if leaseGone(err) {
		return &noAnswerError{"a lease that was granted was over before it was used"}
	}
	return err
}
