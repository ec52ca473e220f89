package etcd

import (
	"context"
	"errors"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker/driver"
	"github.com/golockers/locker/internal/raised"
)

// Key is what [driver.Lease].As tells of a lock in etcd: give it a *Key.
type Key struct {
	Key string
	// CreateRevision is that of the key: the fencing token, unless the lease is shared or tokens were
	// raised.
	CreateRevision int64
	Lease          clientv3.LeaseID
}

// As implements what [driver.Lease].As asks for.
func (h *hold) As(target any) bool {
	k, ok := target.(*Key)
	if ok {
		*k = Key{Key: h.key, CreateRevision: h.created, Lease: clientv3.LeaseID(h.l.id)}
	}
	return ok
}

// RaiseToken implements [driver.TokenRaiser]. The key that says what is added to
// create revisions is on no lease, so that it stays, and is put while the holder's
// key is there. Whoever comes next reads it when that is gone.
func (h *hold) RaiseToken(ctx context.Context, token uint64) error {
	key := tokensKey(h.queue)
	for now := h.tokens; ; { // they may have been raised since, perhaps by a copy of this request
		then, err := now.Raise(h.created, token)
		if err != nil {
			return err
		}
		var put []clientv3.Op
		if then != now.Tokens {
			put = append(put, clientv3.OpPut(key, then.String()))
		}
		same := clientv3.Compare(clientv3.ModRevision(key), "=", now.at)
		look := []clientv3.Op{clientv3.OpGet(key), clientv3.OpGet(h.key)}
		resp, _, err := h.b.pool.txn(ctx, ordinary, []clientv3.Cmp{is(h.key, h.created), same}, put, look)
		switch {
		case err != nil:
			return h.b.failure(ctx, err)
		case resp.Succeeded:
			return nil
		}
		if createRevision(resp.Responses[1]) != h.created {
			return h.isLost("is")
		}
		if now, err = readTokens(resp.Responses[0]); err != nil {
			return err
		}
	}
}

// tokens is what a tokensKey says, and the revision at which it was put; 0 if it
// never was.
type tokens struct {
	raised.Tokens
	at int64
}

// readTokens returns what a transaction has read of a tokensKey.
func readTokens(resp *pb.ResponseOp) (t tokens, err error) {
	for _, kv := range resp.GetResponseRange().Kvs {
		if t.Tokens, err = raised.Parse(string(kv.Value)); err != nil {
			err = fmt.Errorf("etcd: %s: %w", kv.Key, err)
		}
		t.at = kv.ModRevision
	}
	return t, err
}

// Held returns a comparison that is true as long as lease holds its lock: with
// it in the If of a transaction in the same etcd, what the transaction writes is
// safe from holders that were paused and do not know that they have lost the
// lock. The error matches [driver.ErrLost] or another end of the lease if that
// is over already, and errors.ErrUnsupported if it is not from this backend.
//
//	held, err := etcd.Held(lease)
//	…
//	resp, err := client.Txn(ctx).If(held).Then(clientv3.OpPut("key", "value")).Commit()
//	// resp.Succeeded is false if the lock was lost
func Held(lease driver.Lease) (clientv3.Cmp, error) {
	var k Key
	if lease == nil || !lease.As(&k) {
		return clientv3.Cmp{}, fmt.Errorf("etcd: the lease is not one of etcd: %w", errors.ErrUnsupported)
	}
	if err := lease.Err(); err != nil {
		return clientv3.Cmp{}, err
	}
	return is(k.Key, k.CreateRevision), nil
}
