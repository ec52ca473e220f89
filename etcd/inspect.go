package etcd

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker"
)

// Inspect implements [locker.Inspector].
func (b *Backend) Inspect(ctx context.Context, name string) (locker.State, error) {
	var st locker.State
	var lease clientv3.LeaseID
	err := b.call(ctx, func(ctx context.Context) error {
		resp, err := b.client.Get(ctx, b.keys.queue(name), clientv3.WithFirstCreate()...)
		if err != nil || len(resp.Kvs) == 0 {
			return err
		}
		first := resp.Kvs[0]
		st = locker.State{Held: true, Label: string(first.Value), Token: uint64(first.CreateRevision), Waiters: int(resp.Count) - 1}
		lease = clientv3.LeaseID(first.Lease)
		return nil
	})
	if err != nil || !st.Held {
		return locker.State{}, b.failure(ctx, err)
	}
	err = b.call(ctx, func(ctx context.Context) error {
		resp, err := b.client.TimeToLive(ctx, lease)
		if err == nil && resp.TTL > 0 {
			// After a change of the leader it can be more than was granted.
			st.Remaining = time.Duration(min(resp.TTL, resp.GrantedTTL)) * time.Second
		}
		return err
	})
	if err != nil && !leaseGone(err) {
		return locker.State{}, b.failure(ctx, err)
	}
	return st, nil
}
