package etcd

import (
	"context"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker/internal/etcderr"
)

// sweep ends the places of the dead in a queue: those of which nothing but a shadow is left. The holder of
// the first place may believe in it: its shadow is kept for its TTL from now on. The others never were the
// first, and are deleted at once: eight dead waiters cost what one dead holder does.
func (b *Backend) sweep(ctx context.Context, queue string) error {
	done, err := b.reading(ctx)
	if err != nil {
		return err
	}
	defer done()
	resp, err := b.pool.read(ctx, ordinary, clientv3.OpGet(queue, inOrder(queue)...))
	if err != nil {
		return err
	}
	var stands *mvccpb.KeyValue // before all that follow: none of them was ever the first
	var deletions []clientv3.Op
	for place := range eachPlace(resp.Responses[0].GetResponseRange().Kvs) {
		kv := front(place)
		if !isDead(kv) || stands == nil && !wasNeverGranted(kv) {
			if isUncounted(kv) {
				if err := b.count(ctx, kv); err != nil {
					return err
				}
			}
			if stands == nil {
				stands = kv
			}
			continue
		}
		cmps := unchanged(kv)
		if stands != nil {
			is := clientv3.Compare(clientv3.CreateRevision(string(stands.Key)), "=", stands.CreateRevision)
			cmps = append(cmps, is)
		}
		deletions = append(deletions, clientv3.OpTxn(cmps, []clientv3.Op{clientv3.OpDelete(string(kv.Key))}, nil))
	}
	for chunk := range slices.Chunk(deletions, keysAtOnce) {
		if _, _, err := b.pool.txn(ctx, ordinary, nil, chunk, nil); err != nil {
			return err
		}
	}
	return nil
}

// count begins to count the time for which a shadow keeps the lock whose key is gone: it puts it on a lease
// that nobody renews, and that no leader can end early therefore.
//
// The holder may believe in the lock for as long: a leader that was stopped for longer than a TTL revokes
// leases that its successor has kept alive.
func (b *Backend) count(ctx context.Context, shadow *mvccpb.KeyValue) error {
	lease, err := b.pool.grantLease(ctx, seconds(shadow))
	if err != nil {
		return err
	}
	key, onLease := string(shadow.Key), clientv3.WithLease(clientv3.LeaseID(lease.ID))
	put := []clientv3.Op{clientv3.OpPut(key, string(shadow.Value), onLease)}
	resp, _, err := b.pool.txn(ctx, ordinary, unchanged(shadow), put, []clientv3.Op{clientv3.OpGet(key)})
	if err != nil {
		return notOfSession(err)
	}
	if !resp.Succeeded {
		now := resp.Responses[0].GetResponseRange().Kvs
		if len(now) == 0 || now[0].Lease != lease.ID { // not a repeated request (R11)
			_ = b.pool.revokeLease(ctx, lease.ID) // another was faster; it ends by itself, too
		}
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
	if etcderr.LeaseGone(err) {
		return &noAnswerError{"a lease that was granted was over before it was used"}
	}
	return err
}
