package etcd

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker"
)

// attempt is one key on its way through a queue.
type attempt struct {
	b      *Backend
	h      *hold
	queued func() // told that others are before it; may be nil
	sent   bool   // something of it may be in etcd

	prev string // the key before; "" if there is none
}

// unused is the condition under which the key may be put: it is not there, and
// was not taken back before it came.
func (a *attempt) unused() []clientv3.Cmp {
	return []clientv3.Cmp{
		clientv3.Compare(clientv3.CreateRevision(a.h.key), "=", 0),
		a.notVoid(),
	}
}

func (a *attempt) notVoid() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(void(a.h.queue, a.h.mark)), "=", 0)
}

func (a *attempt) put() clientv3.Op {
	return clientv3.OpPut(a.h.key, a.h.value, clientv3.WithLease(a.h.s.id))
}

// commit sends the transaction that puts the key.
func (a *attempt) commit(ctx context.Context, txn func(clientv3.Txn) clientv3.Txn) (*clientv3.TxnResponse, error) {
	var resp *clientv3.TxnResponse
	err := a.b.call(ctx, func(ctx context.Context) (err error) {
		resp, err = txn(a.b.client.Txn(ctx)).Commit()
		return err
	})
	if err != nil {
		a.sent = carriedOut(err)
		if errors.Is(err, rpctypes.ErrNoSpace) {
			// It may have been carried out, but is not under way any more. A void
			// key could not be put, and what only deletes is let through.
			a.arrived()
		}
		return nil, err
	}
	a.sent = true
	a.arrived()
	return resp, nil
}

// arrived notes that the transaction will not come any more: to delete the key
// is then enough.
func (a *attempt) arrived() {
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	a.h.doubtful = false
}

// take takes a place: the first, or, if it is to wait, the last.
func (a *attempt) take(ctx context.Context, wait bool) error {
	b, queue := a.b, a.h.queue
	b.mu.Lock()
	wanted := wait && b.wanted[queue]
	b.mu.Unlock()
	if !wanted {
		empty := clientv3.Compare(clientv3.CreateRevision(queue).WithPrefix(), "=", 0)
		first, err := a.try(ctx, !wait, empty)
		switch {
		case err != nil, a.h.token != 0:
			return err
		case first != nil:
			return locker.ErrHeld
		}
		a.again()
		if !wait {
			return a.tryBesideVoid(ctx)
		}
	}
	err := a.enter(ctx)
	if met := err == nil && a.prev != ""; met != wanted {
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.wanted) >= maxWanted {
			clear(b.wanted)
		}
		if delete(b.wanted, queue); met {
			b.wanted[queue] = true
		}
	}
	return err
}

// maxWanted bounds what is remembered of queues.
const maxWanted = 4096

// tryBesideVoid is try for a queue in which there are void keys.
func (a *attempt) tryBesideVoid(ctx context.Context) error {
	queue := a.h.queue
	empty := clientv3.Compare(clientv3.CreateRevision(queue).WithRange(places(queue)), "=", 0)
	first, err := a.try(ctx, true, empty, a.notVoid())
	switch {
	case err != nil, a.h.token != 0:
		return err
	case first != nil:
		return locker.ErrHeld
	}
	return errTakenBack
}

// try takes the first place under a condition that is false if somebody has it.
// If there is no error and it has no token, first is who has it, if that is
// to be looked at and somebody does.
//
// The usual condition, that there is no key of the queue, is one comparison for
// etcd; that it reads the queue as well would cost a tenth more.
func (a *attempt) try(ctx context.Context, look bool, unless ...clientv3.Cmp) (first *mvccpb.KeyValue, err error) {
	queue := a.h.queue
	resp, err := a.commit(ctx, func(txn clientv3.Txn) clientv3.Txn {
		txn = txn.If(unless...).Then(a.put())
		if look {
			txn = txn.Else(clientv3.OpGet(queue, append(clientv3.WithFirstCreate(), clientv3.WithRange(places(queue)))...))
		}
		return txn
	})
	if err != nil {
		return nil, err
	}
	if resp.Succeeded {
		a.h.token = resp.Header.Revision
		return nil, nil
	}
	a.sent = false
	if !look || len(resp.Responses[0].GetResponseRange().Kvs) == 0 {
		return nil, nil
	}
	first = resp.Responses[0].GetResponseRange().Kvs[0]
	if string(first.Key) == a.h.key && string(first.Value) == a.h.value { // a repeated request: it is ours already (R11)
		a.sent, a.h.token = true, first.CreateRevision
	}
	return first, nil
}

