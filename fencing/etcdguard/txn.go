package etcdguard

import (
	"context"
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/golockers/locker/fencing"
)

// Commit carries out ops in one transaction if token is not lower than the mark of
// resource, and moves the mark in the same transaction. Without ops, only the mark
// moves. Ops that only read are guarded, too. The response is that of ops. ctx bounds
// the call.
//
// If the token is too low, the error is a [*fencing.StaleError] and nothing is
// written. Without a token it matches [fencing.ErrMissing]. With an error that matches
// [fencing.ErrUnknown], either everything was written or nothing; after any other
// error, nothing was. If etcd could not be asked, the error matches
// [locker.ErrUnavailable].
//
// The guard adds two operations to those that etcd counts, of which a transaction may
// have 128 if --max-txn-ops is not set. If there are too many, the error matches
// [locker.ErrInvalid].
func (g *Guard) Commit(ctx context.Context, resource string, token fencing.Token, ops ...clientv3.Op) (
	*clientv3.TxnResponse, error,
) {
	return g.Txn(ctx, resource, token).Then(ops...).Commit()
}

// Raise moves the mark of resource up to token and writes nothing. After it has
// returned, no write with a lower token can happen. A holder calls it before it
// reads the state on which its write depends. Errors are those of Commit.
func (g *Guard) Raise(ctx context.Context, resource string, token fencing.Token) error {
	_, err := g.Commit(ctx, resource, token)
	return err
}

// Txn is Commit with the caller's own comparisons. It returns a transaction that can
// be used in place of client.Txn(ctx); its errors are those of Commit.
//
// If the comparisons of If do not hold, the operations of Else are carried out and
// Succeeded is false in the response. Then the mark moves only if there are writes
// among these operations: it moves together with a write or not at all. A token that
// is too low is refused before anything is compared.
func (g *Guard) Txn(ctx context.Context, resource string, token fencing.Token) clientv3.Txn {
	return &txn{guard: g, ctx: ctx, resource: resource, token: token}
}

// txn is a transaction that its caller still builds.
type txn struct {
	guard        *Guard
	ctx          context.Context // the driver's transactions keep it, too
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
	if err := fencing.CheckName(t.resource); err != nil {
		return nil, fmt.Errorf("etcdguard: %w", err)
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
	// The mark is compared first, and the caller's transaction is nested in the branch
	// that follows. A comparison with a key that does not exist is false.
	key := g.keys.mark(t.resource)
	move := []clientv3.Op{clientv3.OpPut(key, text(t.token))}
	then, orElse := slices.Concat(move, t.then), t.orElse
	if elseWrites {
		orElse = slices.Concat(move, orElse)
	}
	var resp *clientv3.TxnResponse
	err = g.call(t.ctx, func(ctx context.Context) (err error) {
		resp, err = g.kv.Txn(ctx).
			If(clientv3.Compare(clientv3.Value(key), ">", text(t.token))).
			Then(clientv3.OpGet(key)).
			Else(clientv3.OpTxn(t.cmps, then, orElse)).
			Commit()
		return err
	})
	switch {
	case err != nil:
		return nil, g.failure(t.ctx, t.resource, err)
	case resp.Succeeded:
		mark, err := parse(key, resp.Responses[0].GetResponseRange().GetKvs()[0].Value)
		if err != nil {
			return nil, err
		}
		return nil, fencing.Admit(t.resource, t.token, mark)
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
