package etcd

import (
	"context"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker"
)

// Inspect implements [locker.Inspector].
func (b *Backend) Inspect(ctx context.Context, name string) (locker.State, error) {
	queue, _, err := repeated(ctx, b, func(ctx context.Context) (*clientv3.GetResponse, error) {
		queue := b.keys.queue(name)
		return b.client.Get(ctx, queue, append(clientv3.WithFirstCreate(), clientv3.WithRange(places(queue)))...)
	})
	if err != nil || len(queue.Kvs) == 0 {
		return locker.State{}, b.failure(ctx, err)
	}
	first := queue.Kvs[0]
	_, label, _ := strings.Cut(string(first.Value), labelMark)
	st := locker.State{Held: true, Label: label, Token: uint64(first.CreateRevision), Waiters: int(queue.Count) - 1}
	lease, _, err := repeated(ctx, b, func(ctx context.Context) (*clientv3.LeaseTimeToLiveResponse, error) {
		return b.client.TimeToLive(ctx, clientv3.LeaseID(first.Lease))
	})
	if err != nil && !leaseGone(err) {
		return locker.State{}, b.failure(ctx, err)
	}
	if err == nil && lease.TTL > 0 {
		// After a change of the leader it can be more than was granted.
		st.Remaining = time.Duration(min(lease.TTL, lease.GrantedTTL)) * time.Second
	}
	return st, nil
}
