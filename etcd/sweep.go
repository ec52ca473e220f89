package etcd

import (
	"context"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker/internal/etcderr"
)

// sweep ends the places of the dead in a queue: those of which nothing but shadows is left. The holder of the
// first place may believe in it: its shadow is kept for its TTL from now on. The others never were the first,
// and are deleted at once: eight dead waiters cost what one dead holder does.
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
		if kv := front(place); !isDead(kv) || stands == nil && !wasNeverGranted(place) {
			if isDead(kv) {
				if err := b.count(ctx, place); err != nil {
					return err
				}
			}
			if stands == nil {
				stands = kv
			}
			continue
		}
		cmps := unchanged(place)
		if stands != nil {
			is := clientv3.Compare(clientv3.CreateRevision(string(stands.Key)), "=", stands.CreateRevision)
			cmps = append(cmps, is)
		}
		var then []clientv3.Op
		for _, kv := range place {
			then = append(then, clientv3.OpDelete(string(kv.Key)))
		}
		deletions = append(deletions, clientv3.OpTxn(cmps, then, nil))
	}
	for chunk := range slices.Chunk(deletions, keysAtOnce) {
		if _, _, err := b.pool.txn(ctx, ordinary, nil, chunk, nil); err != nil {
			return err
		}
	}
	return nil
}

// count begins to count the time for which the shadows of a place keep the lock whose key is gone: it puts
// them on a lease that nobody renews, and that no leader can end early therefore.
//
// The holder may believe in the lock for as long: a leader that was stopped for longer than a TTL revokes
// leases that its successor has kept alive.
func (b *Backend) count(ctx context.Context, place []*mvccpb.KeyValue) error {
	place = slices.DeleteFunc(slices.Clone(place), func(kv *mvccpb.KeyValue) bool { return !isUncounted(kv) })
	if len(place) == 0 {
		return nil
	}
	lease, err := b.pool.grantLease(ctx, seconds(place[0]))
	if err != nil {
		return err
	}
	onLease := clientv3.WithLease(clientv3.LeaseID(lease.ID))
	var puts []clientv3.Op
	for _, kv := range place {
		puts = append(puts, clientv3.OpPut(string(kv.Key), string(kv.Value), onLease))
	}
	get := clientv3.OpGet(string(place[0].Key))
	resp, _, err := b.pool.txn(ctx, ordinary, unchanged(place), puts, []clientv3.Op{get})
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

// unchanged is true as long as the shadows of a place are as they were, and the key itself is not there.
func unchanged(place []*mvccpb.KeyValue) []clientv3.Cmp {
	cmps := []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(base(place[0].Key)), "=", 0)}
	for _, kv := range place {
		cmps = append(cmps, clientv3.Compare(clientv3.ModRevision(string(kv.Key)), "=", kv.ModRevision))
	}
	return cmps
}

// notOfSession makes the error that a lease is gone one that may go away. It is for requests with a lease
// that was just granted: no session is what is gone.
func notOfSession(err error) error {
	if etcderr.LeaseGone(err) {
		return &noAnswerError{"a lease that was granted was over before it was used"}
	}
	return err
}