// again notes that another transaction is to put the key.
func (a *attempt) again() {
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	a.h.doubtful = true
}

// enter takes the last place in the queue, and sees who is before it.
func (a *attempt) enter(ctx context.Context) error {
	queue := a.h.queue
	resp, err := a.commit(ctx, func(txn clientv3.Txn) clientv3.Txn {
		return txn.If(a.unused()...).
			Then(clientv3.OpGet(queue, append(clientv3.WithLastCreate(), clientv3.WithKeysOnly(), clientv3.WithRange(places(queue)))...), a.put()).
			Else(clientv3.OpGet(a.h.key))
	})
	if err != nil {
		return err
	}
	if resp.Succeeded {
		a.h.token = resp.Header.Revision
		a.behind(resp.Responses[0].GetResponseRange().Kvs)
		return nil
	}
	mine := resp.Responses[0].GetResponseRange().Kvs
	if len(mine) == 0 || string(mine[0].Value) != a.h.value {
		a.sent = false
		return errTakenBack
	}
	a.h.token = mine[0].CreateRevision // a repeated request: it keeps its place (R11)
	return a.read(ctx, 0)
}

// behind notes the key before ours, and tells that there is one: it is etcd's
// answer, and not one that is still awaited.
func (a *attempt) behind(kvs []*mvccpb.KeyValue) {
	a.prev = ""
	if len(kvs) > 0 {
		a.prev = string(kvs[0].Key)
		if a.queued != nil {
			a.queued()
		}
	}
}

// errDeleted: the key of a waiter is gone, with its session or by hand.
var errDeleted = errors.New("its place in the queue is gone")

// read looks at the queue, as it is at the given revision or later; at 0, as a
// majority knows it now. It fails if the key is not there any more: who does
// not look may believe in a lock that he does not have.
func (a *attempt) read(ctx context.Context, revision int64) error {
	ops := func(opts ...clientv3.OpOption) []clientv3.Op {
		before := append(clientv3.WithLastCreate(), clientv3.WithKeysOnly(), clientv3.WithRange(places(a.h.queue)), clientv3.WithMaxCreateRev(a.h.token-1))
		return []clientv3.Op{
			clientv3.OpGet(a.h.key, append(opts, clientv3.WithKeysOnly())...),
			clientv3.OpGet(a.h.queue, append(before, opts...)...),
		}
	}
	var resp *clientv3.TxnResponse
	ask := func(opts ...clientv3.OpOption) (err error) {
		resp, _, err = repeated(ctx, a.b, func(ctx context.Context) (*clientv3.TxnResponse, error) {
			return a.b.client.Txn(ctx).Then(ops(opts...)...).Commit()
		})
		return err
	}
	var err error
	if revision > 0 {
		// Any member will do that has come so far, and most have.
		revision = max(revision, a.h.token)
		err = ask(clientv3.WithSerializable())
	}
	if revision == 0 || err == nil && resp.Header.Revision < revision {
		err = ask()
	}
	if err != nil {
		return err
	}
	mine := resp.Responses[0].GetResponseRange().Kvs
	if len(mine) == 0 || mine[0].CreateRevision != a.h.token {
		a.sent = false
		return errDeleted
	}
	a.behind(resp.Responses[1].GetResponseRange().Kvs)
	return nil
}
