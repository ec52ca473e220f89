package etcdguard

import (
	"context"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker/fencing"
)

// Commit carries out ops in one transaction if token is not lower than the mark
// of resource, and moves the mark in the same transaction. Without ops the mark
// moves alone: a holder that does this first keeps out all before it. Ops that
// only read are guarded, too. The response is that of ops alone. ctx bounds the
// call.
//
// A token that is too low is a [*fencing.StaleError], and nothing is written.
// No token is [fencing.ErrMissing]. An error that matches [fencing.ErrUnknown] leaves
// open whether everything was written or nothing; after any other, nothing was.
// If etcd could not be asked, the error matches [locker.ErrUnavailable].
//
// For etcd the guard counts as two operations more, of 128 in one transaction
// if --max-txn-ops is not set; what etcd refuses so matches
// [locker.ErrInvalid].
func (g *Guard) Commit(ctx context.Context, resource string, token fencing.Token, ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
	return g.Txn(ctx, resource, token).Then(ops...).Commit()
}

// Raise moves the mark of resource up to token and writes nothing. When it has
// returned, no write with a lower token can happen any more: a holder calls it
// before it reads what its write depends on. The error is as that of Commit.
func (g *Guard) Raise(ctx context.Context, resource string, token fencing.Token) error {
	_, err := g.Commit(ctx, resource, token)
	return err
}

// Txn is Commit with comparisons of the caller's own, in the words of the
// driver: it returns what can be used in the place of client.Txn(ctx), with
// Commit's errors.
//
// If the comparisons of If do not hold, the operations of Else are carried out
// and Succeeded is false in the response. The mark then moves only if there are
// writes among these, so that it moves together with a write or not at all. A
// token that is too low is refused before anything is compared.
func (g *Guard) Txn(ctx context.Context, resource string, token fencing.Token) clientv3.Txn {
	return &txn{guard: g, ctx: ctx, resource: resource, token: token}
}

// txn is a transaction that is being put together.
type txn struct {
	guard        *Guard
	ctx          context.Context // as in the driver's
	resource     string
	token        fencing.Token
	cmps         []clientv3.Cmp
	then, orElse []clientv3.Op
}

// If implements [clientv3.Txn].
func (t *txn) If(cmps ...clientv3.Cmp) clientv3.Txn {
	t.cmps = append(t.cmps, cmps...)
	return t
}

// Then implements [clientv3.Txn].
func (t *txn) Then(ops ...clientv3.Op) clientv3.Txn {
	t.then = append(t.then, ops...)
	return t
}

// Else implements [clientv3.Txn].
func (t *txn) Else(ops ...clientv3.Op) clientv3.Txn {
	t.orElse = append(t.orElse, ops...)
	return t
}

// Commit implements [clientv3.Txn].
func (t *txn) Commit() (*clientv3.TxnResponse, error) {
	g := t.guard
	if err := checkName(t.resource); err != nil {
		return nil, err
	}
	if err := t.token.Check(); err != nil {
		return nil, fencing.Admit(t.resource, t.token, 0)
	}
	if _, err := g.keys.checkOps(t.then); err != nil {
		return nil, err
	}
	elseWrites, err := g.keys.checkOps(t.orElse)
	if err != nil {
		return nil, err
	}
	var resp *clientv3.TxnResponse
	err = g.call(t.ctx, func(ctx context.Context) (err error) {
		resp, err = t.send(ctx, elseWrites)
		return err
	})
	return resp, g.failure(t.ctx, t.resource, err)
}

// send makes the one transaction: the mark is looked at first, and what the
// caller asked for is a transaction within. A mark that is not there compares
// false, whatever it is compared with.
func (t *txn) send(ctx context.Context, elseWrites bool) (*clientv3.TxnResponse, error) {
	g := t.guard
	key := g.keys.mark(t.resource)
	move := []clientv3.Op{clientv3.OpPut(key, text(t.token))}
	then, orElse := append(move, t.then...), t.orElse
	if elseWrites {
		orElse = append(slices.Clone(move), orElse...)
	}
	resp, err := g.kv.Txn(ctx).
		If(clientv3.Compare(clientv3.Value(key), ">", text(t.token))).
		Then(clientv3.OpGet(key)).
		Else(clientv3.OpTxn(t.cmps, then, orElse)).
		Commit()
	switch {
	case err != nil:
		return nil, err
	case resp.Succeeded:
		kvs := resp.Responses[0].GetResponseRange().GetKvs()
		mark, err := parse(key, kvs[0].Value)
		if err != nil {
			return nil, &refusal{err}
		}
		return nil, &refusal{fencing.Admit(t.resource, t.token, mark)}
	}
	inner := resp.Responses[0].GetResponseTxn()
	own := 0
	if inner.GetSucceeded() || elseWrites {
		own = 1
	}
	return (*clientv3.TxnResponse)(&etcdserverpb.TxnResponse{
		Header: resp.Header, Succeeded: inner.GetSucceeded(), Responses: inner.GetResponses()[own:],
	}), nil
}
