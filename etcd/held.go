package etcd

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker"
	"github.com/golockers/locker/internal/raised"
)

// Key is what [locker.Lease.As] tells of a lock in etcd: give it a *Key.
type Key struct {
	Key            string
	CreateRevision int64 // of the key: the fencing token, unless tokens of the name were raised
	Lease          clientv3.LeaseID
}

// As implements what [locker.Lease.As] asks for.
func (h *hold) As(target any) bool {
	k, ok := target.(*Key)
	if ok {
		*k = Key{Key: h.key, CreateRevision: h.created, Lease: h.s.id}
	}
	return ok
}

// RaiseToken implements [locker.TokenRaiser]. The key that says what is added to
// create revisions is on no lease, so that it stays, and is put while the holder's
// key is there. Whoever comes next reads it when that is gone.
func (h *hold) RaiseToken(ctx context.Context, token uint64) error {
	key := tokensKey(h.queue)
	held := clientv3.Compare(clientv3.CreateRevision(h.key), "=", h.created)
	for {
		resp, err := h.b.kv.Txn(ctx).If(held).Then(clientv3.OpGet(key)).Commit()
		if err != nil {
			return h.b.failure(ctx, err)
		}
		if !resp.Succeeded {
			return h.isLost("is")
		}
		now, revision, err := readTokens(resp.Responses[0])
		if err != nil {
			return err
		}
		then, err := now.Raise(h.created, token)
		if err != nil || then == now {
			return err
		}
		resp, err = h.b.kv.Txn(ctx).If(held, clientv3.Compare(clientv3.ModRevision(key), "=", revision)).
			Then(clientv3.OpPut(key, then.String())).Commit()
		if err != nil {
			return h.b.failure(ctx, err)
		}
		if resp.Succeeded {
			return nil
		} // else it was raised meanwhile, perhaps by a copy of this request
	}
}

// readTokens returns what a transaction has read of a tokensKey, and the revision
// at which that was written; 0 if it never was.
func readTokens(resp *etcdserverpb.ResponseOp) (raised.Tokens, int64, error) {
	kvs := resp.GetResponseRange().Kvs
	if len(kvs) == 0 {
		return raised.Tokens{}, 0, nil
	}
	tokens, err := raised.Parse(string(kvs[0].Value))
	if err != nil {
		err = fmt.Errorf("etcd: %s: %w", kvs[0].Key, err)
	}
	return tokens, kvs[0].ModRevision, err
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
