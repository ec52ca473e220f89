package etcd

import (
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker"
)

// Key is what [locker.Lease.As] tells of a lock in etcd: give it a *Key.
type Key struct {
	Key            string
	CreateRevision int64 // the fencing token, before Options.TokenBase is added
	Lease          clientv3.LeaseID
}

// As implements what [locker.Lease.As] asks for.
func (h *hold) As(target any) bool {
	k, ok := target.(*Key)
	if ok {
		*k = Key{Key: h.key, CreateRevision: h.token, Lease: h.s.id}
	}
	return ok
}

// Held returns a comparison that is true as long as lease holds its lock: with
// it in the If of a transaction in the same etcd, what the transaction writes is
// safe from holders that were paused and do not know that they have lost the
// lock. The error matches [locker.ErrLost] or another end of the lease if that
// is over already, and errors.ErrUnsupported if it is not from this backend.
//
//	held, err := etcd.Held(lease)
//	…
//	resp, err := client.Txn(ctx).If(held).Then(clientv3.OpPut("key", "value")).Commit()
//	// resp.Succeeded is false if the lock was lost
func Held(lease *locker.Lease) (clientv3.Cmp, error) {
	var k Key
	if lease == nil || !lease.As(&k) {
		return clientv3.Cmp{}, fmt.Errorf("etcd: the lease is not one of etcd: %w", errors.ErrUnsupported)
	}
	if err := lease.Err(); err != nil {
		return clientv3.Cmp{}, err
	}
	return clientv3.Compare(clientv3.CreateRevision(k.Key), "=", k.CreateRevision), nil
}
