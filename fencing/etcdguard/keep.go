package etcdguard

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// keeper has the etcd lease that marks are put under, so that they go when they
// are not used. A nil keeper keeps them for ever.
//
// No lease is ever renewed. One is granted for twice the time and used for a
// little less than half of that, then the next: whatever was put under it lives
// for the time at least. So it costs one request per Keep and process, there is
// nothing to run in the background, and nothing to end.
type keeper struct {
	granter clientv3.Lease
	keep    time.Duration
	turn    chan struct{} // whoever puts its element in may use what is below

	id    clientv3.LeaseID
	until time.Time // up to which it is used
}

func newKeeper(granter clientv3.Lease, keep time.Duration) *keeper {
	return &keeper{granter: granter, keep: keep, turn: make(chan struct{}, 1)}
}

// lease returns the lease to put a mark under now.
func (k *keeper) lease(ctx context.Context) (clientv3.LeaseID, error) {
	if k == nil {
		return clientv3.NoLease, nil
	}
	if err := k.enter(ctx); err != nil {
		return 0, err
	}
	defer k.leave()
	now := time.Now()
	// Both clocks: the monotonic one stands still while a machine sleeps (R4).
	if k.id != clientv3.NoLease && now.Before(k.until) && now.Round(0).Before(k.until.Round(0)) {
		return k.id, nil
	}
	seconds := int64((2*k.keep + time.Second - 1) / time.Second)
	resp, err := k.granter.Grant(ctx, seconds)
	if err != nil {
		// Whether a lease was granted or not: nothing hangs on it.
		return 0, &unsentError{err}
	}
	k.id, k.until = resp.ID, now.Add(k.keep/10*9) // R1: now was before the request
	return k.id, nil
}

// gone reports whether lease is no more, in which case it is not given out
// again.
func (k *keeper) gone(ctx context.Context, lease clientv3.LeaseID) bool {
	if k == nil || k.enter(ctx) != nil {
		return false
	}
	defer k.leave()
	if k.id != lease {
		return true
	}
	// It may be a lease of the caller's that is missing.
	resp, err := k.granter.TimeToLive(ctx, lease)
	if err != nil || resp.TTL > 0 {
		return false
	}
	k.id = clientv3.NoLease
	return true
}

func (k *keeper) enter(ctx context.Context) error {
	select {
	case k.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return &unsentError{ctx.Err()}
	}
}

func (k *keeper) leave() { <-k.turn }
